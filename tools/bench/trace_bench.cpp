// What an event of a trace costs the thread in which it happens: none of a stack, one of Python's,
// one of native code; and the writer's thread. Beside it, a loop of arithmetic to compare machines
// by.
//
//   pleat_trace_bench [--json]
//   pleat_trace_bench --write FILE EVENTS   a trace of so many events, for who reads it
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "torch_bridge/c_abi.h"

namespace {

using Clock = std::chrono::steady_clock;

const PleatRecorder* recorder = nullptr;
int stacks = 0;
constexpr int kEvents = 1500;  // fewer than a ring holds
constexpr int kRounds = 41;
std::vector<double> ns;

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "pleat_trace_bench: {}\n", why);
  std::exit(1);
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
}

// Events as the bridge has them: the time is taken, the stack, then all of it is told.
extern "C" void measure_events() {
  ns.clear();
  for (int round = 0; round < kRounds; ++round) {
    ::usleep(60'000);  // the writer empties the ring
    const auto begin = Clock::now();
    for (int i = 0; i < kEvents; ++i) {
      PleatTraceEvent event{};
      event.kind = i % 2 == 0 ? PLEAT_TRACE_ALLOCATE : PLEAT_TRACE_FREE;
      event.time_ns = now_ns();
      event.bytes = 65536u + 4096u * static_cast<unsigned>(i % 16 / 2);
      event.block = static_cast<std::uint64_t>(round * kEvents + i) / 2 + 1;
      event.address = 0x7f0000000000u + event.block * 131072;
      event.device = -1;
      const auto bytes = static_cast<std::int64_t>(event.bytes);
      event.change[PLEAT_TRACE_REQUESTED] = i % 2 == 0 ? bytes : -bytes;
      event.change[PLEAT_TRACE_ACTIVE] = event.change[PLEAT_TRACE_REQUESTED];
      if (stacks != 0) event.stack = recorder->stack(1);
      recorder->event(&event);
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    ns.push_back(took.count() / kEvents);
  }
}

__attribute__((noinline)) void at_depth(int frames) {
  if (frames > 1) {
    at_depth(frames - 1);
  } else {
    measure_events();
  }
  __asm__ volatile("");  // no tail call
}

double median(std::vector<double>& of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

void start(const std::string& file, int which) {
  PleatTraceRequest request{};
  request.struct_size = sizeof request;
  request.stacks = static_cast<std::uint32_t>(which);
  request.path = file.c_str();
  request.process = "{}";
  std::array<char, 256> error{};
  if (recorder->start(&request, error.data(), error.size()) != 0) fail(file + ": " + error.data());
  stacks = which;
}

// A trace into a file that is removed at once.
void trace(int which, const std::filesystem::path& folder) {
  start((folder / fmt::format("{}.trace", which)).string(), which);
}

// Twenty frames of Python, whose lock is free as it is in an operator. Negative: no libpython.
double python_ns(const std::filesystem::path& folder) {
  void* library = nullptr;
  for (int minor = 14; minor >= 10 && library == nullptr; --minor) {
    library = ::dlopen(fmt::format("libpython3.{}.so.1.0", minor).c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  if (library == nullptr) return -1;
  const auto start = reinterpret_cast<void (*)(int)>(::dlsym(library, "Py_InitializeEx"));
  const auto run = reinterpret_cast<int (*)(const char*)>(::dlsym(library, "PyRun_SimpleString"));
  start(0);
  trace(PLEAT_TRACE_STACKS_PYTHON, folder);
  const std::string script = fmt::format(
      "import ctypes\n"
      "loop = ctypes.CFUNCTYPE(None)({})\n"
      "def f(n):\n"
      "    return f(n - 1) if n > 1 else loop()\n"
      "f(19)\n",  // and the script's own
      reinterpret_cast<std::uintptr_t>(&measure_events));
  if (run(script.c_str()) != 0) fail("the script of Python failed");
  recorder->stop();
  return median(ns);
}

// A training of 40 saved tensors a step, with what a forward and a backward pass do to memory.
class MadeUp {
 public:
  explicit MadeUp(std::uint64_t events) : left_(events) {
    for (int i = 0; i < 40; ++i) {
      const std::string op = fmt::format("aten::op{}", i);
      ops_.push_back(recorder->intern(op.data(), op.size()));
    }
  }
  void run() {
    for (std::uint64_t step = 0; left_ > 0; ++step) {
      phase(PLEAT_TRACE_PHASE_FORWARD, step);
      std::vector<std::uint64_t> saved;
      for (std::size_t i = 0; i < ops_.size(); ++i) saved.push_back(save(i));
      phase(PLEAT_TRACE_PHASE_BACKWARD, step);
      for (std::size_t i = ops_.size(); i-- > 0;) give_back(i, saved[i]);
      phase(PLEAT_TRACE_PHASE_OPTIMIZER, step);
      phase(PLEAT_TRACE_PHASE_DATA, step + 1);
    }
  }

 private:
  static constexpr std::int64_t bytes_of(std::size_t i) {
    return static_cast<std::int64_t>(262144 + 4096 * i);
  }
  PleatTraceEvent event(PleatTraceKind kind, std::size_t i, std::uint64_t block) {
    PleatTraceEvent made{};
    made.time_ns = now_ns();
    made.kind = static_cast<std::uint8_t>(kind);
    made.phase = phase_;
    made.device = -1;
    made.block = block;
    made.address = 0x7f0000000000u + i * 1048576;
    made.op = kind == PLEAT_TRACE_ALLOCATE || kind == PLEAT_TRACE_TAG ? ops_[i] : 0;
    made.bytes = static_cast<std::uint64_t>(bytes_of(i));
    return made;
  }
  void tell(const PleatTraceEvent& made) {
    if (left_ == 0) return;
    --left_;
    if (++since_rest_ == kEvents) {  // the writer keeps up
      since_rest_ = 0;
      ::usleep(4000);
    }
    recorder->event(&made);
  }
  void change(PleatTraceEvent made, int which, std::int64_t bytes, int other = -1) {
    made.change[which] = bytes;
    if (other >= 0) made.change[other] = bytes;
    tell(made);
  }
  void phase(PleatTracePhase begins, std::uint64_t step) {
    phase_ = begins;
    PleatTraceEvent made = event(PLEAT_TRACE_PHASE, 0, 0);
    made.address = 0;
    made.bytes = step;
    tell(made);
  }
  std::uint64_t save(std::size_t i) {
    const std::int64_t bytes = bytes_of(i);
    const std::uint64_t block = ++blocks_;
    change(event(PLEAT_TRACE_ALLOCATE, i, block), PLEAT_TRACE_REQUESTED, bytes, PLEAT_TRACE_ACTIVE);
    PleatTraceEvent tag = event(PLEAT_TRACE_TAG, i, block);
    tag.record = ++records_;
    change(tag, PLEAT_TRACE_SAVED_RAW, bytes);
    PleatTraceEvent encode = event(PLEAT_TRACE_ENCODE, i, 0);
    encode.record = tag.record;
    encode.reason = PLEAT_TRACE_PLACE_CHUNK;
    encode.change[PLEAT_TRACE_SAVED_RAW] = -bytes;
    encode.change[PLEAT_TRACE_PAYLOAD] = bytes / 8;
    encode.bytes = static_cast<std::uint64_t>(bytes / 8);
    tell(encode);
    change(event(PLEAT_TRACE_FREE, i, block), PLEAT_TRACE_REQUESTED, -bytes, PLEAT_TRACE_ACTIVE);
    return tag.record;
  }
  void give_back(std::size_t i, std::uint64_t record) {
    const std::int64_t bytes = bytes_of(i);
    const std::uint64_t block = ++blocks_;
    change(event(PLEAT_TRACE_ALLOCATE, i, block), PLEAT_TRACE_REQUESTED, bytes, PLEAT_TRACE_ACTIVE);
    PleatTraceEvent restore = event(PLEAT_TRACE_RESTORE, i, block);
    restore.record = record;
    change(restore, PLEAT_TRACE_RESTORED, bytes);
    restore.kind = PLEAT_TRACE_RESTORED_FREE;
    restore.time_ns = now_ns();
    change(restore, PLEAT_TRACE_RESTORED, -bytes);
    change(event(PLEAT_TRACE_FREE, i, block), PLEAT_TRACE_REQUESTED, -bytes, PLEAT_TRACE_ACTIVE);
    PleatTraceEvent drop = event(PLEAT_TRACE_DROP, i, 0);
    drop.record = record;
    drop.bytes = static_cast<std::uint64_t>(bytes / 8);
    change(drop, PLEAT_TRACE_PAYLOAD, -bytes / 8);
  }

  std::uint64_t left_;
  int since_rest_ = 0;
  std::uint8_t phase_ = 0;
  std::uint64_t blocks_ = 0, records_ = 0;
  std::vector<std::uint32_t> ops_;
};

void write_trace(const std::string& file, std::uint64_t events) {
  start(file, PLEAT_TRACE_STACKS_NONE);
  MadeUp(events).run();
  recorder->stop();
}

double reference_ns() {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Clock::now();
    std::uint64_t x = 1;
    for (int i = 0; i < 100'000; ++i) {
      x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + static_cast<std::uint64_t>(i);
      __asm__ volatile("" : "+r"(x));
    }
    rounds.push_back(std::chrono::duration<double, std::nano>(Clock::now() - begin).count() /
                     100'000);
  }
  return median(rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const bool as_json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  const std::filesystem::path library =
      std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "lib" /
      PLEAT_RECORDER_FILE;
  void* const opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) fail(::dlerror());
  recorder = reinterpret_cast<pleat_recorder_fn>(::dlsym(opened, "pleat_recorder"))(
      PLEAT_RECORDER_VERSION);
  if (recorder == nullptr) fail("the recorder is of another version");
  if (argc == 4 && std::strcmp(argv[1], "--write") == 0) {
    write_trace(std::filesystem::absolute(argv[2]).string(), std::strtoull(argv[3], nullptr, 10));
    return 0;
  }
  std::string folder =
      (std::filesystem::temp_directory_path() / "pleat_trace_bench.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail("no folder for traces");

  const double reference = reference_ns();
  trace(PLEAT_TRACE_STACKS_NONE, folder);
  measure_events();
  std::uint64_t writer_ns = 0, file_bytes = 0;
  recorder->stop();
  recorder->cost(&writer_ns, &file_bytes);
  const double writer = static_cast<double>(writer_ns) / (kRounds * kEvents);
  const double none = median(ns);
  trace(PLEAT_TRACE_STACKS_NATIVE, folder);
  at_depth(36);  // with main and what lies below it about 40
  recorder->stop();
  const double native = median(ns);
  const double python = python_ns(folder);
  std::filesystem::remove_all(folder);

  if (as_json) {
    fmt::print(
        "{{\"reference_ns\": {:.3f}, \"none_ns\": {:.1f}, \"writer_ns\": {:.1f}, "
        "\"native_40_ns\": {:.1f}, \"python_20_ns\": {}}}\n",
        reference, none, writer, native, python < 0 ? "null" : fmt::format("{:.1f}", python));
  } else {
    fmt::print("reference loop, one round    {:8.2f} ns\n", reference);
    fmt::print("event without a stack        {:8.1f} ns\n", none);
    fmt::print("the same in the writer       {:8.1f} ns\n", writer);
    fmt::print("event with 40 native frames  {:8.1f} ns\n", native);
    if (python >= 0)
      fmt::print("event with 20 of Python      {:8.1f} ns\n", python);
    else
      fmt::print("event with 20 of Python      not measured: no libpython here\n");
  }
  return 0;
}

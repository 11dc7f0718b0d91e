// What an event of a trace costs the thread in which it happens: none of a stack, one of Python's,
// one of native code. Beside it, a loop of arithmetic to compare machines by.
//
//   pleat_trace_bench [--json]
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

double median() {
  std::sort(ns.begin(), ns.end());
  return ns[ns.size() / 2];
}

// A trace into a file that is removed at once.
void trace(int which, const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / fmt::format("{}.trace", which);
  PleatTraceRequest request{};
  const std::string path = file.string();
  request.struct_size = sizeof request;
  request.stacks = static_cast<std::uint32_t>(which);
  request.path = path.c_str();
  request.process = "{}";
  std::array<char, 256> error{};
  if (recorder->start(&request, error.data(), error.size()) != 0) fail(path + ": " + error.data());
  stacks = which;
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
  return median();
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
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
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
  std::string folder =
      (std::filesystem::temp_directory_path() / "pleat_trace_bench.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail("no folder for traces");

  const double reference = reference_ns();
  trace(PLEAT_TRACE_STACKS_NONE, folder);
  measure_events();
  recorder->stop();
  const double none = median();
  trace(PLEAT_TRACE_STACKS_NATIVE, folder);
  at_depth(36);  // with main and what lies below it about 40
  recorder->stop();
  const double native = median();
  const double python = python_ns(folder);
  std::filesystem::remove_all(folder);

  if (as_json) {
    fmt::print(
        "{{\"reference_ns\": {:.3f}, \"none_ns\": {:.1f}, \"native_40_ns\": {:.1f}, "
        "\"python_20_ns\": {}}}\n",
        reference, none, native, python < 0 ? "null" : fmt::format("{:.1f}", python));
  } else {
    fmt::print("reference loop, one round    {:8.2f} ns\n", reference);
    fmt::print("event without a stack        {:8.1f} ns\n", none);
    fmt::print("event with 40 native frames  {:8.1f} ns\n", native);
    if (python >= 0)
      fmt::print("event with 20 of Python      {:8.1f} ns\n", python);
    else
      fmt::print("event with 20 of Python      not measured: no libpython here\n");
  }
  return 0;
}

#include "torch_bridge/trace/trace.h"

#include <dlfcn.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "torch_bridge/core/clock.h"
#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/json_writer.h"
#include "torch_bridge/trace/context.h"
#include "torch_bridge/trace/file.h"
#include "torch_bridge/trace/module_paths.h"
#include "torch_bridge/trace/operators.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {
namespace {

using allocator::Event;
using allocator::EventKind;
using allocator::StatKind;

// ---- events -------------------------------------------------------------------------------------

constexpr std::uint8_t kind_of(EventKind kind) noexcept {
  return static_cast<std::uint8_t>(static_cast<unsigned>(kind) + PLEAT_TRACE_SEGMENT_RESERVE);
}
static_assert(kind_of(EventKind::kSegmentReserve) == PLEAT_TRACE_SEGMENT_RESERVE &&
              kind_of(EventKind::kAllocate) == PLEAT_TRACE_ALLOCATE &&
              kind_of(EventKind::kPayloadFree) == PLEAT_TRACE_PAYLOAD_FREE &&
              kind_of(EventKind::kTag) == PLEAT_TRACE_TAG &&
              kind_of(EventKind::kEncode) == PLEAT_TRACE_ENCODE &&
              kind_of(EventKind::kDrop) == PLEAT_TRACE_DROP &&
              kind_of(EventKind::kOther) == PLEAT_TRACE_OTHER &&
              kind_of(EventKind::kPagesMove) == PLEAT_TRACE_PAGES_MOVE);
constexpr std::uint8_t reason_of(allocator::PayloadPlace place) noexcept {
  return static_cast<std::uint8_t>(place);
}
static_assert(reason_of(allocator::PayloadPlace::kChunk) == PLEAT_TRACE_PLACE_CHUNK &&
              reason_of(allocator::PayloadPlace::kOwnBlock) == PLEAT_TRACE_PLACE_OWN_BLOCK &&
              reason_of(allocator::PayloadPlace::kInPlace) == PLEAT_TRACE_PLACE_IN_PLACE);

constexpr std::array<StatKind, PLEAT_TRACE_CHANGES> kChanges = {
    StatKind::kRequested, StatKind::kActive,  StatKind::kReserved,
    StatKind::kSavedRaw,  StatKind::kPayload, StatKind::kRestored};

constexpr bool begins_something(EventKind kind) noexcept {
  return kind == EventKind::kAllocate || kind == EventKind::kChunkAllocate ||
         kind == EventKind::kTag || kind == EventKind::kRestore;
}

// Runs under locks of the allocator's.
void note_moment(Event& event) noexcept {
  event.time_ns = monotonic_ns();
  event.phase = trace_phase();
}

class TraceSink final : public allocator::EventSink {
 public:
  void on_event(const Event& event) noexcept override {
    const PleatRecorder* const recorder = trace_recorder();
    if (recorder == nullptr) return;
    // The allocation can still succeed; out_of_memory_report.h marks a refusal.
    const bool fell_short = event.kind == EventKind::kOutOfMemory;
    if (fell_short && event.change == decltype(event.change){}) return;
    const TraceCost::Timed timed(trace_state.events);
    if (event.kind == EventKind::kPlan) return note_plan(*recorder, event);
    PleatTraceEvent told{};
    told.time_ns = event.time_ns;
    told.address = event.address;
    told.bytes = event.bytes;
    told.block = event.block.value;
    told.record = event.record.value;
    told.key = event.kind == EventKind::kTag ? event.key.value : event.took_ns;
    told.stream = event.stream.value;
    for (std::size_t i = 0; i < kChanges.size(); ++i) {
      told.change[i] = event.change[static_cast<std::size_t>(kChanges[i])];
    }
    told.device = static_cast<std::int8_t>(event.device.value);
    told.kind = kind_of(fell_short ? EventKind::kOther : event.kind);
    told.phase = static_cast<std::uint8_t>(event.phase);
    told.reason = reason_of(event.place);
    if (begins_something(event.kind)) {
      told.op = trace_operator();
      told.node = trace_node();
      told.stack = trace_stack(*recorder);
    }
    recorder->event(&told);
  }

 private:
  // The payload that a saved storage would become, if compression is off.
  static void note_plan(const PleatRecorder& recorder, const Event& event) noexcept {
    PleatTraceEvent mark = trace_mark(PLEAT_TRACE_PLAN);
    mark.time_ns = event.time_ns;
    mark.device = static_cast<std::int8_t>(event.device.value);
    mark.record = event.record.value;
    mark.bytes = event.bytes;
    mark.key = event.planned_bytes;
    mark.reason = event.place == allocator::PayloadPlace::kArgument ? PLEAT_TRACE_PLAN_RECOMPUTED
                  : event.planned_bytes != 0                        ? PLEAT_TRACE_PLAN_CODED
                                                                    : PLEAT_TRACE_PLAN_RAW;
    recorder.event(&mark);
  }
};

// ---- the recorder -------------------------------------------------------------------------------

// libpleat_recorder.so beside this library. Null, and `problem` says why.
const PleatRecorder* open_recorder(std::string& problem) {
  const std::string us = path_of_this_library();
  if (us.empty()) {
    problem = "cannot tell where the bridge is";
    return nullptr;
  }
  std::error_code ignored;
  for (std::filesystem::path own :
       {std::filesystem::absolute(us, ignored), std::filesystem::canonical(us, ignored)}) {
    const std::filesystem::path file = own.replace_filename(PLEAT_RECORDER_FILE);
    if (!std::filesystem::exists(file, ignored)) continue;
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const auto find = library != nullptr
                          ? reinterpret_cast<pleat_recorder_fn>(::dlsym(library, "pleat_recorder"))
                          : nullptr;
    const PleatRecorder* const found = find != nullptr ? find(PLEAT_RECORDER_VERSION) : nullptr;
    if (found != nullptr && found->struct_size == sizeof *found) return found;
    const char* const why = library == nullptr ? ::dlerror() : nullptr;
    problem = why != nullptr ? why : file.string() + " is of another version";
    return nullptr;
  }
  problem = PLEAT_RECORDER_FILE " is not beside the bridge";
  return nullptr;
}

// Set by `pleat trace record --with-command`: traces hold command lines, of children too.
constexpr const char* kCommandVariable = "PLEAT_TRACE_COMMAND";

// The arguments with spaces between them, at most 4 KiB; empty: nobody has asked for it.
std::string command_line() {
  if (std::getenv(kCommandVariable) == nullptr) return {};
  std::array<char, 4096> bytes;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  file.read(bytes.data(), bytes.size());
  std::string line(bytes.data(), static_cast<std::size_t>(file.gcount()));
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

std::string process_json(const Options& options, const ProcessIdentity& who) {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  Json json;
  json.open()
      .field("pid", static_cast<std::int64_t>(who.process))
      .text("host", who.host)
      .text("torch", TORCH_VERSION)
      .text("pleat", PLEAT_VERSION)
      .text("stacks", option_value(options, "stacks"))
      .field("start_ns", static_cast<std::int64_t>(monotonic_ns()))
      .field("start_wall_ns",
             static_cast<std::int64_t>(wall.tv_sec) * 1'000'000'000 + wall.tv_nsec);
  if (const std::string command = command_line(); !command.empty()) json.text("command", command);
  if (who.rank) json.field("rank", static_cast<std::int64_t>(*who.rank));
  if (who.local_rank) json.field("local_rank", static_cast<std::int64_t>(*who.local_rank));
  if (who.world_size) json.field("world_size", static_cast<std::int64_t>(*who.world_size));
  json.open("options");
  for (const OptionRow& row : option_table()) {
    // Paths tell more of a user than of memory.
    if (row.key == "trace" || row.key == "profile" || row.key == "check_file") continue;
    json.text(std::string(row.key).c_str(), option_value(options, row.key));
  }
  json.close().close();
  return json.take();
}

// Set by `pleat trace record`: the process says at its end what to type next.
constexpr const char* kRecordVariable = "PLEAT_TRACE_RECORD";

class Trace {
  static constexpr unsigned kMostAttempts = 100;  // to find a name that is not taken

 public:
  enum class AtEnd : bool { kNo, kYes };
  bool start(Runtime& runtime, const std::string& pattern, Taken taken, std::string& problem) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!path_.empty()) {
      problem = "a trace is being written already: " + path_;
      return false;
    }
    if (recorder_ == nullptr) recorder_ = open_recorder(problem);
    if (recorder_ == nullptr) return false;
    const ProcessIdentity who = identify_process();
    std::string file = trace_file(pattern, who, problem);
    if (file.empty()) {
      if (problem.empty()) problem = "no file was named";
      return false;
    }
    std::error_code ignored;
    if (const auto absolute = std::filesystem::absolute(file, ignored); !ignored) {
      file = absolute.string();
    }
    const Options options = runtime.options();
    const std::string process = process_json(options, who);
    PleatTraceRequest request{};
    request.struct_size = sizeof request;
    request.stacks = static_cast<std::uint32_t>(options.stacks);
    request.process = process.c_str();
    request.most_bytes = options.trace_size;
    std::array<char, 256> error{};
    const auto open = [&](const std::string& path) {
      request.path = path.c_str();
      return recorder_->start(&request, error.data(), error.size());
    };
    int code = open(file);
    const std::string wanted = file;
    for (unsigned attempt = 1;
         code == EEXIST && taken == Taken::kUseAnother && attempt <= kMostAttempts; ++attempt) {
      file = trace_file_of_process(wanted, who, attempt);
      code = open(file);
    }
    if (code != 0) {
      problem = file + ": " + error.data();
      return false;
    }
    path_ = file;
    trace_state.recorder.store(recorder_, std::memory_order_release);
    operators_.start(options.modules);
    runtime.heaps.for_each([](allocator::Heap& heap) { trace_heap(heap); });
    runtime.pool.tell_segments();
    runtime.renew_heaps();
    return true;
  }

  bool stop(Runtime& runtime, AtEnd at_end, std::uint64_t* events, std::string* path) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (path_.empty()) return false;
    // At the end of a process no thread is waited for: other threads can wait for Python's end in
    // an event. Torch's list of callbacks in each thread is gone then.
    if (at_end == AtEnd::kNo) {
      runtime.heaps.for_each([](allocator::Heap& heap) { heap.events().attach(nullptr); });
      operators_.stop();
    }
    trace_state.recorder.store(nullptr, std::memory_order_release);
    if (at_end == AtEnd::kNo) runtime.renew_heaps();
    const std::uint64_t written = recorder_->stop();
    if (events != nullptr) *events = written;
    if (path != nullptr) *path = path_;
    path_.clear();
    return true;
  }

  std::string path() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return path_;
  }
  // In a forked child, after the locks were let go.
  void abandon() noexcept {
    if (const PleatRecorder* const recorder = trace_state.recorder.exchange(nullptr)) {
      recorder->abandon();
      path_.clear();
    }
  }

  [[nodiscard]] TraceSink& sink() noexcept { return sink_; }

 private:
  std::mutex mutex_;
  ForkLock fork_lock_{ForkPlace::kTrace, mutex_};
  std::string path_;                         // empty: no trace
  const PleatRecorder* recorder_ = nullptr;  // null until the first trace
  OperatorListener operators_;
  TraceSink sink_;
};

Trace& the_trace() {
  static auto* const one = new Trace;  // leaked: blocks are freed until the very end
  return *one;
}

// Saved bytes that could have been compressed if they were another's, or of another kind.
// Parameters and their views are there anyway.
bool is_left_alone(Reason why) noexcept {
  switch (why) {
    case Reason::kNotPlainStrided:
    case Reason::kOtherDevice:
    case Reason::kForeignStorage:
    case Reason::kWatched:
    case Reason::kPythonState:
    case Reason::kCompiledFunction:
      return true;
    default:
      return false;
  }
}

PleatTraceEvent mark_of(const allocator::Record& record, std::int32_t device,
                        PleatTraceKind kind) noexcept {
  PleatTraceEvent mark = trace_mark(kind);
  mark.device = static_cast<std::int8_t>(device);
  mark.record = record.id.value;
  mark.bytes = record.bytes;
  return mark;
}

}  // namespace

bool start_trace(Runtime& runtime, const std::string& pattern, Taken taken, std::string& problem) {
  return the_trace().start(runtime, pattern, taken, problem);
}

bool stop_trace(Runtime& runtime) noexcept {
  forget_modules();  // first: a thread that forks has Python's lock and waits for the trace's
  return the_trace().stop(runtime, Trace::AtEnd::kNo, nullptr, nullptr);
}

std::string trace_path() { return the_trace().path(); }

void finish_trace(Runtime& runtime) noexcept {
  try {
    std::uint64_t events = 0;
    std::string path;
    if (!the_trace().stop(runtime, Trace::AtEnd::kYes, &events, &path)) return;
    if (std::getenv(kRecordVariable) != nullptr) {
      std::fprintf(stderr, "pleat: %llu events are in the trace; next: pleat trace summary %s\n",
                   static_cast<unsigned long long>(events), path.c_str());
    }
  } catch (...) {  // no memory for a line
  }
}

void abandon_trace(Runtime& runtime) noexcept {
  if (!tracing()) return;
  the_trace().abandon();
  runtime.heaps.for_each([](allocator::Heap& heap) { heap.events().attach(nullptr); });
}

// Marks the state of the heap before its first event.
void trace_heap(allocator::Heap& heap) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr) return;
  PleatTraceEvent present = trace_mark(PLEAT_TRACE_PRESENT);
  present.device = static_cast<std::int8_t>(heap.device().value);
  for (std::size_t i = 0; i < kChanges.size(); ++i) {
    present.change[i] = heap.statistics().current(kChanges[i]);
  }
  recorder->event(&present);
  heap.events().attach(&the_trace().sink(), &note_moment);
}

void trace_label(const allocator::Block& block, PleatTraceLabel label) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr) return;
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_LABEL);
  mark.block = block.id.value;
  mark.address = reinterpret_cast<std::uint64_t>(block.begin);
  mark.bytes = block.requested;
  mark.reason = static_cast<std::uint8_t>(label);
  recorder->event(&mark);
}

void trace_decided(const allocator::Record& record, std::int32_t device,
                   const Decision& decision) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr) return;
  std::string trail;
  try {
    for (const Decision::Step& step : decision.trail())
      trail += (trail.empty() ? "" : " ") + step_text(step.why, step.width);
  } catch (...) {  // memory is short
  }
  PleatTraceEvent mark = mark_of(record, device, PLEAT_TRACE_DECIDED);
  mark.op = recorder->intern(trail.data(), trail.size());
  mark.reason = decision.choice.bits;
  mark.stream = decision.choice.floor;
  if (decision.may_be_noisy() && decision.exactness == Exactness::kMayBearNoise)
    mark.key = record.ranges.bytes() / compress::element_size(decision.choice.type);
  recorder->event(&mark);
}

void trace_proved(const allocator::Record& record, std::int32_t device,
                  std::string_view node_class) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr) return;
  PleatTraceEvent mark = mark_of(record, device, PLEAT_TRACE_PROVED);
  mark.op = recorder->intern(node_class.data(), node_class.size());
  recorder->event(&mark);
}

void trace_left(Reason why, std::int32_t device, const allocator::Block* block,
                std::size_t bytes) noexcept {
  const PleatRecorder* const recorder = trace_recorder();
  if (recorder == nullptr || !is_left_alone(why)) return;
  const char* const name = reason_name(why);
  PleatTraceEvent mark = trace_mark(PLEAT_TRACE_LEFT);
  mark.device = static_cast<std::int8_t>(device);
  mark.bytes = bytes;
  mark.block = block != nullptr ? block->id.value : 0;
  mark.op = recorder->intern(name, std::strlen(name));
  mark.stack = trace_stack(*recorder);
  recorder->event(&mark);
}

}  // namespace pleat::bridge

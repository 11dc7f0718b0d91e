// libpleat_recorder.so: writes the trace that a bridge tells it (docs/trace_format.md). Needs libc
// only, and takes no memory from the job's allocator on the way of an event.
#include <sys/auxv.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "interpose/trace/format.h"
#include "interpose/trace/names.h"
#include "interpose/trace/native_stack.h"
#include "interpose/trace/python_stack.h"
#include "interpose/trace/ring.h"
#include "interpose/trace/writer.h"

namespace pleat::trace {
namespace {

// Whatever a function does, the job's errno is what it was.
class KeepErrno {
 public:
  KeepErrno() noexcept : error_(errno) {}
  ~KeepErrno() { errno = error_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int error_;
};

Rings rings;
Names names;
Writer writer(rings, names);
PythonStacks python_stacks;
NativeStacks native_stacks;
std::atomic<bool> with_python{false}, with_native{false};
std::atomic<bool> abandoned{false};

// Drawn by the kernel for the process: addresses in a file tell nothing of where things are.
std::uint64_t random_base() noexcept {
  std::uint64_t base = 0;
  if (const auto at = ::getauxval(AT_RANDOM)) {
    std::memcpy(&base, reinterpret_cast<const void*>(at), sizeof base);
  }
  base ^= monotonic_ns() * 0x9e3779b97f4a7c15u;
  return base & ~std::uint64_t{0xffff};  // alignments stay visible
}

int start(const PleatTraceRequest* request, char* error, std::size_t error_bytes) {
  const KeepErrno keep;
  int number = EINVAL;
  if (abandoned.load(std::memory_order_relaxed)) {
    number = ENOTSUP;
  } else if (request != nullptr && request->struct_size == sizeof *request) {
    number = writer.open(request->path, request->process, request->most_bytes, random_base());
  }
  if (number != 0) {
    std::snprintf(error, error_bytes, "%s", ::strerrordesc_np(number));
    return number;
  }
  with_python.store((request->stacks & PLEAT_TRACE_STACKS_PYTHON) != 0 && python_stacks.open());
  with_native.store((request->stacks & PLEAT_TRACE_STACKS_NATIVE) != 0 && native_stacks.open());
  return 0;
}

std::uint64_t stop() {
  const KeepErrno keep;
  return writer.close();
}

std::uint32_t intern(const char* text, std::size_t bytes) {
  const KeepErrno keep;
  return names.text({text, bytes});
}

std::uint32_t number_of(std::span<const RawFrame> frames, Ring& ring) noexcept {
  return names.stack(frames, ring.last_stack, [](const RawFrame& raw) {
    return raw.at == kNativeFrame ? Frame{.kind = FrameKind::kNative, .address = raw.code}
                                  : python_stacks.describe(raw, names);
  });
}

std::uint32_t stack(int may_wait) {
  const bool python = with_python.load(std::memory_order_relaxed);
  const bool native = with_native.load(std::memory_order_relaxed);
  Ring* const ring = python || native ? rings.mine() : nullptr;
  if (ring == nullptr || ring->taking_stack) return 0;
  const KeepErrno keep;
  const auto caller = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  ring->taking_stack = true;
  RawFrame frames[kMostFrames];
  const std::span<RawFrame> all(frames);
  const std::uint32_t of_native = native ? native_stacks.walk(all, caller) : 0;
  std::uint32_t number = 0;
  bool written_over = false;
  if (python) {
    // Python's frames stand for those of its interpreter and of all that called it.
    std::uint32_t inner = 0;
    while (inner < of_native && !python_stacks.is_interpreter(frames[inner].code)) ++inner;
    number = python_stacks.with_frames(all.subspan(inner), may_wait != 0,
                                       [&](std::span<RawFrame> found) {
                                         written_over = true;
                                         return number_of(all.first(inner + found.size()), *ring);
                                       });
  }
  if (number == 0 && of_native != 0 && !written_over)
    number = number_of(all.first(of_native), *ring);
  ring->taking_stack = false;
  return number;
}

void event(const PleatTraceEvent* event) {
  if (abandoned.load(std::memory_order_relaxed)) return;
  Ring* const ring = rings.mine();
  if (ring == nullptr) return;
  writer.begin_once();
  if (ring->add(*event)) [[unlikely]] {
    const KeepErrno keep;
    writer.wake();
  }
  if (const std::int64_t reserved = event->change[PLEAT_TRACE_RESERVED]; reserved != 0)
      [[unlikely]] {
    const KeepErrno keep;
    writer.note_reserved(reserved);
  }
}

void small(std::int64_t bytes) {
  if (Ring* const ring = rings.mine()) ring->count_small(bytes);
}

void abandon() {
  abandoned.store(true, std::memory_order_relaxed);
  writer.abandon();
}

// Not in a handler of signals that interrupts an event, or a page, of its own thread.
void page(const char* title) {
  if (abandoned.load(std::memory_order_relaxed) || title == nullptr) return;
  Ring* const ring = rings.mine();
  if (ring == nullptr || ring->in_event() || ring->asks_for_page) return;
  const KeepErrno keep;
  ring->asks_for_page = true;
  writer.page(title);
  ring->asks_for_page = false;
}

// Where nobody ended the trace.
__attribute__((destructor)) void at_exit() { writer.leave_nothing_behind(); }

void cost(std::uint64_t* writer_ns, std::uint64_t* file_bytes) {
  *writer_ns = writer.processor_ns();
  *file_bytes = writer.file_bytes();
}

constexpr PleatRecorder kRecorder = {.version = PLEAT_RECORDER_VERSION,
                                     .struct_size = sizeof(PleatRecorder),
                                     .start = start,
                                     .stop = stop,
                                     .intern = intern,
                                     .stack = stack,
                                     .event = event,
                                     .small = small,
                                     .abandon = abandon,
                                     .page = page,
                                     .cost = cost};

}  // namespace
}  // namespace pleat::trace

extern "C" __attribute__((visibility("default"))) const PleatRecorder* pleat_recorder(
    std::uint32_t version) noexcept {
  return version == PLEAT_RECORDER_VERSION && ::getauxval(AT_SECURE) == 0 ? &pleat::trace::kRecorder
                                                                          : nullptr;
}

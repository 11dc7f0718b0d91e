// The first pass over a trace: the class of each block, which is known only once the block has died
// or the trace has ended; peaks, steps and what else the second pass and the reports ask for.
//
// Blocks are numbered in the order in which they appear, whatever their ids: a class takes one
// byte.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "filter.h"
#include "interpose/trace/life.h"
#include "reader.h"

namespace pleat::trace {

inline constexpr std::uint32_t kNoStep = 0xffffffff;

struct Peak {
  std::int64_t bytes = 0;
  std::uint64_t event = 0;  // counted from 0 over the whole trace; the first that reached it
  std::uint64_t time_ns = 0;
  std::uint32_t step = kNoStep;  // an index into Lives::steps
  std::uint8_t phase = 0;        // of the thread whose event it was
};

struct Step {
  std::uint64_t number = 0;  // as the trace says
  std::uint64_t time_ns = 0;
  std::uint64_t event = 0;
};

struct DeviceStep {
  std::int64_t peak = 0;         // of live bytes
  std::int64_t live_at_end = 0;  // when the next step begins, or the trace ends
};

// A block that was there before the trace began, and is mentioned later.
struct PresentBlock {
  std::uint64_t id = 0;
  std::int64_t bytes = 0;
  ByteClass of = ByteClass::kUnknown;
};

// Tells blocks of before the trace from new ones, in both passes alike: ids ascend.
struct Beginning {
  bool present = false;        // a PRESENT mark came
  std::uint64_t first_id = 0;  // of an allocation; 0: none yet

  void note_allocated(std::uint64_t id) noexcept {
    if (first_id == 0) first_id = id;
  }
  [[nodiscard]] bool was_there(std::uint64_t id) const noexcept {
    return present && (first_id == 0 || id < first_id);
  }
};

struct DeviceLives {
  int device = -1;
  Changes end{};  // of the running sums
  std::array<Peak, PLEAT_TRACE_CHANGES> peaks{};
  std::vector<DeviceStep> steps;   // as Lives::steps
  std::vector<ByteClass> classes;  // by the block's number
  std::vector<PresentBlock> present;
  bool has_plans = false;           // what its records would become is told (bits:off)
  std::int64_t first_payloads = 0;  // bytes in chunks that were there before the trace
  std::uint64_t blocks = 0;
  std::optional<std::uint64_t> first_out_of_memory, last_out_of_memory;  // events
  std::uint64_t out_of_memory = 0;
};

struct Lives {
  std::uint64_t events = 0;     // of the file
  std::uint64_t own_marks = 0;  // of these are the recorder's own
  std::uint64_t lost_events = 0;
  std::uint64_t first_time_ns = 0, last_time_ns = 0;
  std::uint64_t start_ns = 0;  // File::start_ns()
  std::vector<Step> steps;
  // How many of these count: all, but for a last one without forward and backward. When a loop is
  // over, what comes after its last optimizer's step is none.
  std::size_t counted_steps = 0;
  // The last event before the program winds down: the last phase's beginning, or, where there were
  // none, the last of all. When a program ends it frees what it had gathered.
  std::uint64_t end_event = 0;
  std::optional<std::uint64_t> last_dump;  // the event at which somebody asked for a look
  Peak resident;                           // `bytes` of the process
  bool resident_known = false;
  std::int64_t most_small_bytes = 0;
  bool has_modules = false;            // the trace says which thread is in which module
  std::map<int, DeviceLives> devices;  // the host is -1
  std::uint64_t disagreements = 0;     // events that contradict what was before them
  Problems problems;

  // Events of the job, as `pleat trace record` counts them. Of a part: with what it tells again.
  [[nodiscard]] std::uint64_t told() const noexcept { return events - own_marks; }
  // Of an index into `steps`; nothing: kNoStep, or there is none such.
  [[nodiscard]] std::optional<std::uint64_t> step_number(std::uint32_t step) const noexcept {
    return step < steps.size() ? std::optional(steps[step].number) : std::nullopt;
  }
  [[nodiscard]] double seconds(std::uint64_t time_ns) const noexcept {
    return static_cast<double>(static_cast<std::int64_t>(time_ns - start_ns)) * 1e-9;
  }
};

// Reads the whole file, or as much of it as the filter says.
[[nodiscard]] Lives find_lives(const File& file, const Filter& filter = {},
                               const Progress& progress = {});

}  // namespace pleat::trace

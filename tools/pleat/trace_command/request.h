// A request to a trace: the file and the part of it, a moment; and how the commands of `pleat
// trace` end.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/pleat/trace/filter.h"
#include "tools/pleat/trace/groups.h"
#include "tools/pleat/trace/lives.h"

namespace pleat::cli {

// Which file, and which part of it.
struct TraceSelection {
  std::string file;
  std::optional<int> device;  // -1: the host; none: all
  double since_seconds = 0;
  std::optional<double> until_seconds;
  trace::Filter filter;  // but for its times
  bool symbols = true;   // names of native functions are looked up
  std::vector<trace::GroupRule> groups;
  bool modules = true;  // report modules, if the trace has them
};

// The moment whose memory is told.
struct Moment {
  enum class Kind : std::uint8_t { kPeak, kEnd, kOutOfMemory, kDump, kTime } kind = Kind::kPeak;
  double seconds = 0;  // from the trace's beginning
};

// Finds the moment as events pass by.
class MomentWatch {
 public:
  MomentWatch(const Moment& moment, const trace::DeviceLives& device, const trace::Lives& all);

  // False: the device has no such moment, and none will come.
  [[nodiscard]] bool may_come() const noexcept { return event_ || time_ns_; }
  // True once: for the event after which it is. `number`: of the event in the trace.
  [[nodiscard]] bool is_now(const PleatTraceEvent& event, std::uint64_t number) noexcept {
    const bool now = event_ ? number == *event_
                            : time_ns_ && (event.time_ns >= *time_ns_ || number == last_event_);
    if (now) event_ = time_ns_ = std::nullopt;
    return now;
  }

 private:
  std::optional<std::uint64_t> event_;
  std::optional<std::uint64_t> time_ns_;  // instead: the first event from here on, or the last
  std::uint64_t last_event_;
};

// Exit codes: 0; 2, no trace or an output that cannot be written; 3, over a limit. Reasons are one
// line on stderr.
inline constexpr int kTraceTrouble = 2;
inline constexpr int kOverLimit = 3;
// Says the line, and returns kTraceTrouble.
int trouble(std::string_view line);
// Of a file.
int trouble(const std::string& path, std::string_view why);
// What `act` returns. Where memory does not last for it, that is the trouble of the file.
template <class Act>
int with_memory(const std::string& path, std::string_view why, Act&& act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    return trouble(path, why);
  }
}

// False: a moment, a time, a step or a device lies outside of what was read, which is said in one
// line on stderr. A filter that merely finds nothing is no error.
[[nodiscard]] bool is_within(const TraceSelection& selection, const Moment& at,
                             const trace::Lives& lives);

}  // namespace pleat::cli

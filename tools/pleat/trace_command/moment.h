// The moment of a trace that a person asks for, found as events pass by.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/pleat/trace/lives.h"

namespace pleat::cli {

// The moment whose memory is told.
struct Moment {
  enum class Kind : std::uint8_t { kPeak, kEnd, kOutOfMemory, kDump, kTime } kind = Kind::kPeak;
  double seconds = 0;  // from the trace's beginning
};

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

}  // namespace pleat::cli

#include "moment.h"

#include <algorithm>

namespace pleat::cli {

MomentWatch::MomentWatch(const Moment& moment, const trace::DeviceLives& device,
                         const trace::Lives& all)
    : last_event_(all.events - 1) {
  using Kind = Moment::Kind;
  const trace::Peak& peak = device.peaks[PLEAT_TRACE_REQUESTED];
  if (moment.kind == Kind::kPeak && peak.bytes > 0) event_ = peak.event;
  if (moment.kind == Kind::kEnd) event_ = all.end_event;
  if (moment.kind == Kind::kOutOfMemory) event_ = device.last_out_of_memory;
  if (moment.kind == Kind::kDump) event_ = all.last_dump;
  if (moment.kind == Kind::kTime)
    time_ns_ = all.start_ns + static_cast<std::uint64_t>(std::min(moment.seconds * 1e9, 9e18));
}

}  // namespace pleat::cli

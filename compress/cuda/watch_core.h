// Counts groups by their metadata during an encode, on request. The lane that has written the two
// words of a group looks at them.
#pragma once

#include "compress/device/jobs.h"
#include "compress/grouped/encode_core.h"
#include "compress/grouped/step_math.h"
#include "compress/rotated/scaled_math.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

// Job::width of an encoder of quantised floats: the bits of the widest step, 0 if nothing is
// counted. Job::bounds: the sides beside the values, infinite where there are none.
inline uint32_t watch_width(float widest_step, const Sides& beside) {
  const bool any = beside.any() || widest_step < float_of(0x7F80'0000u);
  return any ? bits_of(widest_step) : 0;
}
PLEAT_HD inline bool is_watched(const cuda::Job& job) { return job.width != 0; }

struct Seen {
  bool too_wide;
  bool leaving;
  uint32_t step_bits;  // 0: not quantised. Steps compare as their bits do
};
template <class F>
PLEAT_HD inline Seen look_at_group(const Metadata<typename F::Coded>& metadata,
                                   const cuda::Job& job) {
  const uint32_t step =
      bits_of(step_of_any_group<typename F::Coded>(metadata, F::kBits, F::kScaled));
  const bool sided = is_low_bound(job.bounds[0]) || is_high_bound(job.bounds[1]);
  Seen seen{step > job.width, sided && F::kTransformed && step != 0, step};
  if constexpr (!F::kTransformed) {
    const SideTest test{job.bounds[0], job.bounds[1], false,
                        is_low_bound(job.bounds[0]) && is_high_bound(job.bounds[1])};
    seen.leaving = sided && group_may_leave<typename F::Source>(metadata, F::kBits, test);
  }
  return seen;
}

}  // namespace
}  // namespace pleat::compress

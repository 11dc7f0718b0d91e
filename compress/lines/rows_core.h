// Marks the rows of a span that must come back exact. A warp takes 32 rows and a lane looks at 16
// elements of each; of those that look flat the warp looks at 128 more, all over the row. It reads
// those that look flat still as a whole, and writes the marks of all 32. Written against a Warp:
//
// - warp.ballot(f): a bit for each lane < 32, f(lane).
// - warp.fold(f): the LineRange of all f(lane).
// - warp.once(f): f() in one lane.
#pragma once

#include "compress/lines/line_section.h"

namespace pleat::compress {
namespace {

// The widest step of the groups that a row shares with another. Groups of this row alone follow it,
// however wide it is. Only its first and its last can be another's too.
template <class T>
PLEAT_HD inline float shared_step(const cuda::LineJob& job, uint64_t row) {
  const uint64_t begin = row * job.length, end = begin + job.length;
  const uint64_t first = begin / kGroupSize, last = (end - 1) / kGroupSize;
  const auto end_of = [&](uint64_t group) {
    const uint64_t whole = (group + 1) * kGroupSize;
    return whole < job.elements ? whole : job.elements;
  };
  float step = 0;
  if (first * kGroupSize < begin || end_of(first) > end) step = step_of<T>(job, first);
  if (last != first && end_of(last) > end) {
    const float other = step_of<T>(job, last);
    step = other > step ? other : step;
  }
  return step;
}

template <class T>
PLEAT_HD inline bool row_looks_flat(const cuda::LineJob& job, uint64_t row) {
  const float step = shared_step<T>(job, row);
  if (step == 0) return false;
  LineRange range;
  PLEAT_UNROLL
  for (unsigned e = 0; e < kProbed; ++e) {  // in four places: neighbours are often alike
    const uint32_t at = e / 4 * (job.length / 4) + e % 4;
    range.add(value_of<T>(job, row * job.length + at));
  }
  return !range.any() || is_flat_row(range.high - range.low, step);
}
template <class T>
PLEAT_HD inline bool row_looks_zero(const cuda::LineJob& job, uint64_t row) {
  const uint64_t begin = row * job.length;
  if (!(value_of<T>(job, begin + job.length - 1) == 0.0f)) return false;  // nearly always
  for (unsigned e = 0; e < kProbed && e < job.length; ++e)
    if (!(value_of<T>(job, begin + e) == 0.0f)) return false;
  return true;
}

// Writes the marks of rows [32 word, 32 word + 32). Returns how many of them have to be kept.
template <class T, class Warp>
PLEAT_HD inline unsigned look_at_rows(Warp& warp, const cuda::LineJob& job, uint32_t word) {
  const LineShape shape = LineShape::of<T>(job);
  const uint64_t first = uint64_t{word} * 32;
  const bool judged = static_cast<Look>(job.look) == Look::kRows && job.length >= kShortestLine;
  const uint32_t like_zero = warp.ballot([&](unsigned lane) {
    return first + lane < shape.rows && row_looks_zero<T>(job, first + lane);
  });
  const uint32_t like_flat = !judged ? 0 : warp.ballot([&](unsigned lane) {
    return first + lane < shape.rows && row_looks_flat<T>(job, first + lane);
  });
  uint32_t zero = 0, flat = 0;
  for (uint32_t left = like_zero | like_flat; left != 0; left &= left - 1) {
    const unsigned at = lowest_bit(left);
    const uint64_t begin = (first + at) * job.length;
    const auto range_of_every = [&](uint32_t stride) {
      return warp.fold([&](unsigned lane) {
        LineRange part;
        for (uint64_t e = uint64_t{lane} * stride; e < job.length; e += 32 * stride)
          part.add(value_of<T>(job, begin + e));
        return part;
      });
    };
    const float step = (like_flat >> at & 1) != 0 ? shared_step<T>(job, first + at) : 0;
    const auto looks_flat = [&](const LineRange& range) {
      return step != 0 && (!range.any() || is_flat_row(range.high - range.low, step));
    };
    if (job.length >= 2 * kSampled) {
      const LineRange sample = range_of_every(job.length / kSampled);
      if (sample.other && !looks_flat(sample)) continue;
    }
    const LineRange range = range_of_every(1);
    if (!range.other)
      zero |= 1u << at;
    else if (range.any() && looks_flat(range))
      flat |= 1u << at;
  }
  uint8_t* const section = static_cast<uint8_t*>(job.section);
  warp.once([&] {
    reinterpret_cast<Stored32*>(section + shape.zero_at())[word] = zero;
    reinterpret_cast<Stored32*>(section + shape.flat_at())[word] = flat;
  });
  return count_bits(flat);
}

}  // namespace
}  // namespace pleat::compress

// The section of the lines of a span that come back exact, and the marks and ranges of lines.
//
// A section: LineHead; a bit for each line of zeros, padded to 64 bytes; a bit for each line that
// is kept, likewise; the numbers of the kept lines, ascending, likewise; their elements.
#pragma once

#include "compress/device/block_core.h"
#include "compress/grouped/step_math.h"
#include "compress/lines/lines.h"
#include "compress/rotated/scaled_math.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kProbed = 16;       // elements of a row that are looked at first
inline constexpr unsigned kSampledRows = 64;  // likewise of a column
inline constexpr unsigned kSampled = 128;  // elements over a row that are looked at before all are
inline constexpr unsigned kWordsPerLineTile = 8;      // of 32 rows: one for each warp
inline constexpr unsigned kWordsPerRestoreTile = 64;  // likewise, eight for each warp
inline constexpr uint32_t kLineMagic = 0x454E'494C;   // "LINE"

struct LineHead {
  uint32_t magic;
  uint32_t kept;  // lines whose elements are here
  uint64_t elements;
  uint32_t length;
  uint32_t most;
  uint8_t look;
  uint8_t type;
  uint8_t reserved[38];
};
static_assert(sizeof(LineHead) == 64);

// Floats as unsigned numbers of the same order, for atomic minima and maxima. Never of NaN.
PLEAT_HD inline uint32_t ordered_bits(float value) {
  const uint32_t bits = bits_of(value);
  return (bits & 0x8000'0000u) != 0 ? ~bits : bits | 0x8000'0000u;
}
PLEAT_HD inline float of_ordered_bits(uint32_t bits) {
  return float_of((bits & 0x8000'0000u) != 0 ? bits & 0x7FFF'FFFFu : ~bits);
}

// Order does not matter to these.
PLEAT_HD inline void join_least(uint32_t* all, uint32_t one) {
#if defined(__CUDA_ARCH__)
  atomicMin(all, one);
#else
  *all = one < *all ? one : *all;
#endif
}
PLEAT_HD inline void join_most(uint32_t* all, uint32_t one) {
#if defined(__CUDA_ARCH__)
  atomicMax(all, one);
#else
  *all = one > *all ? one : *all;
#endif
}

// Smallest and largest element; NaN is skipped.
struct LineRange {
  float low = float_of(0x7F80'0000u), high = float_of(0xFF80'0000u);
  bool other = false;  // than zero; NaN is

  PLEAT_HD void add(float value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
    other |= !(value == 0.0f);
  }
  PLEAT_HD void join(const LineRange& with) {  // of the ranges alone
    low = with.low < low ? with.low : low;
    high = with.high > high ? with.high : high;
  }
  PLEAT_HD bool any() const { return low <= high; }
};

// Where the lines of a job are, and the parts of its section and its scratch memory.
struct LineShape {
  uint64_t elements, rows;
  uint32_t length, most;
  uint8_t item;
  bool columns;

  PLEAT_HD LineShape(uint64_t all, uint32_t row, uint32_t room, Look look, unsigned bytes)
      : elements(all),
        rows(all / row),
        length(row),
        most(room),
        item(static_cast<uint8_t>(bytes)),
        columns(look == Look::kColumns) {}
  template <class T>
  PLEAT_HD static LineShape of(const cuda::LineJob& job) {
    return {job.elements, job.length, job.most, static_cast<Look>(job.look),
            sizeof(typename T::Word)};
  }

  PLEAT_HD uint64_t lines() const { return columns ? length : rows; }
  PLEAT_HD uint64_t line_elements() const { return columns ? rows : length; }
  // The element `at` of a line.
  PLEAT_HD uint64_t element(uint64_t line, uint64_t at) const {
    return columns ? at * length + line : line * length + at;
  }
  PLEAT_HD uint32_t words() const { return static_cast<uint32_t>((lines() + 31) / 32); }

  PLEAT_HD uint64_t marks_bytes() const { return round_up_64(uint64_t{words()} * 4); }
  PLEAT_HD uint64_t zero_at() const { return sizeof(LineHead); }
  PLEAT_HD uint64_t flat_at() const { return zero_at() + marks_bytes(); }
  PLEAT_HD uint64_t numbers_at() const { return flat_at() + marks_bytes(); }
  PLEAT_HD uint64_t kept_at() const { return numbers_at() + round_up_64(uint64_t{most} * 4); }
  PLEAT_HD uint64_t section_bytes() const {
    return kept_at() + round_up_64(most * line_elements() * item);
  }

  // Columns are looked at in chunks of rows, few enough that the sums take less memory than an
  // eighth of the elements.
  PLEAT_HD uint32_t chunks() const {
    const uint64_t by_groups = elements / (64 * kGroupSize), by_rows = rows / 16;
    const uint64_t most_chunks = by_groups < by_rows ? by_groups : by_rows;
    return static_cast<uint32_t>(most_chunks < 1 ? 1 : most_chunks < 128 ? most_chunks : 128);
  }
  PLEAT_HD uint64_t chunk_begin(uint32_t chunk) const { return rows * chunk / chunks(); }
  PLEAT_HD uint64_t squares_at() const { return uint64_t{chunks()} * length * 8; }
  PLEAT_HD uint64_t ranges_at() const { return squares_at() + uint64_t{length} * 8; }
  PLEAT_HD uint64_t scratch_bytes() const {
    return round_up_64(ranges_at() + uint64_t{length} * 16);
  }

  PLEAT_HD uint32_t tiles_to_look() const { return chunks() + (length + 255) / 256; }
  PLEAT_HD uint64_t tiles_to_keep() const {
    return columns ? chunks() : (words() + (kWordsPerLineTile - 1)) / kWordsPerLineTile;
  }
  PLEAT_HD uint64_t zero_tiles() const {
    return (words() + (kWordsPerRestoreTile - 1)) / kWordsPerRestoreTile;
  }
  PLEAT_HD uint64_t tiles_to_restore() const {
    return zero_tiles() +
           (most * line_elements() + (cuda::kElementsPerTile - 1)) / cuda::kElementsPerTile;
  }
};

template <class T>
PLEAT_HD inline float value_of(const cuda::LineJob& job, uint64_t element) {
  return T::to_float(static_cast<const typename T::Word*>(job.source)[element]);
}

// The step of a group, 0 where it comes back exact.
template <class T>
PLEAT_HD inline float step_of(const cuda::LineJob& job, uint64_t group) {
  const uint8_t* const metadata = static_cast<const uint8_t*>(job.codes) + 64;
  if (job.transformed != 0)
    return step_of_any_group<Float32>(reinterpret_cast<const Metadata<Float32>*>(metadata)[group],
                                      job.bits, job.scaled != 0);
  return step_of_group<T>(reinterpret_cast<const Metadata<T>*>(metadata)[group]);
}

}  // namespace
}  // namespace pleat::compress

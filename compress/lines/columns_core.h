// Marks the columns of a span that must come back exact, in two launches. The first sums the
// squared steps that each column meets, chunk of rows by chunk, and looks at 64 of its rows; its
// last block knows which columns look flat. The second reads these as a whole.
#pragma once

#include "compress/lines/line_section.h"

namespace pleat::compress {
namespace {

// The range of a column, in scratch memory.
struct ColumnRange {
  uint32_t low, high;  // ordered_bits()
  uint32_t other;      // than zero
  uint32_t looks_flat;
};
PLEAT_HD inline ColumnRange* ranges_of(const cuda::LineJob& job, const LineShape& shape) {
  return reinterpret_cast<ColumnRange*>(static_cast<uint8_t*>(job.scratch) + shape.ranges_at());
}
PLEAT_HD inline double* sums_of(const cuda::LineJob& job) {
  return static_cast<double*>(job.scratch);
}
PLEAT_HD inline double* squares_of(const cuda::LineJob& job, const LineShape& shape) {
  return reinterpret_cast<double*>(static_cast<uint8_t*>(job.scratch) + shape.squares_at());
}
PLEAT_HD inline bool is_flat(const ColumnRange& column, double square) {
  const double low = of_ordered_bits(column.low), high = of_ordered_bits(column.high);
  return is_flat_column(high - low, square);
}

// The sum of the squared steps that a column meets in a chunk of rows.
template <class T>
PLEAT_HD inline void sum_squares(const cuda::LineJob& job, uint32_t chunk, uint32_t column) {
  const LineShape shape = LineShape::of<T>(job);
  const uint32_t length = job.length;
  const uint64_t from = shape.chunk_begin(chunk), to = shape.chunk_begin(chunk + 1);
  double sum = 0;
  if (length <= kGroupSize) {
    for (uint64_t at = from * length; at < to * length;) {
      const uint64_t group = at / kGroupSize;
      const uint64_t whole = (group + 1) * kGroupSize;
      const uint64_t end = whole < to * length ? whole : to * length;
      const uint32_t count = static_cast<uint32_t>(end - at);
      const uint32_t before = static_cast<uint32_t>(at % length);  // column of the first
      const uint32_t until = column >= before ? column - before : column + length - before;
      const uint32_t met = until < count ? (count - 1 - until) / length + 1 : 0;
      sum += square(step_of<T>(job, group)) * met;
      at = end;
    }
  } else {
    for (uint64_t row = from; row < to; ++row)
      sum += square(step_of<T>(job, (row * length + column) / kGroupSize));
  }
  sums_of(job)[uint64_t{chunk} * length + column] = sum;
}

// The range of 64 rows of a column.
template <class T>
PLEAT_HD inline void sample_column(const cuda::LineJob& job, uint32_t column) {
  const LineShape shape = LineShape::of<T>(job);
  const uint64_t samples = shape.rows < kSampledRows ? shape.rows : kSampledRows;
  LineRange range;
  for (uint64_t sample = 0; sample < samples; ++sample)
    range.add(value_of<T>(job, sample * shape.rows / samples * job.length + column));
  ranges_of(job, shape)[column] = {ordered_bits(range.low), ordered_bits(range.high),
                                   range.other ? 1u : 0u, 0};
}

// A tile of the first launch. `thread` of `threads`.
template <class T>
PLEAT_HD inline void look_at_columns(const cuda::LineJob& job, uint32_t tile, uint32_t thread,
                                     uint32_t threads) {
  const LineShape shape = LineShape::of<T>(job);
  if (tile < shape.chunks()) {
    for (uint64_t c = thread; c < job.length; c += threads)
      sum_squares<T>(job, tile, static_cast<uint32_t>(c));
    return;
  }
  const uint64_t first = uint64_t{tile - shape.chunks()} * 256;
  for (uint64_t c = first + thread; c < first + 256 && c < job.length; c += threads)
    sample_column<T>(job, static_cast<uint32_t>(c));
}
// The work of its last block.
template <class T, class Block>
PLEAT_HD inline void finish_looking(Block& block, const cuda::LineJob& job) {
  const LineShape shape = LineShape::of<T>(job);
  block.each(job.length, [&](uint64_t c) {
    double sum = 0;
    for (uint32_t chunk = 0; chunk < shape.chunks(); ++chunk)
      sum += sums_of(job)[uint64_t{chunk} * job.length + c];
    const double mean = sum / static_cast<double>(shape.rows);
    squares_of(job, shape)[c] = mean;
    ColumnRange& range = ranges_of(job, shape)[c];
    range.looks_flat = is_flat(range, mean) ? 1 : 0;
  });
}

// A tile of the second launch: reads a chunk of the columns that look flat. Threads share a row
// where it is short.
template <class T>
PLEAT_HD inline void read_columns(const cuda::LineJob& job, uint32_t chunk, uint32_t thread,
                                  uint32_t threads) {
  const LineShape shape = LineShape::of<T>(job);
  const uint32_t at_once = job.length < threads ? job.length : threads;
  const uint32_t together = threads / at_once;  // rows
  if (thread >= together * at_once) return;
  for (uint64_t c = thread % at_once; c < job.length; c += at_once) {
    ColumnRange& all = ranges_of(job, shape)[c];
    if (all.looks_flat == 0) continue;
    LineRange range;
    for (uint64_t row = shape.chunk_begin(chunk) + thread / at_once;
         row < shape.chunk_begin(chunk + 1); row += together)
      range.add(value_of<T>(job, row * job.length + c));
    join_least(&all.low, ordered_bits(range.low));
    join_most(&all.high, ordered_bits(range.high));
    if (range.other) join_most(&all.other, 1);
  }
}
template <class T, class Block>
PLEAT_HD inline void mark_columns(Block& block, const cuda::LineJob& job) {
  const LineShape shape = LineShape::of<T>(job);
  uint8_t* const section = static_cast<uint8_t*>(job.section);
  block.each(shape.words(), [&](uint64_t word) {
    uint32_t zero = 0, flat = 0;
    for (unsigned at = 0; at < 32 && word * 32 + at < job.length; ++at) {
      const ColumnRange& range = ranges_of(job, shape)[word * 32 + at];
      if (range.looks_flat == 0 || !is_flat(range, squares_of(job, shape)[word * 32 + at]))
        continue;
      (range.other != 0 ? flat : zero) |= 1u << at;
    }
    reinterpret_cast<Stored32*>(section + shape.zero_at())[word] = zero;
    reinterpret_cast<Stored32*>(section + shape.flat_at())[word] = flat;
  });
  block.sync();
}

}  // namespace
}  // namespace pleat::compress

// Finds the lines of a span that must come back exact, keeps them in a section of their own, and
// restores them. "Lines" in compress/cuda/device_asides.h says what for; the conditions are those
// of compress/lines/lines.h and the steps those of the groups that the encode has just written.
// Written against a Block (block_core.h) and a Warp:
//
// - warp.ballot(f): a bit for each lane < 32, f(lane).
// - warp.fold(f): the LineRange of all f(lane).
// - warp.once(f): f() in one lane.
//
// Rows: a warp takes 32 rows and a lane looks at 16 elements of each; of those that look flat the
// warp looks at 128 more, all over the row. It reads those that look flat still as a whole, and
// writes the marks of all 32. Columns take two launches. The first sums the squared steps that each
// column meets, chunk of rows by chunk, beside looking at 64 of its rows; its last block knows
// which columns look flat. The second reads these as a whole. Either way the last block numbers the
// marked lines and copies the first ones, so the section's contents do
// not depend on the order of blocks.
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

// ---- rows ----

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

// ---- columns ----

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

// ---- the end ----

// The work of the last block of a job that keeps lines.
//   any  false: no row is marked, so none is looked for. Columns: true
template <class T, class Block>
PLEAT_HD inline void finish_lines(Block& block, const cuda::LineJob& job, bool any) {
  using Word = typename T::Word;
  LineShape shape = LineShape::of<T>(job);
  uint8_t* const section = static_cast<uint8_t*>(job.section);
  if (shape.columns) mark_columns<T>(block, job);
  auto* const numbers = reinterpret_cast<Stored32*>(section + shape.numbers_at());
  const auto* const flat = reinterpret_cast<const Stored32*>(section + shape.flat_at());
  const uint32_t found =
      any ? block.numbered(
                shape.words(), [&](uint32_t word) { return count_bits(flat[word]); },
                [&](uint32_t word, uint32_t rank) {
                  for (uint32_t left = flat[word]; left != 0 && rank < shape.most;
                       left &= left - 1, ++rank)
                    numbers[rank] = word * 32 + lowest_bit(left);
                })
          : 0;
  block.sync();
  const uint32_t kept = found < shape.most ? found : shape.most;
  const Word* const source = static_cast<const Word*>(job.source);
  Word* const to = reinterpret_cast<Word*>(section + shape.kept_at());
  const uint64_t each = shape.line_elements();
  if (shape.columns) {
    for (uint32_t k = 0; k < kept; ++k)
      block.each(each,
                 [&](uint64_t e) { to[k * each + e] = source[shape.element(numbers[k], e)]; });
  } else {
    block.by_warps(
        kept, [&](uint64_t k) { return uint32_t{numbers[k]}; },
        [&](uint64_t k, uint32_t line, unsigned lane) {
          for (uint64_t e = lane; e < each; e += 32)
            to[k * each + e] = source[shape.element(line, e)];
        });
  }
  block.once([&] {
    LineHead head{};
    head.magic = kLineMagic;
    head.kept = kept;
    head.elements = job.elements;
    head.length = job.length;
    head.most = job.most;
    head.look = job.look;
    head.type = T::kType;
    *reinterpret_cast<LineHead*>(section) = head;
    shape.most = found;
    job.verdict->escapes = 0;
    job.verdict->kept = found;
    job.verdict->payload_bytes = shape.section_bytes();
  });
  block.publish(job.verdict, cuda::Outcome::kDone);
}

// ---- the way back ----

template <class T>
PLEAT_HD inline bool lines_fit(const cuda::LineJob& job) {
  const LineHead& head = *static_cast<const LineHead*>(job.section);
  return head.magic == kLineMagic && head.kept <= job.most && head.elements == job.elements &&
         head.length == job.length && head.most == job.most && head.look == job.look &&
         head.type == T::kType;
}

// A tile of a restore, by warp `warp` of eight and its lanes. False if the section is damaged.
template <class T>
PLEAT_HD inline bool restore_line_tile(const cuda::LineJob& job, uint32_t tile, unsigned warp,
                                       unsigned lane) {
  using Word = typename T::Word;
  const LineShape shape = LineShape::of<T>(job);
  const uint8_t* const section = static_cast<const uint8_t*>(job.section);
  Word* const target = static_cast<Word*>(job.target);
  const uint64_t each = shape.line_elements();
  bool good = true;
  if (tile < shape.zero_tiles()) {
    const auto* const marks = reinterpret_cast<const Stored32*>(section + shape.zero_at());
    for (unsigned n = 0; n < kWordsPerRestoreTile / 8; ++n) {
      const uint64_t word = uint64_t{tile} * kWordsPerRestoreTile + warp * 8 + n;
      if (word >= shape.words()) break;
      for (uint32_t left = marks[word]; left != 0; left &= left - 1) {
        const uint64_t line = word * 32 + lowest_bit(left);
        good &= line < shape.lines();
        for (uint64_t e = lane; e < each && line < shape.lines(); e += 32)
          target[shape.element(line, e)] = 0;
      }
    }
    return good;
  }
  const uint64_t first = (tile - shape.zero_tiles()) * cuda::kElementsPerTile;
  const uint64_t end = static_cast<const LineHead*>(job.section)->kept * each;
  const auto* const numbers = reinterpret_cast<const Stored32*>(section + shape.numbers_at());
  const Word* const from = reinterpret_cast<const Word*>(section + shape.kept_at());
  for (unsigned n = 0; n < cuda::kElementsPerTile; n += 256) {
    const uint64_t i = first + n + warp * 32 + lane;
    if (i >= end) break;
    const uint64_t k = i / each, line = numbers[k];
    good &= line < shape.lines();
    if (line < shape.lines()) target[shape.element(line, i - k * each)] = from[i];
  }
  return good;
}

}  // namespace
}  // namespace pleat::compress

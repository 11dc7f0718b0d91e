#include "compress/block/exact_lines.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "compress/group_math.h"

namespace pleat::compress::block {
namespace {

using compress::ElementType;

constexpr std::size_t kGroup = 256;
constexpr std::size_t kProbe = 16;  // elements of a row
constexpr std::size_t kManyRows = 1024, kProbeEvery = 8;
constexpr std::size_t kSamples = 64;  // rows of a matrix whose columns are looked at
constexpr std::size_t kMostLines = std::size_t{1} << 31;
constexpr float kSteps =
    4;  // that a line must span at least; the noise of Gaussian data is then a third

struct Float32 {
  const float* data;
  float operator[](std::size_t i) const noexcept { return data[i]; }
};
struct BFloat16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(data[i]) << 16);
  }
};
struct Float16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept { return compress::float_of_half(data[i]); }
};

// Loads four values. A minimum or maximum with them as first operand skips NaN.
__m128 four(const Float32& values, std::size_t i) noexcept { return _mm_loadu_ps(values.data + i); }
__m128 four(const BFloat16& values, std::size_t i) noexcept {
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(values.data + i));
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words));
}
__m128 four(const Float16& values, std::size_t i) noexcept {
  return _mm_setr_ps(values[i], values[i + 1], values[i + 2], values[i + 3]);
}

// Largest minus smallest of [begin, end). Infinities make it infinite or NaN; NaN is skipped.
template <class Values>
float range_of(const Values& values, std::size_t begin, std::size_t end) noexcept {
  float low = values[begin];
  float high = low;
  std::size_t i = begin + 1;
  if (end - begin >= 16) {
    __m128 lows = four(values, begin);
    __m128 highs = lows;
    for (i = begin + 4; i + 4 <= end; i += 4) {
      const __m128 v = four(values, i);
      lows = _mm_min_ps(v, lows);
      highs = _mm_max_ps(v, highs);
    }
    alignas(16) std::array<float, 4> least, most;
    _mm_store_ps(least.data(), lows);
    _mm_store_ps(most.data(), highs);
    low = least[0];
    high = most[0];
    for (std::size_t lane = 1; lane < 4; ++lane) {
      low = least[lane] < low ? least[lane] : low;
      high = most[lane] > high ? most[lane] : high;
    }
  }
  for (; i < end; ++i) {
    const float value = values[i];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return high - low;
}

constexpr float levels(std::uint8_t bits) noexcept { return static_cast<float>((1u << bits) - 1); }

enum class Mark : std::uint8_t {
  kFine,
  kCoarse,  // flat at the width asked for
  kFlat,    // flat at 8 bits, too
  kZero,
};

// The mark of a line (not of zeros) that spans `range`. `steps`: the range it must span, times the
// levels of its width.
Mark mark_of(float range, float steps, std::uint8_t bits) noexcept {
  return levels(8) * range < steps      ? Mark::kFlat
         : levels(bits) * range < steps ? Mark::kCoarse
                                        : Mark::kFine;
}

// The lines that are not fine. Allocates only when there is one.
class Marks {
 public:
  explicit Marks(std::size_t lines) : lines_(lines) {}

  void raise(std::size_t line, Mark mark) {
    if (mark == Mark::kFine) {
      return;
    }
    if (marks_.empty()) {
      marks_.resize(lines_, Mark::kFine);
    }
    marks_[line] = std::max(marks_[line], mark);
  }
  [[nodiscard]] bool zero(std::size_t line) const noexcept {
    return !marks_.empty() && marks_[line] == Mark::kZero;
  }

  // Each line has `line_bytes` bytes; all lines together have `elements` elements.
  [[nodiscard]] LinePlan plan(std::uint8_t bits, std::size_t elements,
                              std::size_t line_bytes) const {
    LinePlan plan{bits, {}};
    const auto of = [&](Mark mark) {
      return static_cast<std::size_t>(std::count(marks_.begin(), marks_.end(), mark));
    };
    const std::size_t coarse = of(Mark::kCoarse);
    if (coarse != 0 && elements < elements * bits / 8 + coarse * line_bytes) {
      plan.bits = 8;
    }
    for (std::size_t line = 0; line < marks_.size(); ++line) {
      const Mark mark = marks_[line];
      if (mark == Mark::kFine || (mark == Mark::kCoarse && plan.bits == 8)) {
        continue;
      }
      const bool zero = mark == Mark::kZero;
      if (!plan.exact.empty() && plan.exact.back().first + plan.exact.back().count == line &&
          plan.exact.back().zero == zero) {
        ++plan.exact.back().count;
      } else {
        plan.exact.push_back({static_cast<std::uint32_t>(line), 1, zero});
      }
    }
    return plan;
  }

 private:
  std::size_t lines_;
  std::vector<Mark> marks_;
};

template <class Values>
bool is_zero(const Values& values, std::size_t begin, std::size_t end) noexcept {
  while (end > begin) {
    if (!(values[--end] == 0.0f)) {  // nearly always the first
      return false;
    }
  }
  return true;
}

template <class Values>
void mark_zero_rows(const Values& values, std::size_t rows, std::size_t row, Marks& marks) {
  const auto zero = [&](std::size_t r) { return is_zero(values, r * row, (r + 1) * row); };
  // Looking at every row would take 1 % of a step of a model of width 128. Padding covers many
  // rows, so samples find it.
  if (rows >= kManyRows) {
    std::size_t probed = 0;
    while (probed < rows && !zero(probed)) {
      probed += kProbeEvery;
    }
    if (probed >= rows && !zero(rows - 1)) {
      return;
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    if (zero(r)) {
      marks.raise(r, Mark::kZero);
    }
  }
}

template <class Values>
void mark_flat_rows(const Values& values, std::size_t elements, std::size_t row, std::uint8_t bits,
                    Marks& marks) {
  std::size_t probed = elements;  // row: the last row of a group is the first of the next
  float probe = 0;
  for (std::size_t begin = 0; begin < elements; begin += kGroup) {
    const std::size_t end = std::min(elements, begin + kGroup);
    const std::size_t first = begin / row;
    const std::size_t last = (end - 1) / row;
    if (first == last) {
      continue;
    }
    float least = std::numeric_limits<float>::infinity();
    float most = 0;
    for (std::size_t r = first; r <= last; ++r) {
      if (!marks.zero(r)) {
        probe = probed == r ? probe
                            : range_of(values, r * row, std::min((r + 1) * row, r * row + kProbe));
        probed = r;
        least = std::min(least, probe);
        most = std::max(most, probe);
      }
    }
    if (levels(bits) * least >= kSteps * most) {
      continue;
    }
    const float steps = kSteps * range_of(values, begin, end);
    if (!std::isfinite(steps)) {
      continue;  // such a group is kept as it is
    }
    for (std::size_t r = first; r <= last; ++r) {
      if (marks.zero(r)) {
        continue;
      }
      const float range = range_of(values, r * row, (r + 1) * row);
      const bool zero = range == 0 && is_zero(values, r * row, (r + 1) * row);
      marks.raise(r, zero ? Mark::kZero : mark_of(range, steps, bits));
    }
  }
}

// Judges the columns of a matrix. Groups run along its rows, so a column is in as many groups as
// there are rows, always with the same neighbours. Its range is compared with the root mean square
// of the ranges of its groups.
template <class Values>
void mark_flat_columns(const Values& values, std::size_t rows, std::size_t columns,
                       std::uint8_t bits, Marks& marks) {
  const std::size_t elements = rows * columns;
  const std::size_t samples = std::min(rows, kSamples);
  const std::size_t blocks = (columns + kGroup - 1) / kGroup;  // of columns
  std::vector<double> squares(blocks);
  std::vector<std::uint32_t> seen(blocks);
  std::vector<float> low(columns, std::numeric_limits<float>::infinity());
  std::vector<float> high(columns, -std::numeric_limits<float>::infinity());
  const auto add_row = [&](std::size_t r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const float value = values[r * columns + c];
      low[c] = value < low[c] ? value : low[c];
      high[c] = value > high[c] ? value : high[c];
    }
  };
  for (std::size_t sample = 0; sample < samples; ++sample) {
    const std::size_t row = sample * rows / samples;
    add_row(row);
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin =
          (row * columns + block * kGroup) / kGroup * kGroup;  // group of its first column
      const float range = range_of(values, begin, std::min(elements, begin + kGroup));
      if (std::isfinite(range)) {
        squares[block] += static_cast<double>(range) * range;
        ++seen[block];
      }
    }
  }
  const auto mark_column = [&](std::size_t c) {
    // Unless rows are whole groups, a block's last columns lie in the group of the next block's
    // first column.
    const std::size_t block = c / kGroup;
    const std::size_t next = columns % kGroup == 0 ? block : std::min(block + 1, blocks - 1);
    double most = 0;
    for (const std::size_t b : {block, next}) {
      most = std::max(most, seen[b] != 0 ? squares[b] / seen[b] : 0.0);
    }
    return mark_of(high[c] - low[c], static_cast<float>(kSteps * std::sqrt(most)), bits);
  };
  bool any = false;
  for (std::size_t c = 0; c < columns && !any; ++c) {
    any = mark_column(c) != Mark::kFine;
  }
  if (!any) {
    return;
  }
  std::vector<std::uint8_t> other(columns);  // than zero
  for (std::size_t r = 0; r < rows; ++r) {
    add_row(r);
    for (std::size_t c = 0; c < columns; ++c) {
      other[c] = static_cast<std::uint8_t>(other[c] | !(values[r * columns + c] == 0.0f));
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    marks.raise(c, other[c] == 0 ? Mark::kZero : mark_column(c));
  }
}

template <class Values>
LinePlan plan_of(const Values& values, std::size_t elements, std::size_t item, Lines lines,
                 std::uint8_t bits) {
  const std::size_t length = lines.length;
  const std::size_t rows = elements / length;
  if (lines.look == Look::kColumns) {
    Marks marks(length);
    if (rows >= kShortestLine) {
      mark_flat_columns(values, rows, length, bits, marks);
    }
    return marks.plan(bits, elements, rows * item);
  }
  if (length % kGroup == 0 || rows >= kMostLines) {
    return {bits, {}};
  }
  Marks marks(rows);
  mark_zero_rows(values, rows, length, marks);
  if (lines.look == Look::kRows && length >= kShortestLine) {
    mark_flat_rows(values, elements, length, bits, marks);
  }
  return marks.plan(bits, elements, length * item);
}

}  // namespace

LinePlan plan_lines(const void* data, std::size_t elements, ElementType type, Lines lines,
                    std::uint8_t bits) {
  if (lines.look == Look::kNone || lines.length < 2 || elements % lines.length != 0 || bits == 0) {
    return {bits, {}};
  }
  const std::size_t item = compress::element_size(type);
  switch (type) {
    case ElementType::kFloat32:
      return plan_of(Float32{static_cast<const float*>(data)}, elements, item, lines, bits);
    case ElementType::kBFloat16:
      return plan_of(BFloat16{static_cast<const std::uint16_t*>(data)}, elements, item, lines,
                     bits);
    case ElementType::kFloat16:
      return plan_of(Float16{static_cast<const std::uint16_t*>(data)}, elements, item, lines, bits);
    default:
      return {bits, {}};
  }
}

}  // namespace pleat::compress::block

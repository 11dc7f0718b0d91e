#include "compress/lines/exact_lines.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "compress/lines/line_values.h"
#include "compress/parts.h"

namespace pleat::compress::block {
namespace {

constexpr std::size_t kProbe = 16;       // elements of a row
constexpr std::size_t kSamples = 64;     // rows of a matrix whose columns are looked at
constexpr std::size_t kFewSamples = 16;  // rows that tell whether a column is even
constexpr std::size_t kAhead = 8;        // rows
constexpr std::size_t kRowsAtOnce = 256;

// True if the elements from `begin` on, of which there are kProbe or more, span `range` by what
// four sets of four among the first show; false says nothing.
template <class Values>
bool surely_spans(const Values& values, std::size_t begin, float range) noexcept {
  __m128 lows = four(values, begin);
  __m128 highs = lows;
  for (std::size_t i = 4; i < kProbe; i += 4) {
    const __m128 v = four(values, begin + i);
    lows = _mm_min_ps(v, lows);
    highs = _mm_max_ps(v, highs);
  }
  return _mm_movemask_ps(_mm_cmpge_ps(_mm_sub_ps(highs, lows), _mm_set1_ps(range))) != 0;
}

// Lines by number, as runs of those that are zero and those that are not.
void append_line(std::vector<LineRun>& runs, std::size_t line, bool zero) {
  if (!runs.empty() && runs.back().first + runs.back().count == line &&
      (runs.back().zero != 0) == zero)
    ++runs.back().count;
  else
    runs.push_back({static_cast<std::uint32_t>(line), 1, zero ? 1u : 0u});
}

// Which lines of an ascending walk a plan has.
class Known {
 public:
  explicit Known(const std::vector<LineRun>& runs) noexcept
      : at_(runs.data()), end_(runs.data() + runs.size()) {}
  // `line` never falls.
  [[nodiscard]] const LineRun* find(std::size_t line) noexcept {
    while (at_ != end_ && at_->first + std::size_t{at_->count} <= line) ++at_;
    return at_ != end_ && at_->first <= line ? at_ : nullptr;
  }

 private:
  const LineRun *at_, *end_;
};

template <class Values>
bool is_zero(const Values& values, std::size_t begin, std::size_t end) noexcept {
  while (end > begin)
    if (!(values[--end] == 0.0f))  // nearly always the first
      return false;
  return true;
}

// Calls visit(row) for the flat ones among rows [from, to) that `known` lacks, in order, until it
// returns false. Rows of zeros are none: their parts come back exact.
template <class Values, class Visit>
void find_flat_rows(const Values& values, std::size_t elements, std::size_t row, std::size_t from,
                    std::size_t to, const std::vector<LineRun>& known,
                    const std::vector<float>& steps, const Visit& visit) {
  Known exact(known);
  if (from == to) return;
  // Nearly all rows are told from one bound for all groups of a few hundred rows.
  float widest = 0;
  std::size_t until = from;
  for (std::size_t r = from; r < to; ++r) {
    const std::size_t begin = r * row, end = begin + row;
    _mm_prefetch(reinterpret_cast<const char*>(values.data + begin + kAhead * row), _MM_HINT_T0);
    if (r == until) {
      until = std::min(to, until + kRowsAtOnce);
      widest = *std::max_element(steps.data() + begin / kGroup,
                                 steps.data() + (until * row - 1) / kGroup + 1);
    }
    if (surely_spans(values, begin, kFlatBelowSteps * widest)) continue;
    const std::size_t first = begin / kGroup, last = (end - 1) / kGroup;
    // Groups of this row alone follow it, however wide it is. Only its first and its last can be
    // another's too.
    float step = 0;
    if (first * kGroup < begin || std::min(elements, (first + 1) * kGroup) > end)
      step = steps[first];
    if (last != first && std::min(elements, (last + 1) * kGroup) > end)
      step = std::max(step, steps[last]);
    const float least = kFlatBelowSteps * step;
    if (step == 0 || surely_spans(values, begin, least) || exact.find(r) != nullptr ||
        !(range_of(values, begin, end) < least) || is_zero(values, begin, end))
      continue;
    if (!visit(r)) return;
  }
}

// The mean square of the steps that the elements of each column meet.
std::vector<double> squared_steps(std::size_t rows, std::size_t columns,
                                  const std::vector<float>& steps) {
  // Sums by their differences from column to column; a difference that whole rows meet is summed
  // once.
  std::vector<double> sums(columns + 1);
  double all = 0;
  for (std::size_t g = 0; g < steps.size(); ++g) {
    const double square = static_cast<double>(steps[g]) * steps[g];
    if (square == 0) continue;
    const std::size_t begin = g * kGroup, end = std::min(rows * columns, begin + kGroup);
    for (std::size_t at = begin; at < end;) {
      const std::size_t column = at % columns;
      if (column == 0 && end - at >= columns) {
        const std::size_t whole = (end - at) / columns;
        all += square * static_cast<double>(whole);
        at += whole * columns;
        continue;
      }
      const std::size_t next = std::min(end, at - column + columns);
      sums[column] += square;
      sums[column + (next - at)] -= square;
      at = next;
    }
  }
  double sum = all;
  for (double& at : sums) {
    sum += at;
    at = std::max(sum, 0.0) / static_cast<double>(rows);
  }
  sums.pop_back();
  return sums;
}

// The ranges of columns over some rows.
struct ColumnRanges {
  std::vector<float> low, high;

  explicit ColumnRanges(std::size_t columns)
      : low(columns, std::numeric_limits<float>::infinity()),
        high(columns, -std::numeric_limits<float>::infinity()) {}

  template <class Values>
  void add_row(const Values& values, std::size_t row) noexcept {
    const std::size_t columns = low.size();
    const std::size_t begin = row * columns;
    std::size_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      const __m128 v = four(values, begin + c);
      _mm_storeu_ps(&low[c], _mm_min_ps(v, _mm_loadu_ps(&low[c])));
      _mm_storeu_ps(&high[c], _mm_max_ps(v, _mm_loadu_ps(&high[c])));
    }
    for (; c < columns; ++c) {
      const float value = values[begin + c];
      low[c] = value < low[c] ? value : low[c];
      high[c] = value > high[c] ? value : high[c];
    }
  }
  template <class Values>
  void add_samples(const Values& values, std::size_t rows, std::size_t most) noexcept {
    const std::size_t samples = std::min(rows, most);
    for (std::size_t sample = 0; sample < samples; ++sample)
      add_row(values, sample * rows / samples);
  }
  [[nodiscard]] bool is_flat(std::size_t column, double squared_step) const noexcept {
    const double range = static_cast<double>(high[column]) - low[column];
    return is_flat_column(range, squared_step);
  }
};

// As find_flat_rows(), for the columns of a matrix. The visitor is told if a column is zero.
template <class Values, class Visit>
void find_flat_columns(const Values& values, std::size_t rows, std::size_t columns,
                       const std::vector<float>& steps, const Visit& visit) {
  const std::vector<double> squares = squared_steps(rows, columns, steps);
  ColumnRanges ranges(columns);
  ranges.add_samples(values, rows, kSamples);
  const auto is_flat = [&](std::size_t c) { return ranges.is_flat(c, squares[c]); };
  bool any = false;
  for (std::size_t c = 0; c < columns && !any; ++c) any = is_flat(c);
  if (!any) return;
  std::vector<std::uint8_t> other(columns);  // than zero
  for (std::size_t r = 0; r < rows; ++r) {
    ranges.add_row(values, r);
    for (std::size_t c = 0; c < columns; ++c)
      other[c] = static_cast<std::uint8_t>(other[c] | !(values[r * columns + c] == 0.0f));
  }
  for (std::size_t c = 0; c < columns; ++c)
    if (is_flat(c) && !visit(c, other[c] == 0)) return;
}

}  // namespace

bool may_be_flat(std::size_t elements, ElementType type, Lines lines) noexcept {
  return has_judged_rows(elements, type, lines) || has_judged_columns(elements, type, lines);
}

bool has_even_column(const void* data, std::size_t elements, ElementType type,
                     Lines lines) noexcept {
  if (!has_judged_columns(elements, type, lines)) return false;
  const std::size_t columns = lines.length, rows = elements / columns;
  return with_values(data, type, [&](const auto& values) {
    for (std::size_t c = 0; c < columns; ++c) {
      std::size_t sample = 1;
      while (sample < kFewSamples && values[sample * rows / kFewSamples * columns + c] == values[c])
        ++sample;
      if (sample == kFewSamples) return true;
    }
    return false;
  });
}

LinePlan flat_lines(const void* data, std::size_t elements, ElementType type, Lines lines,
                    const std::vector<float>& steps) {
  LinePlan plan;
  if (!may_be_flat(elements, type, lines)) return plan;
  const std::size_t length = lines.length, rows = elements / length;
  with_values(data, type, [&](const auto& values) {
    if (lines.look == Look::kColumns) {
      find_flat_columns(values, rows, length, steps, [&](std::size_t c, bool zero) {
        append_line(plan.exact, c, zero);
        return true;
      });
      return;
    }
    find_flat_rows(values, elements, length, 0, rows, {}, steps, [&](std::size_t r) {
      append_line(plan.exact, r, false);
      return true;
    });
  });
  return plan;
}

bool no_other_is_flat(const LinePlan& plan, const void* data, std::size_t elements,
                      ElementType type, Lines lines, const std::vector<float>& steps,
                      const compress::Executor& executor) {
  if (!may_be_flat(elements, type, lines)) return true;
  const std::size_t length = lines.length, rows = elements / length;
  return with_values(data, type, [&](const auto& values) {
    if (lines.look == Look::kColumns) {
      Known known(plan.exact);
      bool none = true;
      find_flat_columns(values, rows, length, steps,
                        [&](std::size_t c, bool) { return none = known.find(c) != nullptr; });
      return none;
    }
    std::atomic<bool> none{true};
    compress::run_parts(executor, rows, std::max<std::size_t>(1, kGrainElements / length),
                        [&](std::size_t begin, std::size_t end) {
                          find_flat_rows(values, elements, length, begin, end, plan.exact, steps,
                                         [&](std::size_t) {
                                           none.store(false, std::memory_order_relaxed);
                                           return false;
                                         });
                        });
    return none.load();
  });
}

}  // namespace pleat::compress::block

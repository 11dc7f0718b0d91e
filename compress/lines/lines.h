// How a tensor is cut into lines, and when a line is flat. exact_lines.h gives the purpose. Both
// the CPU and the CUDA kernels go by these conditions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/host_device.h"
#include "compress/types.h"

namespace pleat::compress {

inline constexpr std::uint32_t kShortestLine = 16;  // shorter lines are often flat by chance
// A line that spans less than this many steps of a group that it shares is flat. At four the noise
// of Gaussian data is a third of its deviation.
inline constexpr float kFlatBelowSteps = 4;

enum class Look : std::uint8_t {
  kNone,
  kParts,  // no line comes back exact, but parts of rows have exponents (exponents.h)
  kRows,   // likewise, and flat rows come back exact
  kColumns,
};

// How a tensor is cut into lines.
struct Lines {
  Look look = Look::kNone;
  std::uint32_t length = 0;  // elements of a row, that is, the number of columns

  [[nodiscard]] bool operator==(const Lines&) const = default;
};

// True if the tensor has lines at all.
[[nodiscard]] constexpr bool has_lines(std::size_t elements, ElementType type,
                                       Lines lines) noexcept {
  constexpr std::size_t kMostLines = std::size_t{1} << 31;
  return is_floating(type) && lines.look != Look::kNone && lines.length >= 2 &&
         elements % lines.length == 0 && elements / lines.length < kMostLines;
}
// Rows that are whole groups are not judged: their noise follows their own range.
[[nodiscard]] constexpr bool has_judged_rows(std::size_t elements, ElementType type,
                                             Lines lines) noexcept {
  return has_lines(elements, type, lines) && lines.look == Look::kRows &&
         lines.length % kGroupElements != 0 && lines.length >= kShortestLine;
}
[[nodiscard]] constexpr bool has_judged_columns(std::size_t elements, ElementType type,
                                                Lines lines) noexcept {
  return has_lines(elements, type, lines) && lines.look == Look::kColumns &&
         elements / lines.length >= kShortestLine;
}
// False if no line of the tensor could have to come back exact.
[[nodiscard]] constexpr bool has_lines_to_keep(std::size_t elements, ElementType type,
                                               Lines lines) noexcept {
  return has_judged_rows(elements, type, lines) || has_judged_columns(elements, type, lines);
}

// Whether a line of `range` is flat beside a step.
PLEAT_HD inline bool is_flat_row(float range, float step) { return range < kFlatBelowSteps * step; }
// Of a column, beside the mean square of the steps that its elements meet: the sums down a column
// average their noise.
PLEAT_HD inline bool is_flat_column(double range, double squared_step) {
  return range * range < kFlatBelowSteps * kFlatBelowSteps * squared_step;
}

}  // namespace pleat::compress

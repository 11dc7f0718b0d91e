// A normalisation divides a row by its deviation, and its gradient multiplies the noise of the
// saved input by the inverse. A row that shares quantisation groups with rows of much larger values
// gets their noise; for a row of zeros (padding) that is 300 times the gradient. The same holds for
// columns where a batch normalisation takes its statistics down a matrix, or down an image whose
// channels come last. This file finds such lines; line_patch.h keeps them beside the codes.
// Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/codec.h"
#include "compress/lines/lines.h"

namespace pleat::compress::block {

using compress::kFlatBelowSteps;
using compress::kShortestLine;
using compress::Lines;
using compress::Look;

struct LineRun {
  std::uint32_t first;
  std::uint32_t count : 31;
  std::uint32_t zero : 1;  // only zeros, so the bytes need not be kept

  [[nodiscard]] bool operator==(const LineRun&) const = default;
};

struct LinePlan {
  std::vector<LineRun> exact;  // ascending, disjoint
};

// Whether lines may be flat, that is, whether they are judged and share groups.
[[nodiscard]] bool may_be_flat(std::size_t elements, compress::ElementType type,
                               Lines lines) noexcept;

// Whether some column is the same in each of 16 rows: flat_lines() is then worth its time.
[[nodiscard]] bool has_even_column(const void* data, std::size_t elements,
                                   compress::ElementType type, Lines lines) noexcept;

// The lines that must come back exact: flat rows, but those of zeros, which their parts restore;
// flat columns. `steps`: of each group of 256 elements, 0 where it comes back exact. A column is
// held against the root mean square of the steps that its elements meet: the sums down a column
// average their noise. NaN counts for no range. Throws std::bad_alloc.
[[nodiscard]] LinePlan flat_lines(const void* data, std::size_t elements,
                                  compress::ElementType type, Lines lines,
                                  const std::vector<float>& steps);
// True if flat_lines() would find no line beyond those of `plan`. Reads 16 elements of a row, 64
// rows for columns, and more only of lines that look flat. Throws std::bad_alloc.
[[nodiscard]] bool no_other_is_flat(const LinePlan& plan, const void* data, std::size_t elements,
                                    compress::ElementType type, Lines lines,
                                    const std::vector<float>& steps,
                                    const compress::Executor& executor);

// Largest minus smallest finite element of a group. In a double, because a float may not hold it.
struct GroupRange {
  double range = 0;
  bool wide = false;  // some element is not finite, or no float holds the range

  // The step at `bits`, or a little more; 0 where the group comes back exact: if no step may be
  // wider than `widest`, or if it is a wide group and there are none at this width.
  [[nodiscard]] float step(compress::ElementType type, unsigned bits, float widest) const noexcept;
};
// Of each group. Throws std::bad_alloc.
[[nodiscard]] std::vector<GroupRange> group_ranges(const void* data, std::size_t elements,
                                                   compress::ElementType type,
                                                   const compress::Executor& executor);

}  // namespace pleat::compress::block

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

#include "compress/compress.h"

namespace pleat::compress::block {

inline constexpr std::uint32_t kShortestLine = 16;  // shorter lines are often flat by chance

enum class Look : std::uint8_t {
  kNone,
  kZeroRows,  // only rows of zeros, as padding and masks leave
  kRows,
  kColumns,
};

// How a tensor is cut into lines.
struct Lines {
  Look look = Look::kNone;
  std::uint32_t length = 0;  // elements of a row, that is, the number of columns

  [[nodiscard]] bool operator==(const Lines&) const = default;
};

struct LineRun {
  std::uint32_t first;
  std::uint32_t count : 31;
  std::uint32_t zero : 1;  // only zeros, so the bytes need not be kept

  [[nodiscard]] bool operator==(const LineRun&) const = default;
};

struct LinePlan {
  std::uint8_t bits = 0;
  std::vector<LineRun> exact;  // ascending, disjoint
};

// The lines of `data` that must come back exact at a width of `bits` (1 to 8). These are lines
// whose range is below four quantisation steps of a group they share, and lines of zeros; of 1024
// rows or more only every eighth is sampled at first, so some rows of zeros may be missed. The plan
// raises the width to 8 where that takes less memory in all. Lines of fewer than kShortestLine
// elements are not judged. Types other than fp32, bf16 and fp16 have no exact lines. Throws
// std::bad_alloc.
[[nodiscard]] LinePlan plan_lines(const void* data, std::size_t elements,
                                  compress::ElementType type, Lines lines, std::uint8_t bits);

}  // namespace pleat::compress::block

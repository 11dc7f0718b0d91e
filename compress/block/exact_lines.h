// A normalisation divides by how far a row deviates from its mean, and its gradient multiplies the
// noise of the saved input by the inverse. A row that shares quantisation groups with others of
// much larger values gets their noise: for one of zeros (padding) that is 300 times the gradient.
// The same of columns, where a batch normalisation takes its statistics down a matrix or an image
// whose channels come last. Such lines are found here; line_patch.h keeps them beside the codes.
// Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/compress.h"

namespace pleat::compress::block {

inline constexpr std::uint32_t kShortestLine = 16;  // of a few elements many are flat by chance

enum class Look : std::uint8_t {
  kNone,
  kZeroRows,  // only for rows of zeros, which padding and masks leave
  kRows,
  kColumns,
};

// How a tensor is cut into lines.
struct Lines {
  Look look = Look::kNone;
  std::uint32_t length = 0;  // elements of a row: the number of columns, if those are looked at

  [[nodiscard]] bool operator==(const Lines&) const = default;
};

struct LineRun {
  std::uint32_t first;
  std::uint32_t count : 31;
  std::uint32_t zero : 1;  // nothing but zeros: need not be kept

  [[nodiscard]] bool operator==(const LineRun&) const = default;
};

struct LinePlan {
  std::uint8_t bits = 0;
  std::vector<LineRun> exact;  // ascending, disjoint
};

// Which lines of `data` must come back exact at a width of `bits` (1 to 8), or at 8 where that
// takes less in all: lines whose range is below four quantisation steps of a group they share, and
// rows of zeros found by sampling (of 1024 rows or more every eighth is looked at first). Lines of
// less than kShortestLine elements are not judged. fp32, bf16, fp16; others: none. Throws
// std::bad_alloc.
[[nodiscard]] LinePlan plan_lines(const void* data, std::size_t elements,
                                  compress::ElementType type, Lines lines, std::uint8_t bits);

}  // namespace pleat::compress::block

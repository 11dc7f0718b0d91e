// Powers of two that elements are multiplied by before they are quantised, and divided by after.
// Small rows and small channels then have as many steps as the others. docs/payload_format.md,
// "Exponents". Included by the CPU paths and by the CUDA kernels.
//
// A *part* is the run of one row within a group. It has a byte of its own: the exponent that brings
// its largest magnitude to that of the group. A channel has an entry in a table, which is made from
// an older tensor. An element goes by the sum of both, or by 0 if that is negative: no element has
// fewer steps than its group would have without.
#pragma once

#include <stdint.h>

#include "compress/host_device.h"

namespace pleat::compress {

struct Exponents {
  uint32_t row = 0;       // elements of a row; 0: the groups have no exponents
  uint32_t channels = 0;  // of the table; 0: there is none
  uint32_t inner = 1;     // so many elements in a row have one channel
  const int8_t* table = nullptr;

  // False where every group lies in one row, and there is no table.
  [[nodiscard]] PLEAT_HD constexpr bool any() const {
    return row != 0 && inner != 0 && (channels != 0 || row % 256 != 0);
  }
};

inline constexpr int8_t kZeroPart = -128;     // all elements of the part are zeros
inline constexpr int kMostOfPart = 120;       // exponents of parts are from 0 to this
inline constexpr int kLeastOfChannel = -30;   // those of channels from this to 0
inline constexpr uint32_t kFewestOfPart = 8;  // elements of a row that is worth its bytes
inline constexpr uint32_t kElementsOfGroup = 256;

PLEAT_HD constexpr int exponent_of_element(int part, int entry) {
  return part + entry > 0 ? part + entry : 0;
}
// What the parts of a group get whatever their own size: of its largest magnitude and of that times
// the table's powers of two, as the bits of floats, the ratio's nearest power of two. Elements stay
// below 1.5 times the largest, so they are not rounded up where `limit` is nearer.
PLEAT_HD constexpr uint32_t common_exponent(uint32_t largest, uint32_t scaled, uint32_t limit) {
  constexpr uint32_t kHalf = 1u << 22;
  return (largest - scaled + (largest + kHalf <= limit ? kHalf : 0)) >> 23;
}

// Boundaries of rows that lie inside groups, among the first `elements` elements.
PLEAT_HD constexpr uint64_t inner_boundaries(uint32_t row, uint64_t elements) {
  if (elements == 0) return 0;
  const uint32_t power = row & (~row + 1);  // of two, that divides the row
  const uint64_t apart = uint64_t{row} * (power < kElementsOfGroup ? kElementsOfGroup / power : 1);
  return (elements - 1) / row - (elements - 1) / apart;
}

// Bytes of the parts of all groups before `group`, which is not short.
PLEAT_HD constexpr uint64_t parts_before(const Exponents& exponents, uint64_t group) {
  if (!exponents.any()) return 0;
  return group + inner_boundaries(exponents.row, group * kElementsOfGroup);
}
// Of all groups of a span.
PLEAT_HD constexpr uint64_t all_parts(const Exponents& exponents, uint64_t elements) {
  if (!exponents.any()) return 0;
  return (elements + kElementsOfGroup - 1) / kElementsOfGroup +
         inner_boundaries(exponents.row, elements);
}
// Where the table begins in the section of exponents: behind the bytes of parts. Eight entries are
// read at once.
PLEAT_HD constexpr uint64_t table_offset(const Exponents& exponents, uint64_t elements) {
  return (all_parts(exponents, elements) + 7) / 8 * 8;
}
PLEAT_HD constexpr uint64_t exponent_bytes(const Exponents& exponents, uint64_t elements) {
  const uint64_t parts = all_parts(exponents, elements);
  const uint64_t end =
      exponents.channels == 0 ? parts : table_offset(exponents, elements) + exponents.channels;
  return (end + 63) / 64 * 64;
}

}  // namespace pleat::compress

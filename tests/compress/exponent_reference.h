// Exponents by a second route, written from docs/payload_format.md alone: one element after the
// other, in double arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/types.h"

namespace pleat::compress::test {

struct ReferenceExponents {
  std::size_t row = 0, inner = 1;
  std::vector<std::int8_t> table;  // empty: none

  [[nodiscard]] int of_channel(std::size_t element) const {
    return table.empty() ? 0 : table[element / inner % table.size()];
  }
};

// The end of each part of a span, ascending. Groups and rows end parts.
[[nodiscard]] std::vector<std::size_t> part_ends(std::size_t row, std::size_t elements);

struct Raised {
  std::vector<std::int8_t> parts;
  std::vector<unsigned char> elements;  // times their powers of two
};
// `fill_zero`: zeros stand for the elements of zero parts, as in rotated groups. `zeros`: the
// request keeps zeros.
[[nodiscard]] Raised raise_elements(ElementType type, const unsigned char* source,
                                    std::size_t elements, const ReferenceExponents& exponents,
                                    bool fill_zero, bool zeros);
// Divides restored elements, in place.
void lower_elements(ElementType type, const std::vector<std::int8_t>& parts,
                    const ReferenceExponents& exponents, std::size_t elements,
                    unsigned char* restored);

}  // namespace pleat::compress::test

// The content of spans on a GPU when kernels are checked or timed, and the names of their kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/types.h"

namespace pleat::compress::test {

const char* type_name(ElementType type);
const char* transform_name(Transform transform);

void set_float(ElementType type, unsigned char* data, std::size_t e, float value);

// Every kind of group: normal, one-sided, sparse, few values, constant, wide, tiny, NaN and Inf.
std::vector<unsigned char> floats(ElementType type, std::size_t elements, std::uint64_t seed,
                                  bool escapes);
// Without loss in groups: two patterns or one, and few groups that escape.
std::vector<unsigned char> masks(ElementType type, std::size_t elements, std::uint64_t seed);

}  // namespace pleat::compress::test

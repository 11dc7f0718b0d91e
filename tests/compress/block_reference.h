// Blocks restored by a second route, written from docs/payload_format.md alone: one element after
// the other, using only the names of element types from compress/. For tests; throws
// std::runtime_error where a payload violates the document.
#pragma once

#include <cstddef>
#include <vector>

#include "compress/types.h"

namespace pleat::compress::test {

// The block of `bytes` bytes. Not for framed floats and transformed groups.
//   tiled  whether spans of less than 1024 elements were repeated up to 2048
[[nodiscard]] std::vector<unsigned char> reference_block(const std::vector<unsigned char>& payload,
                                                         std::size_t bytes, bool tiled);

}  // namespace pleat::compress::test

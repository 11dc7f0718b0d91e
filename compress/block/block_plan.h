// What one look at the values of a block finds before it is encoded: which lines must come back
// exact, how many bits the block needs, whether it has a short form at all. Torch-free.
#pragma once

#include <cstddef>

#include "compress/block/block_source.h"
#include "compress/block/block_spec.h"

namespace pleat::compress::block {

struct BlockPlan {
  BlockSpec spec;               // as kept: with as many bits as the values need
  LinePlan lines;               // of an only span
  std::size_t patch_bytes = 0;  // that the patch of these lines takes
  std::size_t room = 0;         // bytes that encode_block() needs; 0: keep the block as it is
  bool in_place = false;        // encode_block_in_place() may be tried
  bool tiles = false;           // spans of few elements are repeated: see plan_block()
};

// Looks at the values as far as `spec` asks for it. The plan keeps none of them.
//   copy_raw  (for debugging) a block without a shorter form is stored as it is; lossy spans of
//             fewer than 1024 elements are repeated until they fill a few groups, and cut back when
//             decoded, so that small tensors are really quantised
// Plans a lossless payload if there is no memory for looking, and where the type or the bounds do
// not allow the sides that `spec` asks for. Never throws.
[[nodiscard]] BlockPlan plan_block(const BlockSource& source, const BlockSpec& spec,
                                   bool copy_raw) noexcept;

}  // namespace pleat::compress::block

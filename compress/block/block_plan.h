// What is found out about a block by looking at its values, once, before it is encoded: which of
// its lines must come back exact, how many bits it needs, whether it has a short form at all.
// Torch-free.
#pragma once

#include <cstddef>

#include "compress/block/block_source.h"
#include "compress/block/block_spec.h"

namespace pleat::compress::block {

struct BlockPlan {
  BlockSpec spec;               // with as many bits as the values need
  LinePlan lines;               // of an only span
  std::size_t patch_bytes = 0;  // of these lines
  std::size_t room = 0;         // bytes that encode_block() needs; 0: keep the block as it is
  bool in_place = false;        // encode_block_in_place() may be tried
  bool tiles = false;           // spans of few elements are repeated: see plan_block()
};

// Looks at the values, as far as `spec` asks for it, and takes none into the plan.
//   copy_raw  (for debugging) what has no shorter form is stored as it is; spans of less than 1024
//             elements at one bit or more are repeated until they fill a few groups, and cut again
//             when they are decoded: small tensors see real quantisation.
// Keeps lossless where there is no memory for looking. Never throws.
[[nodiscard]] BlockPlan plan_block(const BlockSource& source, const BlockSpec& spec,
                                   bool copy_raw) noexcept;

}  // namespace pleat::compress::block

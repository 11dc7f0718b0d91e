// Plans the encode of a block from one look at its values. A plan holds the lines that must come
// back exact, the bits that the block needs, and whether it has a short form at all. Torch-free.
#pragma once

#include <cstddef>

#include "compress/block/block_source.h"
#include "compress/block/form_plan.h"
#include "compress/block/scales.h"

namespace pleat::compress::block {

// Without a look the plan is closed: plan_closed_form(). A quick look takes the usual for granted:
// no flat lines but zeros, few groups with too wide a step, as many values near zero as samples
// tell. Encoding says if that does not hold. A thorough look reads all values for what the spec
// asks, twice or more, and is right.
enum class Effort : std::uint8_t { kNone, kQuick, kThorough };

// The groups that a thorough look lets be kept exact because of too wide a step, of each 64.
inline constexpr unsigned kMostEscape64ths = 16;

// `spec` has as many bits as the values need. The room of a closed plan is the size of the payload,
// even if that is more than the block has.
struct BlockPlan : FormPlan {
  std::uint8_t escape_64ths = 1;  // CodecSpec
  LinePlan lines{};               // of an only span
  std::size_t patch_bytes = 0;    // that the patch of these lines takes
  std::size_t room = 0;           // bytes that encode_block() needs; 0: keep the block as it is
  bool in_place = false;          // encode_block_in_place() may be tried
  bool tiles = false;             // spans of few elements are repeated: see plan_block()
  bool checks_lines = false;      // encoding finds out whether other lines are flat
  bool guesses = false;           // a thorough look may find what encoding refuses
  Scales scales{};

  [[nodiscard]] CodecSpec codec() const noexcept {
    CodecSpec codec = spec.codec();
    codec.escape_64ths = escape_64ths;
    codec.compact = !closed;
    codec.any_byte = any_byte;
    codec.force_raw = closed && kind() > FormKind::kLossy && !any_byte;
    codec.zeros = scales.zeros;
    codec.exponents = exponents_of(spec, scales);
    return codec;
  }
};

// Looks at the values as far as `spec` asks for it. The plan keeps none of them.
//   Where more than a 64th of the groups of a thorough look have too wide a step, up to a quarter
//   are kept exact, or the width is raised to 4 or 8 bits: what takes least, exact lines counted.
//   Where neither is enough, the block gets an exact plan.
//   scales    of earlier values of the key; used where may_have_scales()
//   copy_raw  (for debugging) a block without a shorter form is stored as it is; lossy spans of
//             fewer than 1024 elements are repeated until they fill a few groups, and cut back when
//             decoded, so that small tensors are really quantised
// Plans a lossless payload if there is no memory for looking. Never throws.
[[nodiscard]] BlockPlan plan_block(const BlockSource& source, const BlockSpec& spec, bool copy_raw,
                                   Effort effort = Effort::kQuick,
                                   const Executor& executor = serial_executor(),
                                   const Scales& scales = {}) noexcept;

}  // namespace pleat::compress::block

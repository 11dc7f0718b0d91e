// The cost of a block at each width, in bytes of the payload and in squared error. Computed from a
// payload of some width, which is not decoded, or from the values. Torch-free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/block/block_payload.h"
#include "compress/block/block_source.h"
#include "compress/block/block_spec.h"

namespace pleat::compress::block {

// The widths of the codec, ascending.
inline constexpr std::array<std::uint8_t, 6> kCostWidths{1, 2, 3, 4, 6, 8};

// The costs are 0 where the width is not possible.
struct WidthCost {
  std::uint8_t bits = 0;
  // An encode that asks for this width gets it. If not, it gets a wider one or an exact payload, or
  // the block stays as it is: the floor of the spec is higher, too many groups have too wide a step
  // for spec.steps or cannot be coded, or it would save too little.
  bool possible = false;
  std::size_t payload_bytes = 0;
  double squared_error = 0;  // expected, summed over the elements
};
using WidthCosts = std::array<WidthCost, kCostWidths.size()>;

// From a payload that encode_block() made of floats at some width.
//   form, payload  as decode_block() has them; the payload is 64-byte aligned
//   block_bytes    of the block
//   asked          the spec that the block was planned with; its bits do not matter
// The width of the payload is always possible, and has its bytes. Values are assumed to be even
// within a code of that width (group_costs.h), and rotated ones Gaussian. At one bit the zeros are
// unknown. Exact lines are those of the payload's patch at every width: at fewer bits there may be
// more. Exponents, kept zeros and the rotation are those of the payload.
//
// Empty for payloads that are damaged or have no codes: exact ones, sides only, sizes only. (Ask
// with the values.) Empty also where spans were repeated (BlockPlan::tiles). Throws std::bad_alloc.
// Reads metadata and codes once, in the calling thread, with about 80 KiB of its stack.
[[nodiscard]] std::optional<WidthCosts> width_costs(const BlockForm& form, const void* payload,
                                                    std::size_t payload_bytes,
                                                    std::size_t block_bytes,
                                                    const BlockSpec& asked);

// From the values, as plan_block() and the encoder see them: each of up to six widths is planned,
// thoroughly where a quick plan would be refused, and its groups are coded. Bytes and possible are
// exact. Empty if these are no floats whose values are kept. Throws std::bad_alloc.
[[nodiscard]] std::optional<WidthCosts> width_costs(const BlockSource& source,
                                                    const BlockSpec& asked,
                                                    const Executor& executor);

}  // namespace pleat::compress::block

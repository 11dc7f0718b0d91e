// Adds to a restored block the noise that the codec could have made, so that its effect on a
// gradient can be measured. Torch-free.
#pragma once

#include <cstdint>

#include "compress/block/block_source.h"
#include "compress/block/block_spec.h"

namespace pleat::compress::block {

struct Disturbance {
  std::uint8_t bits = 4;  // whose noise
  float amplitude = 1;    // -1 to 1: times this
  // Of the noise: no payload of the run uses it or the range_count - 1 numbers above it. Opposite
  // amplitudes give opposite noise, but for elements that are held back.
  std::uint64_t nonce = 0;
};

// Moves each element x by amplitude * (y - x), where the codec makes y of x. Rounds to nearest
// even.
//   block  values as restored, 4-byte aligned; changed in place
//   where  the same block; bytes outside its ranges stay as they are
//   spec   that the block was asked for; how.bits takes the place of its bits and its floor
//   codec  that its values are coded with; how.bits takes the place of its bits
// These stay as they are: zeros, values that are not finite, groups that the codec keeps exact (one
// value, two values, too wide a step), elements near zero (spec.near_zero), lines that a thorough
// plan at this width would keep exact, spans too short to be coded, and all blocks whose values are
// not kept or are no floats. These are held back: elements of a group without negative (positive)
// ones keep their sign, and stay at least the type's smallest normal number away from zero; with
// spec.sides, each element stays on its side; and none overflows. In a rotated group neither zeros
// nor signs are kept, but for parts of zeros. A group that is restored without
// dither has only a few values. The codec would give them back at the same width, so they are taken
// for values around them first, as many as codes tell.
//
// The same bytes on every path, with any number of threads. False, with nothing changed, if the
// ranges are unsound, or there is no memory for the exact lines; the only other memory is 60 KiB of
// each thread's stack. Never throws.
[[nodiscard]] bool disturb_block(void* block, const BlockSource& where, const BlockSpec& spec,
                                 const CodecSpec& codec, const Disturbance& how,
                                 const Executor& executor) noexcept;
[[nodiscard]] inline bool disturb_block(void* block, const BlockSource& where,
                                        const BlockSpec& spec, const Disturbance& how,
                                        const Executor& executor) noexcept {
  return disturb_block(block, where, spec, spec.codec(), how, executor);
}

}  // namespace pleat::compress::block

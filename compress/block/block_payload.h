// A block of memory as one payload: each span that a view covers as codec.h encodes it, behind a
// table where there are several, or one that is not the whole; the lines of a span that must come
// back exact in front of its codes (line_patch.h). docs/payload_format.md, "Blocks". Torch-free,
// and nothing here knows of an allocator.
//
//   source   the block's bytes, and which of them count
//   plan     what was found by looking at the values, once: widths, exact lines, room
//   payload  the bytes that stand in for the source's
//   form     what a decoder must know before it reads a payload. Small, kept beside it by whoever
//            keeps it: on a device the payload is out of the host's sight
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "compress/block/block_plan.h"
#include "compress/types.h"

namespace pleat::compress::block {

enum class BlockShape : std::uint8_t {
  kNone,    // no payload
  kSingle,  // one span, which is the whole block
  kTable,   // a table and the spans it names
};

struct BlockForm {
  BlockShape shape = BlockShape::kNone;
  ElementType type = ElementType::kBytes;
  std::uint8_t bits = 0;  // as payloads have it: 0 unless the type is floating
  Transform transform = Transform::kNone;
  std::uint32_t spans : 31 = 0;
  std::uint32_t tiles : 1 = 0;
  std::uint64_t elements = 0;     // of all spans
  std::uint64_t nonce = 0;        // of the first span; each has one more than that before it
  std::uint64_t patch_bytes = 0;  // in front of the codes of an only span

  using Words = std::array<std::uint64_t, 4>;
  [[nodiscard]] Words pack() const noexcept { return std::bit_cast<Words>(*this); }
  [[nodiscard]] static BlockForm unpack(const Words& words) noexcept {
    return std::bit_cast<BlockForm>(words);
  }
  [[nodiscard]] bool operator==(const BlockForm&) const = default;
};
static_assert(std::is_trivially_copyable_v<BlockForm> && sizeof(BlockForm) == 32);

struct BlockEncodeResult {
  Status status = Status::kOk;
  std::size_t payload_bytes = 0;
  BlockForm form;
  SpanStatistics statistics;  // of all spans
};

// Encodes a block whose values are those that `plan` has seen.
//   nonce    no other payload of the run shares it, nor the range_count - 1 numbers above it
//   payload  `capacity` bytes, plan.room or more, 64-byte aligned; must not overlap the source
// The same bytes for the same request, those of the padding included. On a status other than kOk
// the payload's contents are undefined and the source is untouched. Thread-safe, never throws.
[[nodiscard]] BlockEncodeResult encode_block(const BlockSource& source, const BlockPlan& plan,
                                             std::uint64_t nonce, void* payload,
                                             std::size_t capacity,
                                             const Executor& executor) noexcept;

// As encode_block(), over the head of the block itself: `data` holds the source on entry, the
// payload on success; 64-byte aligned. kNoRoom without plan.in_place.
[[nodiscard]] BlockEncodeResult encode_block_in_place(void* data, std::size_t bytes,
                                                      const BlockPlan& plan, std::uint64_t nonce,
                                                      const Executor& executor) noexcept;

// Restores a block. The form says how the payload is read, not the payload.
//   payload  `payload_bytes` bytes of any origin, as those that were encoded: nothing outside the
//            two buffers is read or written whatever they and the form hold
//   target   `target_bytes` must be those of the block
// kCorrupt unless the payload is what the form says; the target's contents are undefined then.
// Thread-safe, never throws.
[[nodiscard]] Status decode_block(const BlockForm& form, const void* payload,
                                  std::size_t payload_bytes, void* target, std::size_t target_bytes,
                                  const Executor& executor) noexcept;

// As decode_block(), with `how.function` (not kNone) of the elements in their place.
// kCorrupt also for a `how.type` other than the form's.
[[nodiscard]] Status decode_block_function(const BlockForm& form, const void* payload,
                                           std::size_t payload_bytes, void* target,
                                           std::size_t target_bytes, Recomputed how,
                                           const Executor& executor) noexcept;

// Whether `result` looks like `how.function` of what the payload was made of, and is as well
// restored that way: compress::may_be_result(). False for payloads of several spans.
[[nodiscard]] bool may_be_result(const BlockForm& form, const void* payload,
                                 std::size_t payload_bytes, Recomputed how, const void* result,
                                 std::size_t result_bytes) noexcept;

}  // namespace pleat::compress::block

// A block of memory as one payload. Each span that a view covers is encoded as in codec.h. A table
// comes first unless there is one span that covers the whole block. Lines of a span that must come
// back exact stand in front of its codes (line_patch.h); the sides of its values behind, where
// noise may have carried some across a bound (compress/sides/sides.h). Format:
// docs/payload_format.md, "Blocks". Knows nothing of torch or of an allocator.
//
//   source   the bytes of the block, and which of them count
//   plan     what one look at the values found: widths, exact lines, room
//   payload  the bytes that stand in for the source's
//   form     what a decoder must know before it reads a payload. Small; whoever keeps the payload
//            keeps its form on the host, which cannot read a payload that lies on a device
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
  std::uint8_t bits = 0;  // width in the payload: 0 unless the type is floating
  Transform transform = Transform::kNone;
  std::uint32_t spans : 29 = 0;
  std::uint32_t only_sides : 1 = 0;  // no values, but their sides, of `bits` bits each
  // Sides stand behind the codes: of the only span, or of some spans of a table.
  std::uint32_t side_part : 1 = 0;
  std::uint32_t tiles : 1 = 0;
  std::uint64_t elements = 0;     // of all spans
  std::uint64_t nonce = 0;        // of the first span; every later span has the next number
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

// Encodes a block. Its values must be those that `plan` was made from.
//   nonce    no other payload of the run uses it or the range_count - 1 numbers above it
//   payload  `capacity` bytes (>= plan.room), 64-byte aligned; must not overlap the source
// The same request gives the same bytes, padding included. On a status other than kOk the payload's
// contents are undefined and the source is untouched. Thread-safe, never throws.
[[nodiscard]] BlockEncodeResult encode_block(const BlockSource& source, const BlockPlan& plan,
                                             std::uint64_t nonce, void* payload,
                                             std::size_t capacity,
                                             const Executor& executor) noexcept;

// As encode_block(), but writes over the head of the block itself. `data` (64-byte aligned) holds
// the source on entry and the payload on success. Returns kNoRoom without plan.in_place, and where
// sides would have to stand beside the values; the source is then untouched.
[[nodiscard]] BlockEncodeResult encode_block_in_place(void* data, std::size_t bytes,
                                                      const BlockPlan& plan, std::uint64_t nonce,
                                                      const Executor& executor) noexcept;

// Restores a block. `form`, not the payload, says how the payload is read.
//   payload  `payload_bytes` bytes of any origin: whatever they and the form hold, nothing outside
//            the two buffers is read or written
//   target   `target_bytes` must be the bytes of the block
// Returns kCorrupt if the payload is not what the form says; the target's contents are then
// undefined. Thread-safe, never throws.
[[nodiscard]] Status decode_block(const BlockForm& form, const void* payload,
                                  std::size_t payload_bytes, void* target, std::size_t target_bytes,
                                  const Executor& executor) noexcept;

// The spec by which the values of an only span were coded: `asked`, but for its exponents, its
// rotation and its kept zeros. `asked` for other payloads. The table lies in the payload.
[[nodiscard]] CodecSpec codec_of_payload(const BlockForm& form, const void* payload,
                                         std::size_t payload_bytes,
                                         const CodecSpec& asked) noexcept;

// As decode_block(), but writes `how.function` (not kNone) of each element. Returns kCorrupt also
// if `how.type` is not the form's type, or only sides were kept.
[[nodiscard]] Status decode_block_function(const BlockForm& form, const void* payload,
                                           std::size_t payload_bytes, void* target,
                                           std::size_t target_bytes, Recomputed how,
                                           const Executor& executor) noexcept;

// Applies the function of decode_block_function() to values that decode_block() gave, changed or
// not since. The same errors.
[[nodiscard]] Status apply_block_function(const BlockForm& form, const void* payload,
                                          std::size_t payload_bytes, void* target,
                                          std::size_t target_bytes, Recomputed how,
                                          const Executor& executor) noexcept;

// True if `result` appears to be `how.function` of the payload's original, and recomputing it is
// about as accurate as storing it: compress::may_be_result(). False for payloads of several spans.
[[nodiscard]] bool may_be_result(const BlockForm& form, const void* payload,
                                 std::size_t payload_bytes, Recomputed how, const void* result,
                                 std::size_t result_bytes) noexcept;

}  // namespace pleat::compress::block

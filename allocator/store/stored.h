// Stored says where the bytes of one saved storage are. The store makes and reads it; the lifecycle
// keeps it in the record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "allocator/blocks/block.h"
#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "allocator/store/byte_ranges.h"
#include "allocator/store/payload_arena.h"

namespace pleat::allocator {

// Where a payload is to be.
enum class Tier : std::uint8_t {
  kDevice,  // with the blocks
  kAway,    // in the arena's tier, if it has one that takes the payload's chunk
};

// No bytes of its own: the record never had a block, or only a restored storage has the bytes.
struct Nothing {};

// The saved block, complete in the order of the record's stream.
struct Raw {
  Block* block = nullptr;
  std::size_t planned_bytes = 0;  // StoreForm::kPlanned: of the payload; 0: it would stay raw
};

// The saved block, while a queued encode into `slot` awaits its verdict.
struct InFlight {
  Block* block = nullptr;
  PayloadSlot slot{};  // pinned
  EncodeTicket ticket{};
  StreamId stream{};  // of the encode
  const ByteRanges* ranges = nullptr;
  bool keeps_block = false;  // StoreForm::kPayloadAndBlock
  Tier tier = Tier::kDevice;
  std::uint64_t took_ns = 0;  // host time of the encode, set by the lifecycle
};

// A payload, complete in the order of `stream`.
struct Payload {
  PayloadSlot slot{};
  std::size_t bytes = 0;
  PayloadForm form{};
  StreamId stream{};
  const ByteRanges* ranges = nullptr;  // of the storage, as encoded
  Block* block = nullptr;              // StoreForm::kPayloadAndBlock: the saved block
  // Other streams that read the payload. Guarded by the store's lock.
  std::vector<StreamId> readers;

  // True if the payload lies over the head of the block that it was encoded from.
  [[nodiscard]] bool is_in_place() const noexcept {
    return slot.chunk->kind == PayloadChunk::Kind::kInPlace;
  }
};

// A function, element by element, of the bytes of another record's payload. The other record lives
// at least as long.
struct Recomputed {
  Payload* argument = nullptr;
  std::uint64_t function = 0;  // DecodeRequest::function
  Block* block = nullptr;      // StoreForm::kPayloadAndBlock: the saved block
};

using Stored = std::variant<Nothing, Raw, InFlight, Payload, Recomputed>;

// The saved block while it holds the bytes, else null.
[[nodiscard]] inline Block* raw_block(const Stored& stored) noexcept {
  if (const auto* const raw = std::get_if<Raw>(&stored)) return raw->block;
  const auto* const in_flight = std::get_if<InFlight>(&stored);
  return in_flight != nullptr ? in_flight->block : nullptr;
}

// The saved block that is kept next to a payload, else null.
[[nodiscard]] inline Block* block_beside(const Stored& stored) noexcept {
  if (const auto* const own = std::get_if<Payload>(&stored)) return own->block;
  const auto* const recomputed = std::get_if<Recomputed>(&stored);
  return recomputed != nullptr ? recomputed->block : nullptr;
}

// The payload that gives the bytes, its own or its argument's, else null.
[[nodiscard]] inline const Payload* payload_of(const Stored& stored) noexcept {
  if (const auto* const own = std::get_if<Payload>(&stored)) return own;
  const auto* const recomputed = std::get_if<Recomputed>(&stored);
  return recomputed != nullptr ? recomputed->argument : nullptr;
}

}  // namespace pleat::allocator

// What a ledger knows of a device. For ledger.cpp and ledger_live.cpp.
#pragma once

#include <map>

#include "interpose/wrapping.h"
#include "ledger.h"

namespace pleat::trace {

// Why a block is not, at present, of the class of its life.
enum class Overlay : std::uint8_t {
  kNone,
  kSavedRaw,  // tagged; ends with ENCODE, KEEP or DROP
  kInPlace,   // encoded, and the payload is in the block itself
  kAdopted,   // the raw bytes of a record, given back as the restored tensor
};

struct Ledger::LiveBlock {
  std::int64_t bytes = 0;
  std::uint64_t address = 0;
  std::uint64_t born_ns = 0;
  std::uint64_t record = 0;
  std::uint32_t step = kNoStep;
  std::uint8_t phase = 0;
  ByteClass of = ByteClass::kUnknown;  // of its life
  Overlay overlay = Overlay::kNone;
  Origin born, forward;
  std::uint32_t module = 0;

  [[nodiscard]] ByteClass now() const noexcept {
    if (is_for_life(of)) return of;
    switch (overlay) {
      case Overlay::kSavedRaw:
        return ByteClass::kSavedRaw;
      case Overlay::kInPlace:
        return ByteClass::kPayloads;
      case Overlay::kAdopted:
        return ByteClass::kRestored;
      case Overlay::kNone:
        break;
    }
    return of;
  }
};

struct Ledger::Chunk {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
};

struct Ledger::Slot {  // of a payload in a chunk
  std::int64_t bytes = 0;
  std::uint64_t record = 0;  // whose payload it is; 0: not known
};

struct Ledger::Device {
  const DeviceLives* lives = nullptr;
  Totals totals;
  std::int64_t known = 0;    // of all classes but kUnknown
  std::int64_t chunked = 0;  // bytes of payloads in chunks; below 0: of before the trace
  LiveTable<LiveBlock> blocks;
  LiveTable<LiveRecord> records;
  LiveTable<Chunk> chunks;
  LiveTable<Slot> slots;  // by address
  std::map<std::uint64_t, std::uint64_t> segments;  // begin, end; never adjacent
  std::uint64_t first_id = 0;
  std::size_t next_number = 0;  // of blocks
  bool began_with_something = false;
  bool disagrees = false;

  void add(ByteClass of, std::int64_t bytes) noexcept {
    if (of == ByteClass::kUnknown) return;  // it is what is left
    std::int64_t& sum = totals.bytes[static_cast<std::size_t>(of)];
    sum = wrapping_add(sum, bytes);
    known = wrapping_add(known, bytes);
  }
  void remove(ByteClass of, std::int64_t bytes) noexcept { add(of, wrapping_subtract(0, bytes)); }
  void overlay(LiveBlock& block, Overlay overlay) noexcept {
    remove(block.now(), block.bytes);
    block.overlay = overlay;
    add(block.now(), block.bytes);
  }
  void add_chunked(std::int64_t bytes) noexcept {
    const std::int64_t before = std::max<std::int64_t>(chunked, 0);
    chunked = wrapping_add(chunked, bytes);
    add(ByteClass::kPayloads, wrapping_subtract(std::max<std::int64_t>(chunked, 0), before));
  }
};

}  // namespace pleat::trace

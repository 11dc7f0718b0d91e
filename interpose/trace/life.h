// The parts of a trace's state: totals of a device, its blocks, payloads and records, and how a
// block's age decides its class (docs/trace.md). Lifecycle changes them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "interpose/trace/byte_class.h"
#include "interpose/trace/mapped_table.h"
#include "interpose/trace/wrapping.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

using Changes = std::array<std::int64_t, PLEAT_TRACE_CHANGES>;
using ClassBytes = std::array<std::int64_t, kByteClasses>;

[[nodiscard]] inline std::int64_t signed_of(std::uint64_t bytes) noexcept {
  return static_cast<std::int64_t>(bytes);
}

// Operator, stack and module of an allocation or a tag.
struct Origin {
  std::uint32_t op = 0;
  std::uint32_t stack = 0;
  std::uint32_t module = 0;  // a text: its path; 0: in none
};

// Sums and classes of a device at a moment.
struct Totals {
  Changes sums{};      // requested, active, reserved, saved raw, payload, restored
  ClassBytes bytes{};  // add up to live(), unless the events disagree

  [[nodiscard]] std::int64_t live() const noexcept { return sums[PLEAT_TRACE_REQUESTED]; }
  [[nodiscard]] std::int64_t active() const noexcept { return sums[PLEAT_TRACE_ACTIVE]; }
  [[nodiscard]] std::int64_t reserved() const noexcept { return sums[PLEAT_TRACE_RESERVED]; }
  [[nodiscard]] std::int64_t of(ByteClass which) const noexcept {
    return bytes[static_cast<std::size_t>(which)];
  }
  // Rounding, and the bytes of chunks that no payload has.
  [[nodiscard]] std::int64_t slack() const noexcept { return distance_above(active(), live()); }
  [[nodiscard]] std::int64_t cached() const noexcept {
    return distance_above(reserved(), active());
  }
};

// ---- blocks, records, payloads ------------------------------------------------------------------

// Why a block is not, at present, of the class of its life.
enum class Use : std::uint8_t {
  kNone,
  kSavedRaw,  // tagged; ends with ENCODE, KEEP or DROP
  kInPlace,   // encoded, and the payload is in the block itself
  kAdopted,   // the raw bytes of a record, given back as the restored tensor
};

struct LifeBlock {
  std::int64_t bytes = 0;
  std::uint64_t record = 0;  // it was tagged for, holds the payload of, or was restored from
  std::uint8_t phase = 0;
  Use use = Use::kNone;

  // The present class of a block whose life is of class `life`.
  [[nodiscard]] ByteClass now(ByteClass life) const noexcept {
    if (is_for_life(life)) return life;
    switch (use) {
      case Use::kSavedRaw:
        return ByteClass::kSavedRaw;
      case Use::kInPlace:
        return ByteClass::kPayloads;
      case Use::kAdopted:
        return ByteClass::kRestored;
      default:
        return life;
    }
  }
};

// A record that has not ended.
struct LifeRecord {
  std::int64_t payload_bytes = 0;  // 0: not encoded, or there is none
  std::int64_t chunk_bytes = 0;    // in a chunk: of the payload, or of the room for it
  std::uint64_t block = 0;         // it was tagged on
  std::uint64_t own_block = 0;     // the payload's own
  std::uint64_t slot = 0;          // the address of its payload in a chunk
  bool encoded = false;
};

struct LifeChunk {
  std::int64_t bytes = 0;
  std::uint64_t address = 0, stream = 0;
};

struct LifeSlot {  // of a payload in a chunk, by its address
  std::int64_t bytes = 0;
  std::uint64_t chunk = 0;
  std::uint64_t record = 0;  // whose payload it is; 0: not known
};

// ---- ages ---------------------------------------------------------------------------------------

// How far a block's life decides its class.
enum class Age : std::uint8_t {
  kYoung,    // its phase goes on
  kWaiting,  // an optimizer made it: its own thread's phase goes on, another one has begun
  kUnknown,  // of before the trace, or of a phase that is none
  kState,    // the optimizer made it, and has ended
  kInput,    // made outside of training, which has begun since
  kKept,     // of forward or backward, which has ended
};

[[nodiscard]] constexpr Age age_after(std::uint8_t phase) noexcept {
  switch (phase) {
    case PLEAT_TRACE_PHASE_OPTIMIZER:
      return Age::kState;
    case PLEAT_TRACE_PHASE_FORWARD:
    case PLEAT_TRACE_PHASE_BACKWARD:
    case PLEAT_TRACE_PHASE_BETWEEN:
      return Age::kKept;
    case PLEAT_TRACE_PHASE_OTHER:
    case PLEAT_TRACE_PHASE_DATA:
      return Age::kInput;
    default:
      return Age::kUnknown;
  }
}

// A block whose class follows from its life so far.
struct AgeingBlock : LifeBlock {
  std::uint32_t thread = 0;
  std::uint32_t next = 0, previous = 0;  // neighbours among young or waiting blocks: place plus 1
  Age age = Age::kYoung;
  bool parameter = false, gradient = false, restored = false, payload = false;

  [[nodiscard]] ByteClass life() const noexcept {
    if (payload) return ByteClass::kPayloads;
    if (parameter) return ByteClass::kParameters;
    if (gradient) return ByteClass::kGradients;
    if (age == Age::kState) return ByteClass::kOptimizerState;
    if (age == Age::kInput) return ByteClass::kInputs;
    if (restored) return ByteClass::kRestored;
    if (age == Age::kUnknown) return ByteClass::kUnknown;
    return age == Age::kKept ? ByteClass::kKept : ByteClass::kTemporary;
  }
  [[nodiscard]] ByteClass now() const noexcept { return LifeBlock::now(life()); }
};

// ---- a device -----------------------------------------------------------------------------------

template <class Item>
struct NoTable {
  static Item* find(std::uint64_t /*id*/) noexcept { return nullptr; }
  static Item* find_or_insert(std::uint64_t /*id*/) noexcept { return nullptr; }
  static void erase(std::uint64_t /*id*/) noexcept {}
};

// Block: a LifeBlock with `ByteClass now() const`. Record: a LifeRecord. kCounts: bytes are counted
// by class.
template <class Block, class Record, template <class> class Table, bool kCounts>
struct LifeDevice {
  Totals now;
  std::int64_t known = 0;    // bytes of all classes but kUnknown
  std::int64_t chunked = 0;  // bytes of payloads in chunks; below 0: of before the trace
  Table<Block> blocks;
  Table<Record> records;
  // Only a pass that counts needs places in chunks.
  std::conditional_t<kCounts, Table<LifeChunk>, NoTable<LifeChunk>> chunks;
  std::conditional_t<kCounts, Table<LifeSlot>, NoTable<LifeSlot>> slots;  // by address

  void add(ByteClass of, std::int64_t bytes) noexcept {
    if (!kCounts || of == ByteClass::kUnknown) return;  // the remainder
    std::int64_t& all = now.bytes[static_cast<std::size_t>(of)];
    all = wrapping_add(all, bytes);
    known = wrapping_add(known, bytes);
  }
  // Moves the block's bytes between classes when `act` changes its class or size.
  template <class Act>
  void change(Block& block, Act&& act) noexcept {
    if (!kCounts) return act(block);
    const ByteClass before = block.now();
    const std::int64_t bytes = block.bytes;
    act(block);
    const ByteClass after = block.now();
    if (before == after && bytes == block.bytes) return;
    add(before, wrapping_subtract(0, bytes));
    add(after, block.bytes);
  }
  void add_chunked(std::int64_t bytes) noexcept {
    const std::int64_t before = std::max<std::int64_t>(chunked, 0);
    chunked = wrapping_add(chunked, bytes);
    add(ByteClass::kPayloads, wrapping_subtract(std::max<std::int64_t>(chunked, 0), before));
  }
  // Returns the bytes that no class explains; below 0: the events disagree.
  std::int64_t add_changes(const PleatTraceEvent& event) noexcept {
    for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i)
      now.sums[i] = wrapping_add(now.sums[i], event.change[i]);
    const std::int64_t unknown = wrapping_subtract(now.live(), known);
    now.bytes[static_cast<std::size_t>(ByteClass::kUnknown)] = std::max<std::int64_t>(unknown, 0);
    return unknown;
  }
};

// A device whose blocks age. Block: an AgeingBlock.
template <class Block, class Record, template <class> class Table, bool kCounts>
struct AgeingDevice : LifeDevice<Block, Record, Table, kCounts> {
  std::uint32_t young = 0;       // the first place plus 1
  Table<std::uint32_t> waiting;  // the same, by thread plus 1

  void join_young(std::uint64_t id) noexcept {
    const std::uint32_t place = this->blocks.place_of(id);
    join(this->blocks.at(place), place + 1, young);
  }
  void leave(Block& block) noexcept {
    if (block.previous != 0) {
      this->blocks.at(block.previous - 1).next = block.next;
    } else if (block.age == Age::kYoung) {
      young = block.next;
    } else if (std::uint32_t* const first =
                   block.age == Age::kWaiting ? waiting.find(thread_id(block.thread)) : nullptr) {
      *first = block.next;
    }
    if (block.next != 0) this->blocks.at(block.next - 1).previous = block.previous;
    block.next = block.previous = 0;
  }
  // A phase of the thread begins, so that the phases of all young blocks have ended. A block that
  // an optimizer made waits for the next phase of its own thread.
  void begin_phase(std::uint32_t thread) noexcept {
    while (young != 0) {
      const std::uint32_t place = young;
      Block& block = this->blocks.at(place - 1);
      leave(block);
      Age age = age_after(block.phase);
      if (age == Age::kState && block.thread != thread) {
        std::uint32_t* const first = waiting.find_or_insert(thread_id(block.thread));
        age = first != nullptr ? Age::kWaiting : Age::kUnknown;
        if (first != nullptr) join(block, place, *first);
      }
      this->change(block, [&](Block& it) { it.age = age; });
    }
    std::uint32_t* const first = waiting.find(thread_id(thread));
    while (first != nullptr && *first != 0) {
      Block& block = this->blocks.at(*first - 1);
      leave(block);
      this->change(block, [](Block& it) { it.age = Age::kState; });
    }
  }

 private:
  static std::uint64_t thread_id(std::uint32_t thread) noexcept {
    return std::uint64_t{thread} + 1;
  }
  void join(Block& block, std::uint32_t place, std::uint32_t& first) noexcept {
    block.next = first;
    if (first != 0) this->blocks.at(first - 1).previous = place;
    first = place;
  }
};

}  // namespace pleat::trace

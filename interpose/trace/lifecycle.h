// Lifecycle is the state machine of a trace: what each event does to the blocks, payloads and
// records of a device, and of which class each live byte is (docs/trace.md). It has three keepers.
// The recorder's LiveBook knows the present. A reader's first pass finds the class of each whole
// life; the second pass, the Ledger, is given it at a block's birth.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

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

// Where something was made.
struct Origin {
  std::uint32_t op = 0;
  std::uint32_t stack = 0;
  std::uint32_t module = 0;  // a text: its path; 0: in none
};

// What a device has at a moment.
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
  std::uint64_t own_block = 0;     // that the payload has for itself
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
  std::uint32_t next = 0, previous = 0;  // places plus 1, of those of its age that do not stay so
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

// Block: a LifeBlock with `ByteClass now() const`. Record: a LifeRecord. kCounts: bytes are counted
// by class.
template <class Block, class Record, template <class> class Table, bool kCounts>
struct LifeDevice {
  Totals now;
  std::int64_t known = 0;    // bytes of all classes but kUnknown
  std::int64_t chunked = 0;  // bytes of payloads in chunks; below 0: of before the trace
  Table<Block> blocks;
  Table<Record> records;
  Table<LifeChunk> chunks;
  Table<LifeSlot> slots;

  void add(ByteClass of, std::int64_t bytes) noexcept {
    if (!kCounts || of == ByteClass::kUnknown) return;  // that is what is left
    std::int64_t& all = now.bytes[static_cast<std::size_t>(of)];
    all = wrapping_add(all, bytes);
    known = wrapping_add(known, bytes);
  }
  // Whatever `act` does to the block, its bytes are of its class before and after.
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
    join(this->blocks.at(this->blocks.place_of(id)), this->blocks.place_of(id) + 1, young);
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

// ---- the machine --------------------------------------------------------------------------------

// Keeper derives from it, and has
//   Block* born(device, event)       a new block of ALLOCATE; null: there is no room
//   Block* mentioned(device, event)  a block that is not known; null: there is no room
//   void dies(device, block)         before it is forgotten
//   void labelled(block, event)
//   void owned(block)                it holds a payload
//   void restored(block)             a record is restored into it, not given back as it is
//   void placed(block, record)       forward made what the block belongs to where it was tagged
//   void tagged(device, event, record)  null: there is no room
//   void lost()                      something that lives is missing, for want of room
template <class Keeper>
class Lifecycle {
 protected:
  template <class Device>
  void take(Device& device, const PleatTraceEvent& event) {
    switch (event.kind) {
      case PLEAT_TRACE_ALLOCATE:
        if (event.block == 0) return;
        end_block(device, event.block);
        if (self().born(device, event) != nullptr && event.record != 0)
          own(device, event.block, event.record);
        return;
      case PLEAT_TRACE_FREE:
        return end_block(device, event.block);
      case PLEAT_TRACE_SHRINK:
        if (auto* const block = device.blocks.find(event.block))
          device.change(*block, [&](auto& it) { it.bytes = signed_of(event.bytes); });
        return;
      case PLEAT_TRACE_CHUNK_ALLOCATE:
        if (LifeChunk* const chunk = device.chunks.find_or_insert(event.block)) {
          *chunk = {signed_of(event.bytes), event.address, event.stream};
        } else if (event.block != 0) {
          self().lost();
        }
        return;
      case PLEAT_TRACE_CHUNK_FREE:
        return device.chunks.erase(event.block);
      case PLEAT_TRACE_PAYLOAD_ALLOCATE:
      case PLEAT_TRACE_PAYLOAD_SHRINK:
      case PLEAT_TRACE_PAYLOAD_FREE:
        return take_payload(device, event);
      case PLEAT_TRACE_LABEL:
        if (auto* const block = known(device, event))
          device.change(*block, [&](auto& it) { self().labelled(it, event); });
        return;
      case PLEAT_TRACE_TAG:
        return tag(device, event);
      case PLEAT_TRACE_ENCODE:
        return encode(device, event);
      case PLEAT_TRACE_KEEP:
        return end_saving(device, event);
      case PLEAT_TRACE_DROP:
        end_saving(device, event);
        return device.records.erase(event.record);
      case PLEAT_TRACE_RESTORE:
        return restore(device, event);
      case PLEAT_TRACE_RESTORED_FREE: {
        auto* const block = device.blocks.find(event.block);
        // The record holds on to its raw bytes.
        if (block != nullptr && block->use == Use::kAdopted && block->record == event.record)
          set_use(device, *block, Use::kSavedRaw);
        return;
      }
      default:
        return;
    }
  }

 private:
  Keeper& self() noexcept { return static_cast<Keeper&>(*this); }

  template <class Device, class Block>
  static void set_use(Device& device, Block& block, Use use) noexcept {
    device.change(block, [use](Block& it) { it.use = use; });
  }

  // A block that is mentioned and not known was there before the trace began.
  template <class Device>
  auto known(Device& device, const PleatTraceEvent& event)
      -> decltype(device.blocks.find(event.block)) {
    if (event.block == 0) return nullptr;
    auto* const block = device.blocks.find(event.block);
    return block != nullptr ? block : self().mentioned(device, event);
  }

  template <class Device>
  void end_block(Device& device, std::uint64_t id) {
    auto* const block = device.blocks.find(id);
    if (block == nullptr) return;
    device.add(block->now(), wrapping_subtract(0, block->bytes));
    self().dies(device, *block);
    device.blocks.erase(id);
  }

  template <class Device>
  void take_payload(Device& device, const PleatTraceEvent& event) {
    device.add_chunked(event.change[PLEAT_TRACE_REQUESTED]);
    const bool is_new = event.kind == PLEAT_TRACE_PAYLOAD_ALLOCATE;
    const bool is_freed = event.kind == PLEAT_TRACE_PAYLOAD_FREE;
    LifeSlot* const slot =
        is_new ? device.slots.find_or_insert(event.address) : device.slots.find(event.address);
    auto* const record = device.records.find(is_new            ? event.record
                                             : slot != nullptr ? slot->record
                                                               : 0);
    if (record != nullptr) {
      record->chunk_bytes = is_freed ? 0 : signed_of(event.bytes);
      record->slot = is_freed ? 0 : event.address;
    }
    if (slot == nullptr) {
      if (is_new && event.address != 0) self().lost();
      return;
    }
    *slot = {signed_of(event.bytes), event.block, is_new ? event.record : slot->record};
    if (is_freed) device.slots.erase(event.address);
  }

  template <class Device>
  void tag(Device& device, const PleatTraceEvent& event) {
    if (auto* const block = known(device, event)) {
      device.change(*block, [&](auto& it) {
        it.record = event.record;
        it.use = Use::kSavedRaw;
      });
    }
    auto* const record = device.records.find_or_insert(event.record);
    if (record != nullptr) {
      *record = {};
      record->block = event.block;
    } else if (event.record != 0) {
      self().lost();
    }
    self().tagged(device, event, record);
  }

  template <class Device>
  void encode(Device& device, const PleatTraceEvent& event) {
    auto* const record = device.records.find(event.record);
    const bool in_chunk = event.reason == PLEAT_TRACE_PLACE_CHUNK;
    if (event.reason == PLEAT_TRACE_PLACE_IN_PLACE) {
      if (auto* const block = device.blocks.find(event.block))
        set_use(device, *block, Use::kInPlace);
    } else {
      end_saving(device, event);
      if (event.reason == PLEAT_TRACE_PLACE_OWN_BLOCK) own(device, event.block, event.record);
    }
    if (record == nullptr) return;
    record->encoded = true;
    record->payload_bytes = signed_of(event.bytes);
    record->chunk_bytes = in_chunk ? record->payload_bytes : 0;
    if (LifeSlot* const slot = in_chunk ? device.slots.find(event.address) : nullptr) {
      slot->record = event.record;
      record->slot = event.address;
    }
  }

  // The block holds the payload of the record.
  template <class Device>
  void own(Device& device, std::uint64_t id, std::uint64_t of) {
    auto* const block = device.blocks.find(id);
    if (block == nullptr) return;
    auto* const record = device.records.find(of);
    device.change(*block, [&](auto& it) {
      it.record = of;
      self().owned(it);
    });
    if (record == nullptr) return;
    record->own_block = id;
    self().placed(*block, *record);
  }

  // The bytes of the record are no longer needed raw.
  template <class Device>
  void end_saving(Device& device, const PleatTraceEvent& event) {
    const auto* const record = device.records.find(event.record);
    auto* const block = device.blocks.find(record != nullptr ? record->block : event.block);
    if (block != nullptr && block->use == Use::kSavedRaw && block->record == event.record)
      set_use(device, *block, Use::kNone);
  }

  template <class Device>
  void restore(Device& device, const PleatTraceEvent& event) {
    auto* const block = known(device, event);
    if (block == nullptr) return;
    const auto* const record = device.records.find(event.record);
    const bool adopted = record != nullptr && record->block == event.block;
    device.change(*block, [&](auto& it) {
      it.record = event.record;
      if (adopted) {
        it.use = Use::kAdopted;
      } else {
        self().restored(it);
      }
    });
    if (record != nullptr) self().placed(*block, *record);
  }
};

// What keepers of ageing blocks answer the same.
template <class Keeper>
class AgeingLifecycle : public Lifecycle<Keeper> {
 public:
  static void labelled(AgeingBlock& block, const PleatTraceEvent& event) noexcept {
    block.parameter |= event.reason == PLEAT_TRACE_LABEL_PARAMETER;
    block.gradient |= event.reason == PLEAT_TRACE_LABEL_GRADIENT;
  }
  static void owned(AgeingBlock& block) noexcept { block.payload = true; }
  static void restored(AgeingBlock& block) noexcept { block.restored = true; }
};

// ---- nodes --------------------------------------------------------------------------------------

// Which operator of forward recorded a node of autograd, and where. The oldest are forgotten: nodes
// are asked for in the backward pass after their forward pass.
template <template <class> class Table, std::size_t kGeneration>
class NodeBook {
 public:
  void note(std::uint64_t node, Origin origin) {
    if (node == 0) return;
    if (young().size() >= kGeneration && young().find(node) == nullptr) rotate();
    if (Origin* const place = young().find_or_insert(node)) *place = origin;
  }
  [[nodiscard]] const Origin* find(std::uint64_t node) const noexcept {
    const Origin* const origin = tables_[young_].find(node);
    return origin != nullptr ? origin : tables_[1 - young_].find(node);
  }
  // Another generation begins; the one before the last is forgotten.
  void rotate() noexcept {
    young_ = 1 - young_;
    young().clear();
  }
  void clear() noexcept {
    for (auto& table : tables_) table.clear();
  }
  // visit(node, origin): those of the present generation.
  template <class Visit>
  void for_each_young(Visit&& visit) noexcept {
    young().for_each(visit);
  }

 private:
  Table<Origin>& young() noexcept { return tables_[young_]; }

  Table<Origin> tables_[2];
  unsigned young_ = 0;
};

}  // namespace pleat::trace

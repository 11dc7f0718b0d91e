// Lifecycle is the state machine of a trace: the effect of each event on blocks, payloads and
// records of a device, and the class of each live byte (docs/trace.md). It has three keepers.
// The recorder's LiveBook knows the present. A reader's first pass finds the class of each whole
// life; the second pass, the Ledger, is given it at a block's birth.
#pragma once

#include <cstdint>

#include "interpose/trace/life.h"

namespace pleat::trace {

// Keeper derives from it, and has
//   Block* born(device, event)       a new block of ALLOCATE; null: there is no room
//   Block* mentioned(device, event)  a block that is not known; null: there is no room
// and, in place of those below, its own hooks.
template <class Keeper>
class Lifecycle {
 protected:
  // The block is forgotten next.
  static void dies(const auto& /*device*/, const auto& /*block*/) noexcept {}
  static void labelled(const auto& /*block*/, const PleatTraceEvent& /*event*/) noexcept {}
  // The block holds a payload.
  static void owned(const auto& /*block*/) noexcept {}
  // A record is restored into the block, not given back as it is.
  static void restored(const auto& /*block*/) noexcept {}
  // The block gets the record's place in forward.
  static void placed(const auto& /*block*/, const auto& /*record*/) noexcept {}
  // `record`: null, there is no room.
  static void tagged(const PleatTraceEvent& /*event*/, const auto* /*record*/) noexcept {}
  // An item that lives is missing, for want of room.
  static void lost() noexcept {}

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

  // An unknown block existed before the trace began.
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
    if (record != nullptr && (is_new || record->slot == event.address)) {
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
    self().tagged(event, record);
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
    if (record != nullptr && record->block == id) return;  // it cannot be its own payload's
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

// Hooks shared by the two keepers of ageing blocks.
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

}  // namespace pleat::trace

// Reads events of version 1 as those of version 2. In version 1 an ENCODE names the block that its
// record came from, and no event names the payload's place. It is the place that the same thread
// last gave the payload's size.
#pragma once

#include <cstdint>
#include <map>

#include "live_table.h"
#include "per_thread.h"
#include "record_block.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

class Version1 {
 public:
  // The columns it needs in addition to the visitor's.
  static constexpr Columns kColumns = column_bit(Column::kKind) | column_bit(Column::kDevice) |
                                      column_bit(Column::kThread) | column_bit(Column::kAddress) |
                                      column_bit(Column::kBytes) | column_bit(Column::kBlock) |
                                      column_bit(Column::kRecord);

  // The event as version 2 has it; valid until the next call. Events in order of time.
  [[nodiscard]] const PleatTraceEvent& translate(const PleatTraceEvent& event) {
    switch (event.kind) {
      case PLEAT_TRACE_ALLOCATE:
        size_block(event, true);
        return event;
      case PLEAT_TRACE_SHRINK:
        size_block(event, false);
        return event;
      case PLEAT_TRACE_FREE:
        devices_[event.device].blocks.erase(event.block);
        return event;
      case PLEAT_TRACE_PAYLOAD_ALLOCATE:
      case PLEAT_TRACE_PAYLOAD_SHRINK:
        if (std::uint64_t* const bytes =
                devices_[event.device].payloads.find_or_insert(event.address))
          *bytes = event.bytes;
        last_.of(event.thread) = {{}, place(event, PLEAT_TRACE_PLACE_CHUNK)};
        return event;
      case PLEAT_TRACE_PAYLOAD_FREE:
        devices_[event.device].payloads.erase(event.address);
        return event;
      case PLEAT_TRACE_TAG:
        if (std::uint64_t* const block = devices_[event.device].tagged.find_or_insert(event.record))
          *block = event.block;
        return event;
      case PLEAT_TRACE_DROP:
        devices_[event.device].tagged.erase(event.record);
        return event;
      case PLEAT_TRACE_ENCODE:
        return encode(event, devices_[event.device]);
      default:
        return event;
    }
  }

 private:
  struct Block {
    std::uint64_t bytes = 0;
    bool shrunk = false;
  };
  struct Device {
    LiveTable<Block> blocks;
    LiveTable<std::uint64_t> payloads;  // bytes of those in chunks, by address
    LiveTable<std::uint64_t> tagged;    // the block of each record
  };
  struct Place {
    std::uint64_t block = 0, address = 0;
    PleatTracePlace place = PLEAT_TRACE_PLACE_NONE;
    int device = -1;
  };
  struct Last {
    Place block;  // empty after the thread sized a place in a chunk
    Place slot;
  };

  static Place place(const PleatTraceEvent& event, PleatTracePlace place) noexcept {
    return {event.block, event.address, place, event.device};
  }
  void size_block(const PleatTraceEvent& event, bool is_new) {
    LiveTable<Block>& blocks = devices_[event.device].blocks;
    Block* const block = is_new ? blocks.find_or_insert(event.block) : blocks.find(event.block);
    if (block == nullptr) return;
    *block = {event.bytes, !is_new};
    last_.of(event.thread).block = place(event, PLEAT_TRACE_PLACE_OWN_BLOCK);
  }

  const PleatTraceEvent& encode(const PleatTraceEvent& event, Device& device) {
    encode_ = event;
    if (event.bytes == 0) return put({});
    const Block* const source = device.blocks.find(event.block);
    if (source != nullptr && source->shrunk && source->bytes == event.bytes)
      return put(place(event, PLEAT_TRACE_PLACE_IN_PLACE));
    const auto& [own, slot] = last_.of(event.thread);
    const std::uint64_t* const tagged = device.tagged.find(event.record);
    const Block* const block = own.device == event.device ? device.blocks.find(own.block) : nullptr;
    const bool is_source = own.block == event.block || (tagged != nullptr && own.block == *tagged);
    if (block != nullptr && !is_source && block->bytes == event.bytes) return put(own);
    const std::uint64_t* const bytes =
        slot.device == event.device ? device.payloads.find(slot.address) : nullptr;
    const bool in_slot = bytes != nullptr && *bytes == event.bytes;
    return put(in_slot ? slot : Place{.place = PLEAT_TRACE_PLACE_CHUNK});
  }
  const PleatTraceEvent& put(const Place& payload) noexcept {
    encode_.block = payload.block;
    encode_.address = payload.address;
    encode_.reason = static_cast<std::uint8_t>(payload.place);
    return encode_;
  }

  PerThread<Last> last_;
  std::map<int, Device> devices_;
  PleatTraceEvent encode_{};
};

}  // namespace pleat::trace

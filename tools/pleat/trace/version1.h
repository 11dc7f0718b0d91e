// Reads events of version 1 as those of version 2. There an ENCODE named the block that its record
// came from, and no event said where the payload went: it is the place that the same thread gave
// the payload's size last.
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
  // The columns it needs beside those that a visitor wants.
  static constexpr Columns kColumns = column_bit(Column::kKind) | column_bit(Column::kDevice) |
                                      column_bit(Column::kThread) | column_bit(Column::kAddress) |
                                      column_bit(Column::kBytes) | column_bit(Column::kBlock);

  // The event as version 2 has it; valid until the next call. Events in order of time.
  [[nodiscard]] const PleatTraceEvent& translate(const PleatTraceEvent& event) {
    switch (event.kind) {
      case PLEAT_TRACE_SHRINK:
        if (std::uint64_t* const bytes = shrunk_[event.device].find_or_insert(event.block))
          *bytes = event.bytes;
        [[fallthrough]];
      case PLEAT_TRACE_ALLOCATE:
        if (event.block != 0)
          sized_.of(event.thread).block = sized(event, PLEAT_TRACE_PLACE_OWN_BLOCK);
        return event;
      case PLEAT_TRACE_PAYLOAD_ALLOCATE:
      case PLEAT_TRACE_PAYLOAD_SHRINK:
        sized_.of(event.thread) = {{}, sized(event, PLEAT_TRACE_PLACE_CHUNK)};
        return event;
      case PLEAT_TRACE_FREE:
        shrunk_[event.device].erase(event.block);
        [[fallthrough]];
      case PLEAT_TRACE_PAYLOAD_FREE: {
        Sized& last = event.kind == PLEAT_TRACE_FREE ? sized_.of(event.thread).block
                                                     : sized_.of(event.thread).slot;
        if (last.device == event.device && last.address == event.address) last = {};
        return event;
      }
      case PLEAT_TRACE_ENCODE:
        return encode(event);
      default:
        return event;
    }
  }

 private:
  struct Sized {
    std::uint64_t block = 0, address = 0, bytes = 0;
    PleatTracePlace place = PLEAT_TRACE_PLACE_NONE;
    int device = -1;
  };

  struct LastSized {
    Sized block;  // none, if a place in a chunk was sized since
    Sized slot;
  };

  static Sized sized(const PleatTraceEvent& event, PleatTracePlace place) noexcept {
    return {event.block, event.address, event.bytes, place, event.device};
  }

  const PleatTraceEvent& encode(const PleatTraceEvent& event) {
    encode_ = event;
    if (event.bytes == 0) return put({});
    const std::uint64_t* const shrunk = shrunk_[event.device].find(event.block);
    if (shrunk != nullptr && *shrunk == event.bytes)
      return put(sized(event, PLEAT_TRACE_PLACE_IN_PLACE));
    const LastSized& last = sized_.of(event.thread);
    const auto is_it = [&](const Sized& one) {
      return one.place != PLEAT_TRACE_PLACE_NONE && one.device == event.device &&
             one.bytes == event.bytes && one.block != event.block;
    };
    if (is_it(last.block)) return put(last.block);
    return put(is_it(last.slot) ? last.slot : Sized{.place = PLEAT_TRACE_PLACE_CHUNK});
  }
  const PleatTraceEvent& put(const Sized& payload) noexcept {
    encode_.block = payload.block;
    encode_.address = payload.address;
    encode_.reason = static_cast<std::uint8_t>(payload.place);
    return encode_;
  }

  PerThread<LastSized> sized_;
  std::map<int, LiveTable<std::uint64_t>> shrunk_;  // by device: blocks, and the bytes left
  PleatTraceEvent encode_{};
};

}  // namespace pleat::trace

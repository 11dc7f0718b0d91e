// Saved tensors in a book: what the events of a record do to blocks and sums.
#include "interpose/recorder/live_book.h"
#include "interpose/recorder/live_book_impl.h"

namespace pleat::trace {

void LiveBook::take_record(BookDevice& device, const PleatTraceEvent& event) noexcept {
  if (event.kind == PLEAT_TRACE_TAG) take_tag(device, event);
  BookRecord* const record = device.records.find(event.record);
  if (record != nullptr) {
    record->raw = wrapping_add(record->raw, event.change[PLEAT_TRACE_SAVED_RAW]);
    record->payload = wrapping_add(record->payload, event.change[PLEAT_TRACE_PAYLOAD]);
    record->restored = wrapping_add(record->restored, event.change[PLEAT_TRACE_RESTORED]);
  }
  switch (event.kind) {
    case PLEAT_TRACE_LABEL:
      if (BookBlock* const block = known(device, event)) {
        change(device, *block, [&](BookBlock& it) {
          it.parameter |= event.reason == PLEAT_TRACE_LABEL_PARAMETER;
          it.gradient |= event.reason == PLEAT_TRACE_LABEL_GRADIENT;
        });
      }
      break;
    case PLEAT_TRACE_RELEASE:
      if (record != nullptr) record->released = true;
      break;
    case PLEAT_TRACE_HOLD:
      if (record != nullptr) {
        record->held = true;
        record->hold_reason = event.reason;
      }
      break;
    case PLEAT_TRACE_ENCODE:
      take_encode(device, event);
      break;
    case PLEAT_TRACE_KEEP:
      if (record != nullptr) record->kept = true;
      end_saving(device, event);
      break;
    case PLEAT_TRACE_DROP:
      end_saving(device, event);
      device.records.erase(event.record);
      break;
    case PLEAT_TRACE_RESTORE:
      take_restore(device, event);
      break;
    case PLEAT_TRACE_RESTORED_FREE: {
      BookBlock* const block = device.blocks.find(event.block);
      // The record holds on to its raw bytes.
      if (block != nullptr && block->use == Use::kAdopted && block->record == event.record)
        change(device, *block, [](BookBlock& it) { it.use = Use::kSavedRaw; });
      break;
    }
    default:
      break;
  }
}

void LiveBook::take_tag(BookDevice& device, const PleatTraceEvent& event) noexcept {
  if (BookBlock* const block = known(device, event)) {
    change(device, *block, [&](BookBlock& it) {
      it.record = event.record;
      it.use = Use::kSavedRaw;
    });
  }
  const BookOrigin origin{event.op, event.stack};
  if (event.node != 0 && find_node(event.node) == nullptr) note_node(event.node, origin);
  BookRecord* const record = device.records.find_or_insert(event.record);
  if (record == nullptr) {
    exact_ &= event.record == 0;
    return;
  }
  *record = {};
  record->bytes = signed_of(event.bytes);
  record->block = event.block;
  record->key = event.key;
  record->node = event.node;
  record->stream = event.stream;
  record->origin = origin;
  record->thread = event.thread;
  record->phase = event.phase;
  if (const BookThread* const own = thread(event.thread)) record->module = own->module;
}

void LiveBook::take_encode(BookDevice& device, const PleatTraceEvent& event) noexcept {
  const std::int64_t payload = signed_of(event.bytes);
  BookRecord* const record = device.records.find(event.record);
  const std::uint64_t source =
      event.block != 0 ? event.block : (record != nullptr ? record->block : 0);
  bool in_chunk = payload > 0;
  BookBlock* const block = device.blocks.find(source);
  if (block != nullptr && (block->record == event.record || block->record == 0)) {
    const bool in_place = event.block != 0 && block->shrunk && block->bytes == payload;
    if (in_place || block->use == Use::kSavedRaw)
      change(device, *block,
             [&](BookBlock& it) { it.use = in_place ? Use::kInPlace : Use::kNone; });
    if (in_place) in_chunk = false;
  }
  const BookThread* const own_thread = thread(event.thread);
  const bool is_here = own_thread != nullptr && own_thread->sized_device == event.device;
  const std::uint64_t sized = is_here ? own_thread->sized_block : 0;
  BookBlock* const own =
      sized != 0 && sized != source && payload > 0 ? device.blocks.find(sized) : nullptr;
  if (own != nullptr && own->bytes == payload) {
    change(device, *own, [&](BookBlock& it) {
      it.record = event.record;
      it.payload = true;
    });
    if (record != nullptr) own->forward = record->origin;
    in_chunk = false;
  }
  if (record == nullptr) return;
  BookSlot* const slot = is_here && in_chunk ? device.slots.find(own_thread->slot) : nullptr;
  if (slot != nullptr && slot->bytes == payload) {
    slot->record = event.record;
    record->slot = own_thread->slot;
  }
  record->encoded = true;
  record->payload_bytes = payload;
  record->chunk_bytes = in_chunk ? payload : 0;
  record->own_block = own != nullptr && own->bytes == payload ? sized : 0;
}

// Of a record whose bytes are no longer needed raw.
void LiveBook::end_saving(BookDevice& device, const PleatTraceEvent& event) noexcept {
  const BookRecord* const record = device.records.find(event.record);
  BookBlock* const block = device.blocks.find(record != nullptr ? record->block : event.block);
  if (block != nullptr && block->use == Use::kSavedRaw && block->record == event.record)
    change(device, *block, [](BookBlock& it) { it.use = Use::kNone; });
}

void LiveBook::take_restore(BookDevice& device, const PleatTraceEvent& event) noexcept {
  BookBlock* const block = known(device, event);
  BookRecord* const record = device.records.find(event.record);
  if (record != nullptr) record->restored_block = event.block;
  if (block == nullptr) return;
  const bool adopted = record != nullptr && record->block == event.block && event.record != 0;
  change(device, *block, [&](BookBlock& it) {
    it.record = event.record;
    if (adopted) {
      it.use = Use::kAdopted;
    } else {
      it.restored = true;
    }
  });
  if (record != nullptr) block->forward = record->origin;
}

}  // namespace pleat::trace

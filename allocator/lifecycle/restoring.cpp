// How the bytes of a released record are restored: decoded, adopted in place, or copied.
#include <algorithm>
#include <mutex>
#include <utility>

#include "allocator/lifecycle/record_steps.h"
#include "allocator/lifecycle/residency.h"

namespace pleat::allocator {

// If a lossy encode is queued, waits for its verdict: restored bytes must not depend on timing.
void Residency::await_verdict_locked(RecordGuard& guard, Record& record) noexcept {
  const auto* const in_flight = std::get_if<InFlight>(&record.stored);
  if (in_flight != nullptr && in_flight->ticket.lossy) {
    (void)finish_in_flight(guard.scope_, record, /*may_wait=*/true);
  }
}

// Makes the raw block itself the restored one.
Block* Residency::adopt_locked(Record& record, StreamId stream) noexcept {
  waiting_.remove(record);
  if (const auto* const in_flight = std::get_if<InFlight>(&record.stored)) {
    record.stored = store_.forget(*in_flight);
  }
  Block* const block = raw_block(record.stored);
  // The work that wrote the block comes first, and so does a forgotten encode that still reads it.
  order_.follow(stream, record.stream);
  // The end of a foreign stream's use cannot be observed. That use is the one the block was saved
  // for, and the code that queues it has ordered it already.
  if (stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count(counters_.adopted);
  return block;
}

// A block for `stream` with the record's bytes, from the payload or a copy of raw bytes. nullptr
// and a status if there is none.
Block* Residency::filled_locked(Record& record, StreamId stream, const Reading& reading,
                                RestoreStatus* status, Block** spare) noexcept {
  // Without a block of its own the restored one has the bytes. Its storage can have died in a
  // thread that has yet to free it.
  Stored only_copy = Raw{record.restored};
  const bool has_bytes = !std::holds_alternative<Nothing>(record.stored);
  if (!has_bytes && record.restored == nullptr) {
    *status = RestoreStatus::kWrongState;
    return nullptr;
  }
  Block* const target =
      spare != nullptr ? std::exchange(*spare, nullptr) : memory_.allocate(record.bytes, stream);
  if (target == nullptr) {
    *status = spare != nullptr ? RestoreStatus::kNeedsBlock : RestoreStatus::kOutOfMemory;
    return nullptr;
  }
  Get get{.from = has_bytes ? &record.stored : &only_copy,
          .written = has_bytes ? record.stream : record.restored->stream,
          .ranges = &record.ranges,
          .target = target,
          .bytes = record.bytes,
          .stream = stream,
          .reading = reading};
  const std::uint64_t begin = now_ns();
  store_.get({&get, 1});
  if (get.stays) [[unlikely]] {
    // Each replay of the graph reads the payload again, so this reference is never given up.
    const std::lock_guard<std::mutex> link(link_mutex_);
    const bool own = std::holds_alternative<Payload>(record.stored);
    ++(own ? record : *record.argument.record).references_;
  }
  if (get.decoded) count(counters_.decode_ns, now_ns() - begin);
  if (get.short_of_memory || get.status != CodecStatus::kOk) {
    memory_.free(target);
    *status = get.short_of_memory ? RestoreStatus::kOutOfMemory : RestoreStatus::kDamaged;
    return nullptr;
  }
  if (get.decoded) {
    count(counters_.restored);
    count(counters_.decoded_bytes, record.bytes);
  } else {
    count(counters_.copied);
  }
  *status = RestoreStatus::kOk;
  return target;
}

Block* Residency::restore_locked(RecordGuard& guard, Record& record, StreamId stream,
                                 const Reading& reading, RestoreStatus* status,
                                 Block** spare) noexcept {
  EventScope& scope = guard.scope_;
  Block* target = nullptr;
  await_verdict_locked(guard, record);
  std::uint64_t begin = scope.wanted() ? now_ns() : 0;  // 0: no work to measure, or no sink
  const bool counted = counts_raw(record);
  switch (record.state) {
    case RecordState::kWaiting:
    case RecordState::kHeld:
      target = adopt_locked(record, stream);
      begin = 0;
      break;
    case RecordState::kTagged:    // storage gone, block never freed: it still holds its bytes
    case RecordState::kRestored:  // an earlier restored storage was written to and is not the
                                  // record's now
    case RecordState::kPacked: {
      const bool packed = payload_of(record.stored) != nullptr;
      target = filled_locked(record, stream, packed ? reading : Reading{}, status, spare);
      if (target == nullptr) return nullptr;
      if (!packed && !counted) {  // a copy of the restored block: it is the only one now
        record.stored = Raw{target};
        record.stream = order_.stand_in(stream);
      }
      break;
    }
    default:
      *status = RestoreStatus::kWrongState;
      return nullptr;
  }
  if (record.state != RecordState::kRestored) {
    transition(record, RecordAction::kRestore);
  }
  {
    const std::lock_guard<std::mutex> link(link_mutex_);
    if (record.restored != nullptr) {
      // The superseded block becomes an ordinary one; its free can be under way already.
      Record* expected = &record;
      record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
      scope.change(StatKind::kRestored, -signed_bytes(record.bytes));
    }
    record.restored = target;
    target->record.store(&record, std::memory_order_release);
  }
  recount_raw(scope, record, counted);
  scope.change(StatKind::kRestored, signed_bytes(record.bytes));
  emit(scope, EventKind::kRestore, record, target, record.bytes, begin != 0 ? now_ns() - begin : 0);
  *status = RestoreStatus::kOk;
  return target;
}

// Later work on a foreign stream, and its end, cannot be observed, so it shares no storage.
bool Residency::may_share_restored_locked(RecordGuard& /*guard*/, Record& record,
                                          StreamId stream) noexcept {
  const Block* const restored = record.restored;
  return restored == nullptr || restored == raw_block(record.stored) ||
         stream == restored->stream ||
         (!order_.is_foreign(stream) && !order_.is_foreign(restored->stream));
}

void Residency::share_restored_locked(RecordGuard& /*guard*/, Record& record,
                                      StreamId stream) noexcept {
  Block* const restored = record.restored;
  if (restored == nullptr || stream == restored->stream) return;
  // The bytes of an adopted block are complete for the stream of the last pack.
  const StreamId complete_for =
      restored == raw_block(record.stored) ? record.stream : restored->stream;
  order_.follow(stream, complete_for);
  if (!order_.is_foreign(stream)) memory_.note_use(restored, stream);
}

Block* Residency::copy_locked(RecordGuard& guard, Record& record, StreamId stream,
                              const Reading& reading, RestoreStatus* status,
                              Block** spare) noexcept {
  await_verdict_locked(guard, record);
  return filled_locked(record, stream, reading, status, spare);
}

const Stored& Residency::stored_locked(RecordGuard& guard, Record& record) noexcept {
  await_verdict_locked(guard, record);
  return record.stored;
}

PinnedPayload Residency::pinned_locked(RecordGuard& guard, Record& record,
                                       StreamId stream) noexcept {
  const Payload* const payload = payload_of(stored_locked(guard, record));
  return payload != nullptr ? store_.pin(*payload, stream) : PinnedPayload();
}

}  // namespace pleat::allocator

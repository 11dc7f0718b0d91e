// How the bytes of a released record come back: decoded, adopted as they are, or copied.
#include <algorithm>
#include <mutex>

#include "allocator/residency/record_steps.h"
#include "allocator/residency/residency.h"

namespace pleat::allocator {

// Of a record whose encode is queued and lossy: what is read must not depend on the moment.
void Residency::await_verdict_locked(RecordGuard& guard, Record& record) noexcept {
  if (record.state != RecordState::kWaiting || record.ticket.value == 0 ||
      !codec_.is_lossy(record.ticket)) {
    return;
  }
  const Attempt attempt{.result = codec_.verdict(record.ticket, true), .slot = record.payload};
  if (attempt.result.status == CodecStatus::kQueued) return;
  waiting_.remove(record);
  record.ticket = {};
  finish(guard.scope_, record, attempt);
}

// The raw block itself becomes the restored one.
Block* Residency::adopt_locked(RecordGuard& guard, Record& record, StreamId stream) noexcept {
  Block* const block = record.block;
  waiting_.remove(record);
  if (record.ticket.value != 0) {
    codec_.forget(record.ticket);
    record.ticket = {};
    arena_.free(record.payload);
  }
  // What has written it, and an encode that is forgotten but still reads, comes before.
  order_.follow(stream, record.stream);
  // Of a foreign stream's use nobody could tell the end. It is the use that the block was saved
  // for, and whoever queues it has seen to its order.
  if (stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count_raw(guard.scope_, record, false);
  count(counters_.adopted);
  return block;
}

// A copy of raw bytes in a block for `stream`; nullptr if there is no memory.
Block* Residency::copy_raw_locked(Record& record, Block* raw, StreamId stream) noexcept {
  Block* const target = memory_.allocate(record.bytes, stream);
  if (target == nullptr) return nullptr;
  order_.follow(stream, raw == record.block ? record.stream : raw->stream);
  if (stream != raw->stream) memory_.note_use(raw, stream);
  memory_.copy(target->begin, raw->begin, record.bytes, stream);
  count(counters_.copied);
  return target;
}

// Of a record with a payload: from that, or from the block that is kept beside it.
bool Residency::restore_into_locked(Record& record, Block* target, StreamId stream) noexcept {
  Block* const original = record.original;
  if (original == nullptr || !record.reads_original()) {
    return decode_locked(record, target, stream);
  }
  order_.follow(stream, record.stream);
  if (stream != original->stream) memory_.note_use(original, stream);
  memory_.copy(target->begin, original->begin, record.bytes, stream);
  count(counters_.copied);
  return true;
}

Block* Residency::restore_locked(RecordGuard& guard, Record& record, StreamId stream,
                                 RestoreStatus* status) noexcept {
  EventScope& scope = guard.scope_;
  Block* target = nullptr;
  await_verdict_locked(guard, record);
  switch (record.state) {
    case RecordState::kWaiting:
    case RecordState::kHeld:
      target = adopt_locked(guard, record, stream);
      break;
    case RecordState::kTagged:    // storage gone, block never freed: its bytes are still there
    case RecordState::kRestored:  // an earlier restored storage was written to and is not ours now
    case RecordState::kPacked: {
      if (record.packed()) {
        target = memory_.allocate(record.bytes, stream);
        if (target != nullptr && !restore_into_locked(record, target, stream)) {
          memory_.free(target);
          *status = RestoreStatus::kDamaged;
          return nullptr;
        }
      } else {
        // Of a block that was never freed; or of the restored one, whose storage has died in
        // another thread that has yet to free it: then the copy is all there will be.
        Block* const raw = record.block != nullptr ? record.block : record.restored;
        if (raw == nullptr) {
          *status = RestoreStatus::kWrongState;
          return nullptr;
        }
        target = copy_raw_locked(record, raw, stream);
        if (target != nullptr && raw == record.restored) {
          record.block = target;
          record.stream = stream;
        }
      }
      if (target == nullptr) {
        *status = RestoreStatus::kOutOfMemory;
        return nullptr;
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
      // Superseded: its free, which may be under way already, is an ordinary one.
      Record* expected = &record;
      record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
      scope.change(StatKind::kRestored, -signed_bytes(record.bytes));
    }
    record.restored = target;
    target->record.store(&record, std::memory_order_release);
  }
  scope.change(StatKind::kRestored, signed_bytes(record.bytes));
  emit(scope, EventKind::kRestore, record, target, record.bytes);
  *status = RestoreStatus::kOk;
  return target;
}

// What a foreign stream has been given is told by nobody later, nor when it is done.
bool Residency::may_share_restored_locked(RecordGuard& /*guard*/, Record& record,
                                          StreamId stream) noexcept {
  const Block* const restored = record.restored;
  return restored == nullptr || restored == record.block || stream == restored->stream ||
         (!order_.is_foreign(stream) && !order_.is_foreign(restored->stream));
}

void Residency::share_restored_locked(RecordGuard& /*guard*/, Record& record,
                                      StreamId stream) noexcept {
  Block* const restored = record.restored;
  if (restored == nullptr || stream == restored->stream) return;
  // The bytes of an adopted block are complete for the stream of the last pack.
  const StreamId complete_for = restored == record.block ? record.stream : restored->stream;
  order_.follow(stream, complete_for);
  if (!order_.is_foreign(stream)) memory_.note_use(restored, stream);
}

Block* Residency::copy_locked(RecordGuard& guard, Record& record, StreamId stream,
                              RestoreStatus* status) noexcept {
  Block* target = nullptr;
  await_verdict_locked(guard, record);
  *status = RestoreStatus::kOk;
  if (!record.packed()) {
    // Raw bytes: held, of a storage that is gone but was never freed, or adopted by one that lives.
    Block* const raw = record.block != nullptr ? record.block : record.restored;
    if (raw == nullptr) {
      *status = RestoreStatus::kWrongState;
      return nullptr;
    }
    target = copy_raw_locked(record, raw, stream);
  } else if ((target = memory_.allocate(record.bytes, stream)) != nullptr &&
             !restore_into_locked(record, target, stream)) {
    memory_.free(target);
    *status = RestoreStatus::kDamaged;
    return nullptr;
  }
  if (target == nullptr) *status = RestoreStatus::kOutOfMemory;
  return target;
}

// `holder`, whose payload it is, must not be dropped before `stream` has read it. Called once the
// reading is queued.
void Residency::note_reader(Record& holder, StreamId stream) noexcept {
  if (stream == holder.stream) [[likely]]
    return;
  if (order_.is_foreign(stream)) {  // who may be gone at the drop
    order_.follow(holder.stream, stream);
    return;
  }
  const std::lock_guard<std::mutex> link(link_mutex_);
  std::vector<StreamId>& readers = holder.readers;
  if (std::find(readers.begin(), readers.end(), stream) != readers.end()) return;
  try {
    readers.push_back(stream);
  } catch (...) {
    // What the payload's stream is given from now on waits, as it would have at the drop.
    order_.follow(holder.stream, stream);
  }
}

bool Residency::decode_locked(Record& record, Block* target, StreamId stream) noexcept {
  const std::uint64_t start = now_ns();
  // An argument of others has its payload for good: nothing of it changes any more.
  Record& holder = record.recomputed ? *record.argument : record;
  const void* const data = holder.payload_in_block ? static_cast<void*>(holder.block->begin)
                                                   : static_cast<void*>(holder.payload.data);
  const PayloadView payload{data, holder.payload_bytes, holder.form, holder.ranges.data(),
                            holder.ranges.size()};
  order_.follow(stream, holder.stream);
  const CodecStatus decoded =
      record.recomputed
          ? codec_.decode_function(payload, target->begin, record.bytes, stream, record.function)
          : codec_.decode(payload, target->begin, record.bytes, stream);
  note_reader(holder, stream);
  if (order_.is_captured(stream)) [[unlikely]] {
    // The graph reads the payload again at each of its replays: nobody gives it up any more.
    const std::lock_guard<std::mutex> link(link_mutex_);
    ++holder.references_;
  }
  count(counters_.decode_ns, now_ns() - start);
  if (decoded != CodecStatus::kOk) {
    return false;
  }
  count(counters_.restored);
  count(counters_.decoded_bytes, record.bytes);
  return true;
}

}  // namespace pleat::allocator

// How the bytes of a released record are restored: decoded, adopted in place, or copied.
#include <algorithm>
#include <mutex>
#include <utility>

#include "allocator/residency/record_steps.h"
#include "allocator/residency/residency.h"

namespace pleat::allocator {

// If a lossy encode is queued, waits for its verdict: restored bytes must not depend on timing.
void Residency::await_verdict_locked(RecordGuard& guard, Record& record) noexcept {
  if (record.state != RecordState::kWaiting || record.ticket.value == 0 ||
      !codec_.is_lossy(record.ticket)) {
    return;
  }
  const Attempt attempt = verdict(record, true);
  if (attempt.result.status == CodecStatus::kQueued) return;
  waiting_.remove(record);
  record.ticket = {};
  finish(guard.scope_, record, attempt);
}

// Makes the raw block itself the restored one.
Block* Residency::adopt_locked(RecordGuard& guard, Record& record, StreamId stream) noexcept {
  Block* const block = record.block;
  waiting_.remove(record);
  if (record.ticket.value != 0) {
    codec_.forget(record.ticket);
    record.ticket = {};
    arena_.free(record.payload);
  }
  // The work that wrote the block comes first, and so does a forgotten encode that still reads it.
  order_.follow(stream, record.stream);
  // The end of a foreign stream's use cannot be observed. That use is the one the block was saved
  // for, and the code that queues it has ordered it already.
  if (stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count_raw(guard.scope_, record, false);
  count(counters_.adopted);
  return block;
}

Block* Residency::take_block(const Record& record, StreamId stream, Block** spare,
                             RestoreStatus* status) noexcept {
  Block* const block =
      spare != nullptr ? std::exchange(*spare, nullptr) : memory_.allocate(record.bytes, stream);
  if (block == nullptr) {
    *status = spare != nullptr ? RestoreStatus::kNeedsBlock : RestoreStatus::kOutOfMemory;
  }
  return block;
}

// Copies raw bytes into a block for `stream`; nullptr if there is no block.
Block* Residency::copy_raw_locked(Record& record, Block* raw, StreamId stream, Block** spare,
                                  RestoreStatus* status) noexcept {
  Block* const target = take_block(record, stream, spare, status);
  if (target == nullptr) return nullptr;
  const StreamId on = order_.stand_in(stream);
  order_.follow(on, raw == record.block ? record.stream : raw->stream);
  if (on != raw->stream) memory_.note_use(raw, on);
  memory_.copy(target->begin, raw->begin, record.bytes, on);
  order_.follow(stream, on);
  count(counters_.copied);
  return target;
}

// Restores a record that has a payload: from the payload, or from the original block.
bool Residency::restore_into_locked(Record& record, Block* target, StreamId stream) noexcept {
  Block* const original = record.original;
  if (original == nullptr || !record.reads_original()) {
    return decode_locked(record, target, stream);
  }
  const StreamId on = order_.stand_in(stream);
  order_.follow(on, record.stream);
  if (on != original->stream) memory_.note_use(original, on);
  memory_.copy(target->begin, original->begin, record.bytes, on);
  order_.follow(stream, on);
  count(counters_.copied);
  return true;
}

Block* Residency::restore_locked(RecordGuard& guard, Record& record, StreamId stream,
                                 RestoreStatus* status, Block** spare) noexcept {
  EventScope& scope = guard.scope_;
  Block* target = nullptr;
  await_verdict_locked(guard, record);
  std::uint64_t begin = scope.wanted() ? now_ns() : 0;  // 0: no work to measure, or no sink
  switch (record.state) {
    case RecordState::kWaiting:
    case RecordState::kHeld:
      target = adopt_locked(guard, record, stream);
      begin = 0;
      break;
    case RecordState::kTagged:    // storage gone, block never freed: it still holds its bytes
    case RecordState::kRestored:  // an earlier restored storage was written to and is not the
                                  // record's now
    case RecordState::kPacked: {
      if (record.packed()) {
        target = take_block(record, stream, spare, status);
        if (target != nullptr && !restore_into_locked(record, target, stream)) {
          memory_.free(target);
          *status = RestoreStatus::kDamaged;
          return nullptr;
        }
      } else {
        // Copy from the block, which was never freed, or from the restored block. The latter's
        // storage can have died in a thread that has yet to free it: this copy is then the only
        // one.
        Block* const raw = record.block != nullptr ? record.block : record.restored;
        if (raw == nullptr) {
          *status = RestoreStatus::kWrongState;
          return nullptr;
        }
        target = copy_raw_locked(record, raw, stream, spare, status);
        if (target != nullptr && raw == record.restored) {
          record.block = target;
          record.stream = order_.stand_in(stream);
        }
      }
      if (target == nullptr) return nullptr;
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
  scope.change(StatKind::kRestored, signed_bytes(record.bytes));
  emit(scope, EventKind::kRestore, record, target, record.bytes, begin != 0 ? now_ns() - begin : 0);
  *status = RestoreStatus::kOk;
  return target;
}

// Later work on a foreign stream, and its end, cannot be observed, so it shares no storage.
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
                              RestoreStatus* status, Block** spare) noexcept {
  Block* target = nullptr;
  await_verdict_locked(guard, record);
  *status = RestoreStatus::kOk;
  if (!record.packed()) {
    // The raw bytes are held, in a moved block that was never freed, or adopted by a live storage.
    Block* const raw = record.block != nullptr ? record.block : record.restored;
    if (raw == nullptr) {
      *status = RestoreStatus::kWrongState;
      return nullptr;
    }
    target = copy_raw_locked(record, raw, stream, spare, status);
    if (const DisturbanceWords* const noise = record.disturbance();
        noise != nullptr && target != nullptr) {
      const StreamId on = order_.stand_in(stream);
      const CodecStatus disturbed =
          disturb({.ranges = record.ranges.data(), .range_count = record.ranges.size()}, target,
                  record.bytes, *noise, on, 0);
      order_.follow(stream, on);
      if (disturbed != CodecStatus::kOk) {
        memory_.free(target);
        *status = RestoreStatus::kDamaged;
        return nullptr;
      }
    }
  } else if ((target = take_block(record, stream, spare, status)) != nullptr &&
             !restore_into_locked(record, target, stream)) {
    memory_.free(target);
    *status = RestoreStatus::kDamaged;
    return nullptr;
  }
  return target;
}

Residency::Stored Residency::stored_locked(RecordGuard& guard, Record& record) noexcept {
  await_verdict_locked(guard, record);
  if (!record.packed()) {
    const Block* const raw = record.block != nullptr ? record.block : record.restored;
    return {.raw = raw != nullptr ? raw->begin : nullptr};
  }
  return {.payload = payload_of(record)};
}

PayloadView Residency::payload_of(Record& record) noexcept {
  // The payload of an argument is final: neither its place nor its form changes any more.
  Record& holder = record.recomputed ? *record.argument : record;
  const void* const data = holder.payload_in_block ? static_cast<void*>(holder.block->begin)
                                                   : static_cast<void*>(holder.payload.data);
  return {data, holder.payload_bytes, holder.form, holder.ranges.data(), holder.ranges.size()};
}

// Records a read by `stream`, so that the payload of `holder` is not freed before the read is done.
// Called once the read is queued.
void Residency::note_reader(Record& holder, StreamId stream) noexcept {
  if (stream == holder.stream) [[likely]]
    return;
  const std::lock_guard<std::mutex> link(link_mutex_);
  std::vector<StreamId>& readers = holder.readers;
  if (std::find(readers.begin(), readers.end(), stream) != readers.end()) return;
  try {
    readers.push_back(stream);
  } catch (...) {
    // Order later work of the payload's stream after the read now instead of at the drop.
    order_.follow(holder.stream, stream);
  }
}

CodecStatus Residency::disturb(const PayloadView& from, Block* block, std::size_t bytes,
                               const DisturbanceWords& how, StreamId stream,
                               std::uint64_t function) noexcept {
  PayloadSlot scratch;
  if (const std::size_t needed = codec_.disturb_scratch(bytes, how);
      needed != 0 && !(scratch = arena_.allocate(needed, stream))) {
    return CodecStatus::kFailed;
  }
  const CodecStatus status =
      codec_.disturb(from, block->begin, bytes, how, stream, function, scratch.data);
  if (scratch) arena_.free(scratch);
  return status;
}

bool Residency::decode_locked(Record& record, Block* target, StreamId stream) noexcept {
  const std::uint64_t start = now_ns();
  Record& holder = record.recomputed ? *record.argument : record;
  const PayloadView payload = payload_of(record);
  const StreamId on = order_.stand_in(stream);
  if (holder.form.has_scratch) {
    const std::lock_guard<std::mutex> link(link_mutex_);
    for (const StreamId reader : holder.readers) order_.follow(on, reader);
  }
  order_.follow(on, holder.stream);
  const DisturbanceWords* const noise = holder.disturbance();
  CodecStatus decoded =
      record.recomputed && noise == nullptr
          ? codec_.decode_function(payload, target->begin, record.bytes, on, record.function)
          : codec_.decode(payload, target->begin, record.bytes, on);
  if (noise != nullptr && decoded == CodecStatus::kOk) {
    decoded =
        disturb(payload, target, record.bytes, *noise, on, record.recomputed ? record.function : 0);
  }
  note_reader(holder, on);
  order_.follow(stream, on);
  if (order_.is_captured(stream)) [[unlikely]] {
    // Each replay of the graph reads the payload again, so this reference is never given up.
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

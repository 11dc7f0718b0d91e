#include "allocator/residency/residency.h"

#include <cassert>
#include <cstring>
#include <ctime>

namespace pleat::allocator {
namespace {

std::uint64_t now_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(t.tv_nsec);
}

void count(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
  counter.fetch_add(n, std::memory_order_relaxed);
}

// A transition the table lacks would be a bug of ours; in release the record stays as it is.
void transition(Record& record, RecordAction action) noexcept {
  [[maybe_unused]] const bool known = apply(record.state, action);
  assert(known);
}

std::int64_t signed_bytes(std::size_t bytes) noexcept { return static_cast<std::int64_t>(bytes); }

}  // namespace

Residency::Residency(Pool& pool, PayloadArena& arena, BlockCodec& codec,
                     const ResidencyOptions& options, EventSink* sink)
    : pool_(pool),
      arena_(arena),
      codec_(codec),
      sink_(sink),
      compress_(options.compress),
      at_forward_end_(options.at_forward_end),
      in_place_(options.in_place) {}

void Residency::set_options(const ResidencyOptions& options) noexcept {
  compress_.store(options.compress, std::memory_order_relaxed);
  at_forward_end_.store(options.at_forward_end, std::memory_order_relaxed);
  in_place_.store(options.in_place, std::memory_order_relaxed);
}

void Residency::emit(EventKind kind, const Record& record, const Block* block,
                     std::size_t bytes) noexcept {
  if (sink_ == nullptr) {
    return;
  }
  Event event;
  event.kind = kind;
  event.device = pool_.device().index();
  event.stream = record.stream;
  event.key = record.key;
  event.bytes = bytes;
  if (block != nullptr) {
    event.block = block->id;
    event.address = reinterpret_cast<std::uint64_t>(block->begin);
  }
  sink_->on_event(event);
}

void Residency::link_new(Block* block, Record* record) noexcept {
  record->block = block;
  block->record.store(record, std::memory_order_release);
  count(counters_.tagged);
  count_raw(*record, true);
  emit(EventKind::kTag, *record, block, record->bytes);
}

void Residency::count_raw(Record& record, bool counted) noexcept {
  if (record.counted_raw != counted) {
    record.counted_raw = counted;
    const std::int64_t bytes = signed_bytes(record.bytes);
    pool_.statistics().add(StatKind::kSavedRaw, counted ? bytes : -bytes);
  }
}

// ---- release ------------------------------------------------------------------------------------

void Residency::release_saved(Block* block) noexcept {
  Record* record = nullptr;
  bool kept = false;
  {
    std::unique_lock<std::mutex> link(link_mutex_);
    record = block->record.load(std::memory_order_relaxed);
    if (record != nullptr) {
      ++record->references_;  // the last hook may drop while we work
      block->record.store(nullptr, std::memory_order_relaxed);
      if (record->restored != block) {
        // Before the record is locked: it may take a lock whose owner waits for the record.
        const std::uint32_t without_block = record->keep_storage(link);
        kept = without_block >= record->references_ - 1;  // one is ours
      }
    }
  }
  if (record == nullptr) {
    pool_.free(block);
    return;
  }
  {
    const RecordGuard guard(*this, *record);
    if (record->restored == block) {
      release_restored(*record, block);
    } else if (record->block == block && !record->payload_in_block) {
      release_original(*record, block, kept);
    } else {
      // Between its unlinking above and the lock, another thread found this restored block dead and
      // restored anew: nothing refers to it any more.
      pool_.free(block);
    }
  }
  drop(record);
}

void Residency::release_restored(Record& record, Block* block) noexcept {
  {
    const std::lock_guard<std::mutex> guard(link_mutex_);
    record.restored = nullptr;
  }
  pool_.statistics().add(StatKind::kRestored, -signed_bytes(record.bytes));
  if (record.block == block) {  // an adopted raw block: the only copy of the bytes
    transition(record, RecordAction::kAdoptedFreed);
    count_raw(record, true);
    return;
  }
  if (record.state == RecordState::kRestored) {
    if (record.packed()) {
      transition(record, RecordAction::kRestoredFreed);
    } else if (record.block == nullptr) {
      // Copied out of a moved block that has gone since: this copy is all there is.
      record.block = block;
      transition(record, RecordAction::kAdoptedFreed);
      count_raw(record, true);
      return;
    }
  }
  pool_.free(block);
}

void Residency::release_original(Record& record, Block* block, bool kept) noexcept {
  count(counters_.released);
  emit(EventKind::kRelease, record, block, record.bytes);
  if (record.state != RecordState::kTagged) {
    // Copied out at unpack before this free arrived (kRestored), or adopted, and copied out while
    // the free was under way. The copy stands in for the block; where it is gone already, the block
    // is all there is.
    if (record.restored == nullptr) {
      transition(record, RecordAction::kAdoptedFreed);
      count_raw(record, true);
      return;
    }
    count_raw(record, false);
    record.block = nullptr;
    pool_.free(block);
    return;
  }
  if (kept) {
    // resize_(0), a swapped data pointer, a swapped .data: what lives on has other bytes, as stock
    // would have it. Hold on to that from now on.
    transition(record, RecordAction::kKeep);
    count(counters_.kept);
    count_raw(record, false);
    record.block = nullptr;
    pool_.free(block);
    return;
  }
  transition(record, RecordAction::kRelease);
  bool wanted = true;
  {
    const std::lock_guard<std::mutex> guard(link_mutex_);
    wanted = record.references_ > 1;
  }
  if (!wanted) {  // every hook went meanwhile; drop() frees the block
    transition(record, RecordAction::kHold);
    return;
  }
  if (!compress_.load(std::memory_order_relaxed) || stopped()) {
    transition(record, RecordAction::kHold);
    count(counters_.held);
    return;
  }
  if (at_forward_end_.load(std::memory_order_relaxed) || record.wait_until > clock()) {
    transition(record, RecordAction::kHold);
    pending_.add(record);
    return;
  }
  encode_locked(record);
}

bool Residency::encode_locked(Record& record) noexcept {
  Block* const block = record.block;
  const std::uint64_t start = now_ns();
  record.before_encode();
  const EncodeRequest request{block->begin,         record.bytes,  record.ranges.data(),
                              record.ranges.size(), record.choice, record.nonce,
                              record.key,           record.stream};
  transition(record, RecordAction::kEncode);
  record.worked_out = follows_from_origin(record);
  bool done = record.worked_out;
  if (const std::size_t bound = done ? 0 : codec_.payload_bytes(request); bound != 0) {
    // The head of the block itself by choice, or because the arena cannot grow; a codec that cannot
    // work there gets a slot after all.
    const bool in_place = in_place_.load(std::memory_order_relaxed);
    done = in_place && encode_over_head(record, request);
    if (!done) {
      if (const PayloadSlot slot = arena_.allocate(bound)) {
        done = encode_to_arena(record, request, slot);
      } else {
        done = !in_place && encode_over_head(record, request);
      }
    }
  }
  count(counters_.encode_ns, now_ns() - start);
  if (!done) {
    transition(record, RecordAction::kHold);
    count(counters_.held);
    return false;
  }
  transition(record, RecordAction::kEncoded);
  if (++record.encodes > 1) {
    count(counters_.double_encodes);
  }
  if (record.worked_out) {
    count(counters_.worked_out);
    count(counters_.worked_out_bytes, record.bytes);
  } else {
    count(counters_.encoded);
  }
  count(counters_.source_bytes, record.bytes);
  count(counters_.payload_bytes, record.payload_bytes);
  count_raw(record, false);
  pool_.statistics().add(StatKind::kPayload, signed_bytes(record.payload_bytes));
  emit(EventKind::kEncode, record, block, record.payload_bytes);
  if (!record.payload_in_block) {
    record.block = nullptr;
    pool_.free(block);
  }
  return true;
}

void Residency::set_origin(Record& record, Record& origin, std::uint64_t function) noexcept {
  {
    const RecordGuard guard(*this, origin);
    if (origin.payload_bytes == 0 || origin.payload_in_block || origin.bytes != record.bytes) {
      return;
    }
  }
  const std::lock_guard<std::mutex> link(link_mutex_);
  if (record.origin == nullptr) {
    ++origin.references_;
    ++origin.followers_;
    record.origin = &origin;
    record.function = function;
  }
}

bool Residency::follows_from_origin(Record& record) noexcept {
  const Record* const origin = record.origin;
  return origin != nullptr && record.follows_from_origin() &&
         codec_.may_be_result(origin->payload.data, origin->payload_bytes, record.function,
                              record.block->begin, record.bytes);
}

bool Residency::encode_to_arena(Record& record, const EncodeRequest& request,
                                PayloadSlot slot) noexcept {
  std::size_t used = 0;
  CodecStatistics statistics;
  if (codec_.encode(request, slot.data, slot.bytes, &used, &statistics) != CodecStatus::kOk) {
    arena_.free(slot);
    return false;
  }
  if (used < slot.bytes) {
    arena_.shrink(slot, used);
  }
  record.payload = slot;
  record.payload_bytes = used;
  record.statistics = statistics;
  return true;
}

bool Residency::encode_over_head(Record& record, const EncodeRequest& request) noexcept {
  std::size_t used = 0;
  CodecStatistics statistics;
  if (codec_.encode_in_place(request, &used, &statistics) != CodecStatus::kOk) {
    return false;
  }
  pool_.shrink(record.block, used);
  record.payload_in_block = true;
  record.payload_bytes = used;
  record.statistics = statistics;
  count(counters_.encoded_in_place);
  return true;
}

// ---- restore ------------------------------------------------------------------------------------

Block* Residency::restore_locked(Record& record, StreamId stream, RestoreStatus* status) noexcept {
  Block* target = nullptr;
  switch (record.state) {
    case RecordState::kHeld: {
      pending_.remove(record);
      target = record.block;
      count_raw(record, false);
      count(counters_.adopted);
      break;
    }
    case RecordState::kTagged:    // storage gone, block never freed: its bytes are still there
    case RecordState::kRestored:  // an earlier restored storage was written to and is not ours now
    case RecordState::kPacked: {
      target = pool_.allocate(record.bytes, stream);
      if (target == nullptr) {
        *status = RestoreStatus::kOutOfMemory;
        return nullptr;
      }
      if (!record.packed()) {
        // Of a block that was never freed; or of the restored one, whose storage has died in
        // another thread that has yet to free it: then the copy is all there will be.
        const Block* const raw = record.block != nullptr ? record.block : record.restored;
        if (raw == nullptr) {
          pool_.free(target);
          *status = RestoreStatus::kWrongState;
          return nullptr;
        }
        std::memcpy(target->begin, raw->begin, record.bytes);
        count(counters_.copied);
        if (raw == record.restored) {
          record.block = target;
        }
        break;
      }
      if (!decode_locked(record, target, stream)) {
        pool_.free(target);
        *status = RestoreStatus::kDamaged;
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
    const std::lock_guard<std::mutex> guard(link_mutex_);
    if (record.restored != nullptr) {
      // Superseded: its free, which may be under way already, is an ordinary one.
      Record* expected = &record;
      record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
      pool_.statistics().add(StatKind::kRestored, -signed_bytes(record.bytes));
    }
    record.restored = target;
    target->record.store(&record, std::memory_order_release);
  }
  pool_.statistics().add(StatKind::kRestored, signed_bytes(record.bytes));
  emit(EventKind::kRestore, record, target, record.bytes);
  *status = RestoreStatus::kOk;
  return target;
}

Block* Residency::copy_locked(Record& record, StreamId stream, RestoreStatus* status) noexcept {
  // Raw bytes: held, of a storage that is gone but was never freed, or adopted by one that lives.
  const Block* const raw = record.block != nullptr ? record.block : record.restored;
  if (!record.packed() && raw == nullptr) {
    *status = RestoreStatus::kWrongState;
    return nullptr;
  }
  Block* const target = pool_.allocate(record.bytes, stream);
  if (target == nullptr) {
    *status = RestoreStatus::kOutOfMemory;
    return nullptr;
  }
  if (!record.packed()) {
    std::memcpy(target->begin, raw->begin, record.bytes);
    count(counters_.copied);
  } else if (!decode_locked(record, target, stream)) {
    pool_.free(target);
    *status = RestoreStatus::kDamaged;
    return nullptr;
  }
  *status = RestoreStatus::kOk;
  return target;
}

bool Residency::decode_locked(const Record& record, Block* target, StreamId stream) noexcept {
  const std::uint64_t start = now_ns();
  CodecStatus decoded = CodecStatus::kFailed;
  if (record.worked_out) {
    // Of the payload of a record that has one for good: nothing of it changes any more.
    const PayloadSlot payload = record.origin->payload;
    decoded = codec_.decode_function(payload.data, record.origin->payload_bytes, target->begin,
                                     record.bytes, stream, record.function);
  } else {
    const void* const payload =
        record.payload_in_block ? static_cast<void*>(record.block->begin) : record.payload.data;
    decoded = codec_.decode(payload, record.payload_bytes, target->begin, record.bytes, stream);
  }
  count(counters_.decode_ns, now_ns() - start);
  if (decoded != CodecStatus::kOk) {
    return false;
  }
  count(counters_.restored);
  count(counters_.decoded_bytes, record.bytes);
  return true;
}

std::uint32_t Residency::hooks(const Record& record) noexcept {
  const std::lock_guard<std::mutex> guard(link_mutex_);
  return record.references_ - record.followers_;
}

// ---- drop ---------------------------------------------------------------------------------------

void Residency::drop_locked(Record* record, std::unique_lock<std::mutex> link) noexcept {
  {
    const std::unique_lock<std::mutex> guard = std::move(link);
    if (--record->references_ != 0) {
      return;
    }
    // Nobody else can reach the record once its blocks no longer point to it.
    for (Block* block : {record->block, record->restored}) {
      if (block != nullptr && block->record.load(std::memory_order_relaxed) == record) {
        block->record.store(nullptr, std::memory_order_relaxed);
      }
    }
  }
  pending_.remove(*record);
  const RecordState last = record->state;
  transition(*record, RecordAction::kDrop);
  count(counters_.dropped);
  Statistics& statistics = pool_.statistics();
  if (last == RecordState::kTagged) {
    count(counters_.dropped_unreleased);
  }
  count_raw(*record, false);
  if (record->restored != nullptr) {
    statistics.add(StatKind::kRestored, -signed_bytes(record->bytes));
  }
  if (record->payload_bytes != 0) {
    statistics.add(StatKind::kPayload, -signed_bytes(record->payload_bytes));
    if (record->payload_in_block) {
      pool_.free(record->block);
    } else {
      arena_.free(record->payload);
    }
  } else if (last == RecordState::kHeld) {
    pool_.free(record->block);
  }  // a kRestored record's block is the restored one, or a moved one that is still out there
  emit(EventKind::kDrop, *record, nullptr, record->payload_bytes);
  Record* const origin = record->origin;
  delete record;
  if (origin != nullptr) {
    drop(origin, [&] { --origin->followers_; });
  }
}

// ---- what is pending ----------------------------------------------------------------------------

Record* Residency::take_pending(std::uint64_t due) noexcept {
  // The link lock keeps a record alive between finding it and taking a reference.
  const std::scoped_lock guard(link_mutex_, pending_);
  for (Record *record = pending_.first(), *next; record != nullptr; record = next) {
    next = record->pending_next;
    if (record->references_ == 0) {  // another thread drops it, and waits for the list
      pending_.take_off(*record);    // may be deleted now
    } else if (record->wait_until <= due) {
      ++record->references_;
      pending_.take_off(*record);
      return record;
    }
  }
  return nullptr;
}

void Residency::encode_pending(std::uint64_t due) noexcept {
  while (Record* const record = take_pending(due)) {
    {
      const RecordGuard guard(*this, *record);
      if (record->state == RecordState::kHeld && !stopped()) {
        encode_locked(*record);
      }
    }
    drop(record);
  }
}

void Residency::forward_end() noexcept { encode_pending(~std::uint64_t{0}); }

void Residency::encode_due() noexcept {
  if (!at_forward_end_.load(std::memory_order_relaxed)) {
    encode_pending(clock());
  }
}

void Residency::lock_for_fork() noexcept {
  fork_gate_.close();
  link_mutex_.lock();
  pending_.lock();
  arena_.lock_for_fork();
  pool_.lock_for_fork();
}

void Residency::unlock_after_fork(ForkSide side) noexcept {
  pool_.unlock_after_fork();
  arena_.unlock_after_fork();
  pending_.unlock();
  link_mutex_.unlock();
  fork_gate_.open(side);
}

}  // namespace pleat::allocator

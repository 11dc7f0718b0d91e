#include "allocator/residency/residency.h"

#include <cassert>
#include <ctime>

#include "allocator/residency/record_steps.h"

namespace pleat::allocator {

Residency::Residency(BlockMemory& memory, StreamOrder& order, PayloadArena& arena,
                     BlockCodec& codec, const ResidencyOptions& options)
    : memory_(memory),
      order_(order),
      arena_(arena),
      codec_(codec),
      compress_(options.compress),
      plan_only_(options.plan_only),
      at_forward_end_(options.at_forward_end),
      in_place_(options.in_place),
      keep_originals_(options.keep_originals),
      most_waiting_bytes_(options.most_waiting_bytes),
      waiting_part_of_peak_(options.waiting_part_of_peak),
      judged_part_of_peak_(options.judged_part_of_peak) {}

void Residency::set_options(const ResidencyOptions& options) noexcept {
  compress_.store(options.compress, std::memory_order_relaxed);
  plan_only_.store(options.plan_only, std::memory_order_relaxed);
  at_forward_end_.store(options.at_forward_end, std::memory_order_relaxed);
  in_place_.store(options.in_place, std::memory_order_relaxed);
  keep_originals_.store(options.keep_originals, std::memory_order_relaxed);
  most_waiting_bytes_.store(options.most_waiting_bytes, std::memory_order_relaxed);
  waiting_part_of_peak_.store(options.waiting_part_of_peak, std::memory_order_relaxed);
  judged_part_of_peak_.store(options.judged_part_of_peak, std::memory_order_relaxed);
}

namespace {

Event event_of(EventKind kind, const Record& record, const Block* block, std::size_t bytes,
               std::uint64_t took_ns) noexcept {
  Event event;
  event.kind = kind;
  event.stream = record.stream;
  event.record = record.id;
  event.key = record.key;
  event.bytes = bytes;
  event.took_ns = took_ns;
  if (block != nullptr) {
    event.block = block->id;
    event.address = reinterpret_cast<std::uint64_t>(block->begin);
  }
  return event;
}

}  // namespace

void Residency::emit(EventScope& scope, EventKind kind, const Record& record, const Block* block,
                     std::size_t bytes, std::uint64_t took_ns) noexcept {
  if (scope.wanted()) [[unlikely]]
    scope.note(event_of(kind, record, block, bytes, took_ns));
}

void Residency::emit_encoded(EventScope& scope, const Record& record,
                             std::uint64_t took_ns) noexcept {
  if (!scope.wanted()) [[likely]]
    return;
  Event event =
      event_of(EventKind::kEncode, record, record.payload_in_block ? record.block : nullptr,
               record.payload_bytes, took_ns);
  if (record.payload_in_block) {
    event.place = PayloadPlace::kInPlace;
  } else if (record.payload) {
    PayloadArena::describe(record.payload, event);
  }
  scope.note(event);
}

void Residency::count_raw(EventScope& scope, Record& record, bool counted) noexcept {
  if (record.counted_raw != counted) {
    record.counted_raw = counted;
    const std::int64_t bytes = signed_bytes(record.bytes);
    scope.change(StatKind::kSavedRaw, counted ? bytes : -bytes);
  }
}

// ---- tag ----------------------------------------------------------------------------------------

void Residency::link_new(EventScope& scope, Block* block, Record* record) noexcept {
  record->block = block;
  record->id = RecordId{++last_id_};
  block->record.store(record, std::memory_order_release);
  count(counters_.tagged);
  count_raw(scope, *record, true);
  emit(scope, EventKind::kTag, *record, block, record->bytes);
}

// An early free must name every stream that can still read the block: without Pleat a saved tensor
// lives until backward, so its users need not.
void Residency::note_pack(Record& record, Block* block, StreamId stream) noexcept {
  if (record.restored != block) record.stream = stream;
  if (stream != block->stream) memory_.note_use(block, stream);
}

// ---- release ------------------------------------------------------------------------------------

void Residency::release_saved(Block* block) noexcept {
  const EventScope scope(memory_.events(), memory_.statistics(), EventScope::Begin::kAlways);
  collect_verdicts();
  Record* record = nullptr;
  bool original = false;
  {
    const std::lock_guard<std::mutex> link(link_mutex_);
    record = block->record.load(std::memory_order_relaxed);
    if (record != nullptr) {
      ++record->references_;  // the last hook can drop during this call
      block->record.store(nullptr, std::memory_order_relaxed);
      original = record->restored != block;
    }
  }
  if (record == nullptr) {
    memory_.free(block);
    return;
  }
  bool kept = false;
  if (original && record->keep_storage()) [[unlikely]] {
    const std::lock_guard<std::mutex> link(link_mutex_);
    kept = record->hooks_without_block() >= record->references_ - 1;  // one is this call's
  }
  {
    RecordGuard guard(*this, *record);
    if (record->restored == block) {
      release_restored(guard.scope_, *record, block);
    } else if (record->block == block && !record->payload_in_block) {
      release_original(guard, *record, block, kept);
    } else {
      // Between the unlinking above and the lock, another thread found this restored block dead and
      // restored the record anew. The record does not refer to this block any more.
      memory_.free(block);
    }
  }
  drop(record);
  keep_within_bound();
}

void Residency::release_restored(EventScope& scope, Record& record, Block* block) noexcept {
  {
    const std::lock_guard<std::mutex> guard(link_mutex_);
    record.restored = nullptr;
  }
  scope.change(StatKind::kRestored, -signed_bytes(record.bytes));
  emit(scope, EventKind::kRestoredFree, record, block, record.bytes);
  if (record.block == block) {  // an adopted raw block: the only copy of the bytes
    transition(record, RecordAction::kAdoptedFreed);
    count_raw(scope, record, true);
    return;
  }
  if (record.state == RecordState::kRestored) {
    if (record.packed()) {
      transition(record, RecordAction::kRestoredFreed);
    } else if (record.block == nullptr) {
      // The bytes were copied out of a moved block that is now freed: this copy is the only one.
      record.block = block;
      if (!order_.is_foreign(block->stream)) record.stream = block->stream;
      transition(record, RecordAction::kAdoptedFreed);
      count_raw(scope, record, true);
      return;
    }
  }
  memory_.free(block);
}

void Residency::release_original(RecordGuard& guard, Record& record, Block* block,
                                 bool kept) noexcept {
  EventScope& scope = guard.scope_;
  count(counters_.released);
  emit(scope, EventKind::kRelease, record, block, record.bytes);
  if (record.state != RecordState::kTagged) {
    // The bytes were copied out at unpack before this free arrived (kRestored), or the block was
    // adopted, and copied out during the free. The copy replaces the block. If the copy is gone
    // already, the block is the only source of the bytes.
    if (record.restored == nullptr) {
      transition(record, RecordAction::kAdoptedFreed);
      count_raw(scope, record, true);
      return;
    }
    count_raw(scope, record, false);
    record.block = nullptr;
    memory_.free(block);
    return;
  }
  if (kept) {
    // resize_(0), a swapped data pointer or a swapped .data: the storage lives on with other bytes,
    // which backward reads without Pleat too. Hold on to that storage from now on.
    transition(record, RecordAction::kKeep);
    count(counters_.kept);
    count_raw(scope, record, false);
    emit(scope, EventKind::kKeep, record, block, record.bytes);
    record.block = nullptr;
    memory_.free(block);
    return;
  }
  transition(record, RecordAction::kRelease);
  switch (at_release(record)) {
    case AtRelease::kEncode:
      encode(guard, record, Start::kRelease);
      break;
    case AtRelease::kWaitForForwardEnd:
      wait(scope, record, Hold::kForwardEnd);
      break;
    case AtRelease::kWaitForProof:
      wait(scope, record, Hold::kProof);
      break;
    case AtRelease::kHold:
      hold(scope, record);
      break;
  }
}

void Residency::set_argument(Record& record, Record& argument, std::uint64_t function) noexcept {
  {
    const RecordGuard guard(*this, argument);
    if (argument.payload_bytes == 0 || argument.payload_in_block ||
        argument.bytes != record.bytes) {
      return;
    }
  }
  const std::lock_guard<std::mutex> link(link_mutex_);
  if (record.argument == nullptr) {
    ++argument.references_;
    ++argument.results_;
    record.argument = &argument;
    record.function = function;
  }
}

std::uint32_t Residency::hooks(const Record& record) noexcept {
  const std::lock_guard<std::mutex> guard(link_mutex_);
  return record.references_ - record.results_;
}

// ---- drop ---------------------------------------------------------------------------------------

// No other thread can reach the record.
void Residency::free_payload(Record& record) noexcept {
  for (const StreamId reader : record.readers) order_.follow(record.stream, reader);
  if (record.payload_in_block) {
    memory_.free(record.block);
  } else {
    arena_.free(record.payload);
  }
}

void Residency::drop_locked(Record* record, std::unique_lock<std::mutex> link,
                            EventScope& scope) noexcept {
  {
    const std::unique_lock<std::mutex> guard = std::move(link);
    if (--record->references_ != 0) {
      return;
    }
    // No other thread can reach the record once its blocks no longer point to it.
    for (Block* block : {record->block, record->restored}) {
      if (block != nullptr && block->record.load(std::memory_order_relaxed) == record) {
        block->record.store(nullptr, std::memory_order_relaxed);
      }
    }
  }
  waiting_.remove(*record);
  const RecordState last = record->state;
  transition(*record, RecordAction::kDrop);
  count(counters_.dropped);
  if (last == RecordState::kTagged) {
    count(counters_.dropped_unreleased);
  }
  count_raw(scope, *record, false);
  if (record->restored != nullptr) {
    scope.change(StatKind::kRestored, -signed_bytes(record->bytes));
  }
  if (record->ticket.value != 0) {
    codec_.forget(record->ticket);
    arena_.free(record->payload);
  }
  const std::size_t payload_bytes = record->payload_bytes;
  if (payload_bytes != 0) {
    scope.change(StatKind::kPayload, -signed_bytes(payload_bytes));
    free_payload(*record);
  } else if (last == RecordState::kHeld || last == RecordState::kWaiting) {
    memory_.free(record->block);
  }  // the block of a kRestored record is the restored one, or a moved one that is still in use
  if (record->original != nullptr) memory_.free(record->original);
  emit(scope, EventKind::kDrop, *record, nullptr, payload_bytes);
  Record* const argument = record->argument;
  delete record;
  if (argument != nullptr) {
    drop(argument, [&] { --argument->results_; });
  }
}

// ---- fork ---------------------------------------------------------------------------------------

void Residency::lock_for_fork() noexcept {
  fork_gate_.close();
  link_mutex_.lock();
  waiting_.lock();
  arena_.lock_for_fork();
  memory_.lock_for_fork();
}

void Residency::unlock_after_fork(ForkSide side) noexcept {
  memory_.unlock_after_fork();
  arena_.unlock_after_fork();
  waiting_.unlock();
  link_mutex_.unlock();
  fork_gate_.open(side);
}

}  // namespace pleat::allocator

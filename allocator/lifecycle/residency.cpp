#include "allocator/lifecycle/residency.h"

#include <cassert>
#include <ctime>

#include "allocator/lifecycle/record_steps.h"

namespace pleat::allocator {

Residency::Residency(BlockMemory& memory, StreamOrder& order, PayloadArena& arena,
                     BlockCodec& codec, const ResidencyOptions& options)
    : memory_(memory),
      order_(order),
      store_(memory, order, arena, codec),
      form_(options.form),
      waiting_part_of_peak_(options.waiting_part_of_peak),
      judged_part_of_peak_(options.judged_part_of_peak) {}

void Residency::set_options(const ResidencyOptions& options) noexcept {
  form_.store(options.form, std::memory_order_relaxed);
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
  const auto* const payload = std::get_if<Payload>(&record.stored);
  Event event = event_of(EventKind::kEncode, record, nullptr,
                         payload != nullptr ? payload->bytes : 0, took_ns);
  if (payload != nullptr) store_.describe(*payload, event);
  scope.note(event);
}

void Residency::emit_planned(EventScope& scope, const Record& record, std::size_t payload_bytes,
                             bool recomputed) noexcept {
  if (!scope.wanted()) return;
  Event event = event_of(EventKind::kPlan, record, nullptr, record.bytes, 0);
  event.planned_bytes = payload_bytes;
  if (recomputed) event.place = PayloadPlace::kArgument;
  scope.note(event);
}

void Residency::recount_raw(EventScope& scope, const Record& record, bool before) noexcept {
  if (const bool now = counts_raw(record); now != before) {
    const std::int64_t bytes = signed_bytes(record.bytes);
    scope.change(StatKind::kSavedRaw, now ? bytes : -bytes);
  }
}

// ---- tag ----------------------------------------------------------------------------------------

void Residency::link_new(EventScope& scope, Block* block, Record* record) noexcept {
  record->stored = Raw{block};
  record->id = RecordId{++last_id_};
  block->record.store(record, std::memory_order_release);
  count(counters_.tagged);
  recount_raw(scope, *record, false);
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
    } else if (raw_block(record->stored) == block) {
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
  const bool counted = counts_raw(record);
  {
    const std::lock_guard<std::mutex> guard(link_mutex_);
    record.restored = nullptr;
  }
  scope.change(StatKind::kRestored, -signed_bytes(record.bytes));
  emit(scope, EventKind::kRestoredFree, record, block, record.bytes);
  const bool adopted = raw_block(record.stored) == block;
  const bool only_copy = std::holds_alternative<Nothing>(record.stored);
  if (adopted || (only_copy && record.state == RecordState::kRestored)) {
    if (only_copy) {  // copied out of a moved block that is now freed
      record.stored = Raw{block};
      if (!order_.is_foreign(block->stream)) record.stream = block->stream;
    }
    transition(record, RecordAction::kAdoptedFreed);
    recount_raw(scope, record, counted);
    return;
  }
  if (record.state == RecordState::kRestored && payload_of(record.stored) != nullptr) {
    transition(record, RecordAction::kRestoredFreed);
  }
  memory_.free(block);
}

void Residency::release_original(RecordGuard& guard, Record& record, Block* block,
                                 bool kept) noexcept {
  EventScope& scope = guard.scope_;
  const bool counted = counts_raw(record);
  count(counters_.released);
  emit(scope, EventKind::kRelease, record, block, record.bytes);
  if (record.state != RecordState::kTagged) {
    // The bytes were copied out at unpack before this free arrived (kRestored), or the block was
    // adopted, and copied out during the free. The copy replaces the block. If the copy is gone
    // already, the block is the only source of the bytes.
    if (record.restored == nullptr) {
      transition(record, RecordAction::kAdoptedFreed);
      return;
    }
    record.stored = Nothing{};
    recount_raw(scope, record, counted);
    memory_.free(block);
    return;
  }
  if (kept) {
    // resize_(0), a swapped data pointer or a swapped .data: the storage lives on with other bytes,
    // which backward reads without Pleat too. Hold on to that storage from now on.
    transition(record, RecordAction::kKeep);
    count(counters_.kept);
    record.stored = Nothing{};
    recount_raw(scope, record, counted);
    emit(scope, EventKind::kKeep, record, block, record.bytes);
    memory_.free(block);
    return;
  }
  transition(record, RecordAction::kRelease);
  bool any_hook = false;
  {
    const std::lock_guard<std::mutex> link(link_mutex_);
    any_hook = record.references_ > 1;  // one is this call's
  }
  if (!any_hook) {
    hold(scope, record);  // drop() frees the block
  } else if (!is_compressing()) {
    count(counters_.held);
    hold(scope, record);
  } else if (const Hold until = record.waits_for(); until != Hold::kNone) {
    wait(scope, record, until);
  } else {
    encode(guard, record, Start::kRelease);
  }
}

void Residency::set_argument(Record& record, Record& argument, std::uint64_t function) noexcept {
  {
    const RecordGuard guard(*this, argument);
    const auto* const payload = std::get_if<Payload>(&argument.stored);
    if (payload == nullptr || payload->is_in_place() || argument.bytes != record.bytes) return;
  }
  const std::lock_guard<std::mutex> link(link_mutex_);
  if (record.argument.record == nullptr) {
    ++argument.references_;
    ++argument.results_;
    record.argument = {&argument, function};
  }
}

std::uint32_t Residency::hooks(const Record& record) noexcept {
  const std::lock_guard<std::mutex> guard(link_mutex_);
  return record.references_ - record.results_;
}

// ---- drop ---------------------------------------------------------------------------------------

// No other thread can reach the record.
void Residency::free_stored(Record& record) noexcept {
  store_.free(record.stored);
  if (const auto* const in_flight = std::get_if<InFlight>(&record.stored)) {
    record.stored = store_.forget(*in_flight);
  }
  // Else the block belongs to a storage: it is the adopted one, or a moved one that is still in
  // use.
  if (record.state == RecordState::kHeld || record.state == RecordState::kWaiting) {
    memory_.free(raw_block(record.stored));
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
    for (Block* block : {raw_block(record->stored), record->restored}) {
      if (block != nullptr && block->record.load(std::memory_order_relaxed) == record) {
        block->record.store(nullptr, std::memory_order_relaxed);
      }
    }
  }
  waiting_.remove(*record);
  count(counters_.dropped);
  if (record->state == RecordState::kTagged) {
    count(counters_.dropped_unreleased);
  }
  if (counts_raw(*record)) scope.change(StatKind::kSavedRaw, -signed_bytes(record->bytes));
  if (record->restored != nullptr) {
    scope.change(StatKind::kRestored, -signed_bytes(record->bytes));
  }
  const auto* const payload = std::get_if<Payload>(&record->stored);
  const std::size_t payload_bytes = payload != nullptr ? payload->bytes : 0;
  if (payload != nullptr) scope.change(StatKind::kPayload, -signed_bytes(payload_bytes));
  free_stored(*record);
  emit(scope, EventKind::kDrop, *record, nullptr, payload_bytes);
  Record* const argument = record->argument.record;
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
  store_.lock_for_fork();
}

void Residency::unlock_after_fork(ForkSide side) noexcept {
  store_.unlock_after_fork();
  waiting_.unlock();
  link_mutex_.unlock();
  fork_gate_.open(side);
}

}  // namespace pleat::allocator

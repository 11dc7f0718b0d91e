// How a released block is encoded: started, in flight, finished; and the records that wait for it.
#include <algorithm>
#include <mutex>
#include <utility>

#include "allocator/lifecycle/record_steps.h"
#include "allocator/lifecycle/residency.h"

namespace pleat::allocator {

// ---- start --------------------------------------------------------------------------------------

void Residency::encode(RecordGuard& guard, Record& record, Start start) noexcept {
  transition(record, RecordAction::kEncode);
  // Meanwhile other threads wait for the record's state, not for the mutex.
  guard.lock_.unlock();
  const std::uint64_t begin = now_ns();
  const Record::Decision decision = record.decide(start);
  Put put{.block = raw_block(record.stored),
          .bytes = record.bytes,
          .ranges = &record.ranges,
          .choice = decision.choice,
          .nonce = record.nonce,
          .key = record.key,
          .stream = record.stream,
          .owner = record.id,
          .form = form_.load(std::memory_order_relaxed),
          .tier = decision.tier};
  if (record.argument.record != nullptr && decision.may_be_recomputed) {
    // The payload of an argument is final: neither its slot nor its form changes any more.
    put.argument = &std::get<Payload>(record.argument.record->stored);
    put.function = record.argument.function;
  }
  store_.put({&put, 1});
  std::uint64_t took_ns = now_ns() - begin;
  count(counters_.encode_ns, took_ns);
  guard.lock_.lock();
  if (put.form == StoreForm::kPlanned) {
    auto& raw = std::get<Raw>(put.stored);
    if (decision.may_be_recomputed || raw.planned_bytes >= record.bytes) raw.planned_bytes = 0;
    emit_planned(guard.scope_, record, raw.planned_bytes, decision.may_be_recomputed);
    took_ns = 0;
  }
  finish(guard.scope_, record, std::move(put.stored), took_ns);
  record.state.notify_all();
}

// ---- finish -------------------------------------------------------------------------------------

// The record is in kStoring, or in flight.
void Residency::finish(EventScope& scope, Record& record, Stored&& stored,
                       std::uint64_t took_ns) noexcept {
  Block* const block = raw_block(record.stored);
  record.stored = std::move(stored);
  if (auto* const in_flight = std::get_if<InFlight>(&record.stored)) {
    in_flight->took_ns = took_ns;
    count(counters_.queued);
    wait(scope, record, Hold::kVerdict);
    return;
  }
  if (raw_block(record.stored) != nullptr) {
    count(counters_.held);
    hold(scope, record, took_ns);
    return;
  }
  transition(record, RecordAction::kEncoded);
  auto* const payload = std::get_if<Payload>(&record.stored);
  count(counters_.source_bytes, record.bytes);
  if (payload == nullptr) {
    count(counters_.recomputed);
    count(counters_.recomputed_bytes, record.bytes);
  } else {
    count(counters_.encoded);
    count(counters_.payload_bytes, payload->bytes);
    if (payload->is_in_place()) {
      count(counters_.encoded_in_place);
    } else if (form_.load(std::memory_order_relaxed) == StoreForm::kInPlace) {
      count(counters_.not_in_place);
    }
    scope.change(StatKind::kPayload, signed_bytes(payload->bytes));
  }
  scope.change(StatKind::kSavedRaw, -signed_bytes(record.bytes));
  emit_encoded(scope, record, took_ns);
  if (block_beside(record.stored) == nullptr && !(payload != nullptr && payload->is_in_place())) {
    memory_.free(block);  // record.stream can still read it to the end: note_pack()
  }
}

bool Residency::finish_in_flight(EventScope& scope, Record& record, bool may_wait) noexcept {
  const InFlight encode = std::get<InFlight>(record.stored);
  Stored stored = store_.verdict(encode, may_wait);
  if (std::holds_alternative<InFlight>(stored)) return false;
  waiting_.remove(record);
  finish(scope, record, std::move(stored), encode.took_ns);
  return true;
}

void Residency::hold(EventScope& scope, Record& record, std::uint64_t took_ns) noexcept {
  transition(record, RecordAction::kHold);
  emit(scope, EventKind::kHold, record, raw_block(record.stored), record.bytes, took_ns);
}

// ---- waits --------------------------------------------------------------------------------------

void Residency::wait(EventScope& scope, Record& record, Hold hold) noexcept {
  transition(record, RecordAction::kWait);
  emit(scope, EventKind::kWait, record, raw_block(record.stored), record.bytes);
  waiting_.add(record, hold);
}

template <class Due>
Record* Residency::take_waiting(Due&& due) noexcept {
  // The link lock keeps a record alive until this function has taken a reference.
  const std::scoped_lock guard(link_mutex_, waiting_);
  for (Record *record = waiting_.first(), *next; record != nullptr; record = next) {
    next = record->waiting.next;
    if (record->references_ == 0) continue;  // another thread drops it, and waits for the list
    if (due(*record)) {
      ++record->references_;
      waiting_.take_off(*record);
      return record;
    }
  }
  return nullptr;
}

bool Residency::end_wait(Record& record, Start start, bool may_wait, std::size_t* freed) noexcept {
  bool ended = true;
  {
    RecordGuard guard(*this, record);
    if (record.state != RecordState::kWaiting) {
      // Another thread restored the record after it left the list.
    } else if (std::holds_alternative<InFlight>(record.stored)) {
      ended = finish_in_flight(guard.scope_, record, may_wait);
      if (!ended) waiting_.add(record, Hold::kVerdict);  // the verdict has not arrived
    } else if (!is_compressing()) {
      count(counters_.held);
      hold(guard.scope_, record);
    } else {
      encode(guard, record, start);
    }
    if (freed != nullptr && record.state == RecordState::kPacked &&
        block_beside(record.stored) == nullptr) {
      const auto* const payload = std::get_if<Payload>(&record.stored);
      *freed += record.bytes - (payload != nullptr ? payload->bytes : 0);
    }
  }
  drop(&record);
  return ended;
}

void Residency::start(Record& record) noexcept {
  {
    RecordGuard guard(*this, record);
    if (record.state != RecordState::kWaiting || record.waiting.hold != Hold::kProof ||
        !waiting_.remove(record)) {
      return;
    }
    const std::lock_guard<std::mutex> link(link_mutex_);
    ++record.references_;
  }
  end_wait(record, Start::kProof, false);
  keep_within_bound();
}

void Residency::forward_end() noexcept {
  while (Record* const record =
             take_waiting([](const Record& r) { return r.waiting.hold == Hold::kForwardEnd; })) {
    end_wait(*record, Start::kForwardEnd, false);
  }
  collect_verdicts();
  keep_within_bound();
}

void Residency::collect_verdicts() noexcept {
  store_.collect();
  if (waiting_.count(Hold::kVerdict) == 0) [[likely]]
    return;
  while (Record* const record = take_waiting([this](const Record& r) { return is_decided(r); })) {
    end_wait(*record, Start::kRelease, false);
  }
}

namespace {

bool awaits_verdict(const Record& record) noexcept { return record.waiting.hold == Hold::kVerdict; }

}  // namespace

template <class Due>
bool Residency::end_oldest_wait(Shortage& shortage, Due&& due) noexcept {
  // A captured stream cannot be queried, nor a stream next to a captured one.
  Record* const oldest = take_waiting([&](const Record& r) {
    return due(r) && (!awaits_verdict(r) || is_decided(r) ||
                      (shortage.patient && !order_.is_captured(r.stream)));
  });
  if (oldest == nullptr) return false;
  if (!end_wait(*oldest, Start::kShortage, shortage.patient, &shortage.freed)) {
    shortage.patient = false;
  }
  return true;
}

void Residency::keep_within_bound() noexcept {
  constexpr std::size_t kAlways = 2;  // records
  if (waiting_.bounded_count() <= kAlways) return;
  const StatValues requested = memory_.statistics().read(StatKind::kRequested);
  const auto part_of_peak = [&](const std::atomic<std::size_t>& of_parts) {
    const std::size_t parts = of_parts.load(std::memory_order_relaxed);
    return parts == 0 ? SIZE_MAX : static_cast<std::size_t>(requested.peak) / parts;
  };
  // A host that runs ahead of its device would hold all sources of the queued encodes. Waiting
  // costs the host no time: the device has other work queued behind the oldest encode.
  const std::size_t most_judged = part_of_peak(judged_part_of_peak_);
  Shortage shortage;
  while (waiting_.bytes(Hold::kVerdict) > most_judged && waiting_.count(Hold::kVerdict) > kAlways) {
    if (!end_oldest_wait(shortage, awaits_verdict)) break;
  }
  const std::size_t most = part_of_peak(waiting_part_of_peak_);
  while (waiting_.bounded_bytes() > most && waiting_.bounded_count() > kAlways) {
    if (!end_oldest_wait(shortage,
                         [](const Record& r) { return r.waiting.hold != Hold::kForwardEnd; })) {
      return;
    }
  }
}

bool Residency::make_room(std::size_t bytes) noexcept {
  const std::size_t judged = waiting_.count(Hold::kVerdict);
  collect_verdicts();
  if (waiting_.count(Hold::kVerdict) < judged) return true;
  Shortage shortage;
  const auto waits = [](const Record&) { return true; };
  while (shortage.freed < bytes &&
         (end_oldest_wait(shortage, awaits_verdict) || end_oldest_wait(shortage, waits))) {
  }
  return shortage.freed >= bytes || store_.demote(bytes - shortage.freed) || shortage.freed != 0;
}

}  // namespace pleat::allocator

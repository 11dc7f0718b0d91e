// How a released block is encoded: started, in flight, finished; and the records that wait for it.
#include <algorithm>
#include <mutex>
#include <utility>

#include "allocator/residency/record_steps.h"
#include "allocator/residency/residency.h"

namespace pleat::allocator {

// ---- start --------------------------------------------------------------------------------------

Residency::AtRelease Residency::at_release(const Record& record) noexcept {
  {
    const std::lock_guard<std::mutex> link(link_mutex_);
    if (record.references_ <= 1)
      return AtRelease::kHold;  // all hooks are gone; drop() frees the block
  }
  if (!compress_.load(std::memory_order_relaxed) || stopped()) {
    count(counters_.held);
    return AtRelease::kHold;
  }
  if (at_forward_end_.load(std::memory_order_relaxed)) return AtRelease::kWaitForForwardEnd;
  if (record.awaits_proof()) return AtRelease::kWaitForProof;
  return AtRelease::kEncode;
}

void Residency::encode(RecordGuard& guard, Record& record, Start start) noexcept {
  transition(record, RecordAction::kEncode);
  // Meanwhile other threads wait for the record's state, not for the mutex.
  guard.lock_.unlock();
  const std::uint64_t begin = now_ns();
  Attempt attempt = this->attempt(record, start);
  const std::uint64_t took_ns = now_ns() - begin;
  count(counters_.encode_ns, took_ns);
  if (!plan_only_.load(std::memory_order_relaxed)) attempt.took_ns = took_ns;
  guard.lock_.lock();
  finish(guard.scope_, record, attempt);
  record.state.notify_all();
}

Residency::Attempt Residency::attempt(Record& record, Start start) noexcept {
  const Record::Decision decision = record.decide(start);
  record.choice = decision.choice;
  EncodeRequest request{record.block->begin,  record.bytes,  record.ranges.data(),
                        record.ranges.size(), record.choice, record.nonce,
                        record.key,           record.stream};
  if (const Record* const argument = record.argument;
      argument != nullptr && decision.may_be_recomputed) {
    request.argument = {argument->payload.data, argument->payload_bytes, argument->form,
                        argument->ranges.data(), argument->ranges.size()};
    request.function = record.function;
  }
  if (plan_only_.load(std::memory_order_relaxed)) [[unlikely]] {
    const EncodePlan plan = codec_.plan(request);
    record.note_plan(plan.room == 0 ? 0 : codec_.expected_bytes(request, plan));
    return {};
  }
  // Encoding in place cannot be undone.
  request.thorough = in_place_.load(std::memory_order_relaxed);
  Attempt attempt = this->attempt(record, request);
  if (attempt.result.status == CodecStatus::kPlanAgain && !request.thorough) {
    request.thorough = true;
    attempt = this->attempt(record, request);
  }
  return attempt;
}

Residency::Attempt Residency::attempt(Record& record, EncodeRequest request) noexcept {
  const EncodePlan plan = codec_.plan(request);
  if (plan.recomputed) return {.result = {.status = CodecStatus::kOk}, .recomputed = true};
  if (plan.room == 0 || order_.is_captured(record.stream)) return {};
  // In place: over the head of the block itself. No other stream may still use the block.
  const bool may_be_in_place = plan.in_place && record.stream == record.block->stream &&
                               !memory_.used_elsewhere(record.block);
  const bool in_place = may_be_in_place && in_place_.load(std::memory_order_relaxed);
  if (in_place) {
    EncodeResult result = codec_.encode_in_place(request, plan);
    if (result.status == CodecStatus::kOk) return {.result = result, .in_place = true};
  }
  PayloadSlot scratch;
  if (plan.scratch != 0 && !(scratch = arena_.allocate(plan.scratch, record.stream))) return {};
  if (PayloadSlot slot = arena_.allocate(plan.room, record.stream, record.id)) {
    request.scratch = scratch.data;
    EncodeResult result = codec_.encode(request, plan, slot.data, slot.bytes);
    if (scratch) arena_.free(scratch);
    if (result.status == CodecStatus::kOk || result.status == CodecStatus::kQueued) {
      return {.result = result, .slot = slot};
    }
    arena_.free(slot);
    return {.result = {.status = result.status}};
  } else if (scratch) {
    arena_.free(scratch);
  } else if (may_be_in_place && !in_place) {
    EncodeResult result = codec_.encode_in_place(request, plan);
    if (result.status == CodecStatus::kOk) return {.result = result, .in_place = true};
  }
  return {};
}

// ---- finish -------------------------------------------------------------------------------------

// The record is in kEncoding, or in kWaiting with a verdict.
void Residency::finish(EventScope& scope, Record& record, const Attempt& attempt) noexcept {
  const EncodeResult& result = attempt.result;
  Block* const block = record.block;
  if (result.status == CodecStatus::kQueued) {
    record.payload = attempt.slot;
    record.ticket = result.ticket;
    record.encode_ns = attempt.took_ns;
    count(counters_.queued);
    wait(scope, record, Hold::kVerdict);
    return;
  }
  if (result.status != CodecStatus::kOk) {
    if (attempt.slot) {
      PayloadSlot slot = attempt.slot;
      arena_.free(slot);
      record.payload = {};
    }
    count(counters_.held);
    hold(scope, record, attempt.took_ns);
    return;
  }
  record.recomputed = attempt.recomputed;
  if (attempt.in_place) {
    memory_.shrink(block, result.payload_bytes);
    record.payload_in_block = true;
    count(counters_.encoded_in_place);
  } else if (!attempt.recomputed) {
    record.payload = attempt.slot;
    if (result.payload_bytes < record.payload.bytes) {
      arena_.shrink(record.payload, result.payload_bytes);
    }
  }
  record.payload_bytes = result.payload_bytes;
  record.form = result.form;
  transition(record, RecordAction::kEncoded);
  if (++record.encodes > 1) {
    count(counters_.double_encodes);
  }
  if (attempt.recomputed) {
    count(counters_.recomputed);
    count(counters_.recomputed_bytes, record.bytes);
  } else {
    count(counters_.encoded);
  }
  count(counters_.source_bytes, record.bytes);
  count(counters_.payload_bytes, record.payload_bytes);
  count_raw(scope, record, false);
  scope.change(StatKind::kPayload, signed_bytes(record.payload_bytes));
  emit_encoded(scope, record, attempt.took_ns);
  if (!record.payload_in_block) {
    record.block = nullptr;
    if (keep_originals_.load(std::memory_order_relaxed)) {
      record.original = block;
    } else {
      memory_.free(block);  // record.stream can still read it to the end: note_pack()
    }
  }
}

Residency::Attempt Residency::verdict(Record& record, bool may_wait) noexcept {
  return {.result = codec_.verdict(record.ticket, may_wait),
          .slot = record.payload,
          .took_ns = record.encode_ns};
}

void Residency::hold(EventScope& scope, Record& record, std::uint64_t took_ns) noexcept {
  transition(record, RecordAction::kHold);
  emit(scope, EventKind::kHold, record, record.block, record.bytes, took_ns);
}

// ---- waits --------------------------------------------------------------------------------------

void Residency::wait(EventScope& scope, Record& record, Hold hold) noexcept {
  transition(record, RecordAction::kWait);
  emit(scope, EventKind::kWait, record, record.block, record.bytes);
  waiting_.add(record, hold);
}

template <class Due>
Record* Residency::take_waiting(Due&& due) noexcept {
  // The link lock keeps a record alive until this function has taken a reference.
  const std::scoped_lock guard(link_mutex_, waiting_);
  for (Record *record = waiting_.first(), *next; record != nullptr; record = next) {
    next = record->waiting_next;
    if (record->references_ == 0) continue;  // another thread drops it, and waits for the list
    if (due(*record)) {
      ++record->references_;
      waiting_.take_off(*record);
      return record;
    }
  }
  return nullptr;
}

bool Residency::end_wait(Record& record, Start start, bool may_wait) noexcept {
  bool ended = true;
  {
    RecordGuard guard(*this, record);
    if (record.state != RecordState::kWaiting) {
      // Another thread restored the record after it left the list.
    } else if (record.hold == Hold::kVerdict) {
      const Attempt attempt = verdict(record, may_wait);
      if (attempt.result.status == CodecStatus::kQueued) {
        waiting_.add(record, Hold::kVerdict);  // the verdict has not arrived
        ended = false;
      } else {
        record.ticket = {};
        finish(guard.scope_, record, attempt);
      }
    } else if (stopped() || !compress_.load(std::memory_order_relaxed)) {
      count(counters_.held);
      hold(guard.scope_, record);
    } else {
      encode(guard, record, start);
    }
  }
  drop(&record);
  return ended;
}

void Residency::start(Record& record) noexcept {
  {
    RecordGuard guard(*this, record);
    if (record.state != RecordState::kWaiting || record.hold != Hold::kProof ||
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
             take_waiting([](const Record& r) { return r.hold == Hold::kForwardEnd; })) {
    end_wait(*record, Start::kForwardEnd, false);
  }
  collect_verdicts();
  keep_within_bound();
}

void Residency::collect_verdicts() noexcept {
  if (waiting_.count(Hold::kVerdict) == 0) [[likely]]
    return;
  while (Record* const record = take_waiting([this](const Record& r) {
           return r.hold == Hold::kVerdict && codec_.is_decided(r.ticket);
         })) {
    end_wait(*record, Start::kRelease, false);
  }
}

template <class Due>
bool Residency::end_oldest_wait(Shortage& shortage, Due&& due) noexcept {
  // A captured stream cannot be queried, nor a stream next to a captured one.
  Record* const oldest = take_waiting([&](const Record& r) {
    return due(r) && (r.hold != Hold::kVerdict || codec_.is_decided(r.ticket) ||
                      (shortage.patient && !order_.is_captured(r.stream)));
  });
  if (oldest == nullptr) return false;
  if (end_wait(*oldest, Start::kShortage, shortage.patient)) {
    shortage.any_ended = true;
  } else {
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
    if (!end_oldest_wait(shortage, [](const Record& r) { return r.hold == Hold::kVerdict; })) break;
  }
  const std::size_t most = std::min(most_waiting_bytes_.load(std::memory_order_relaxed),
                                    part_of_peak(waiting_part_of_peak_));
  while (waiting_.bounded_bytes() > most && waiting_.bounded_count() > kAlways) {
    if (!end_oldest_wait(shortage, [](const Record& r) { return r.hold != Hold::kForwardEnd; })) {
      return;
    }
  }
}

bool Residency::make_room() noexcept {
  Shortage shortage;
  while (end_oldest_wait(shortage, [](const Record&) { return true; })) {
  }
  return shortage.any_ended;
}

}  // namespace pleat::allocator

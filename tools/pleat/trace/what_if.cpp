#include "what_if.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "interpose/trace/wrapping.h"

namespace pleat::trace {
namespace {

// What a file says of sizes: more is nonsense, and must not overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 56;

std::int64_t sane(std::uint64_t bytes) noexcept {
  return static_cast<std::int64_t>(std::min(bytes, static_cast<std::uint64_t>(kMostBytes)));
}

}  // namespace

// ---- sums ---------------------------------------------------------------------------------------

void WhatIf::change(Record& record, const Change& to) noexcept {
  const auto add = [&](ByteClass of, std::int64_t bytes) {
    std::int64_t& sum = changes_[static_cast<std::size_t>(of)];
    sum = wrapping_add(sum, bytes);
    change_ = wrapping_add(change_, bytes);
  };
  add(record.change.of, wrapping_subtract(0, record.change.raw));
  add(ByteClass::kPayloads, wrapping_subtract(to.payload, record.change.payload));
  add(to.of, to.raw);
  record.change = to;
}

WhatIf::Moment WhatIf::now(const PleatTraceEvent& event, const Ledger& ledger) const {
  const Totals& totals = ledger.totals(device_);
  Moment moment{{live_, ledger.events() - 1, event.time_ns, ledger.step(), event.phase}, {}};
  for (std::size_t i = 0; i < kByteClasses; ++i)
    moment.classes[i] = wrapping_add(totals.bytes[i], changes_[i]);
  return moment;
}

void WhatIf::note(const PleatTraceEvent& event, const Ledger& ledger) {
  live_ = wrapping_add(ledger.totals(device_).live(), change_);
  highest_ = std::max(highest_, live_);
  if (live_ > peak_.peak.bytes && filter_.holds(event.time_ns)) peak_ = now(event, ledger);
}

// Raw bytes are given back as they are, but a payload is restored into a new block: for a moment
// there seem to be both.
void WhatIf::note_allocated(const PleatTraceEvent& event, const Ledger& ledger) {
  live_ = wrapping_add(ledger.totals(device_).live(), change_);
  allocated_ = event.block;
  with_allocated_ = now(event, ledger);
}

void WhatIf::end_allocated(const PleatTraceEvent& event) {
  const std::uint64_t block = std::exchange(allocated_, 0);
  if (block == 0 || (event.kind == PLEAT_TRACE_RESTORE && event.block == block)) return;
  highest_ = std::max(highest_, with_allocated_.peak.bytes);
  if (with_allocated_.peak.bytes > peak_.peak.bytes && filter_.holds(with_allocated_.peak.time_ns))
    peak_ = with_allocated_;
}

// ---- records and their blocks -------------------------------------------------------------------

void WhatIf::unbind(std::uint64_t id, Record& record) {
  const std::uint64_t* const owner = records_of_.find(record.block);
  if (owner != nullptr && *owner == id) records_of_.erase(record.block);
  record.block = 0;
}

void WhatIf::bind(std::uint64_t id, Record& record, std::uint64_t block) {
  if (record.block != block) unbind(id, record);
  std::uint64_t* const owner = records_of_.find_or_insert(block);
  if (owner == nullptr) return;
  *owner = id;
  record.block = block;
}

void WhatIf::forget(std::uint64_t id) {
  Record* const record = records_.find(id);
  if (record == nullptr) return;
  change(*record, {});
  unbind(id, *record);
  records_.erase(id);
}

void WhatIf::block_died(std::uint64_t block) {
  const std::uint64_t* const owner = records_of_.find(block);
  if (owner == nullptr) [[likely]]
    return;
  const std::uint64_t id = *owner;
  Record& record = *records_.find(id);
  if (record.form == Form::kPacked) return forget(id);  // its only bytes: DROP comes next
  unbind(id, record);
  change(record, {record.bytes, record.change.payload, ByteClass::kSavedRaw});
}

// ---- decisions ----------------------------------------------------------------------------------

void WhatIf::take_decision(const PleatTraceEvent& event) {
  Record* const record = records_.find_or_insert(event.record);
  if (record == nullptr) return;
  decisions_ = true;
  record->bytes = sane(event.bytes);
  const bool noisy = event.key > 0 && event.reason >= 1 && event.reason <= 8;
  noisy_ = noisy_ || noisy;
  record->noisy = {};
  if (noisy)
    record->noisy = {std::min(sane(event.key), record->bytes), event.reason,
                     static_cast<std::uint8_t>(std::min<std::uint64_t>(event.stream, 8))};
  if (!noisy || record->form != Form::kNone) return;
  // The room for the payload is taken before it is known how much of it is used.
  const std::int64_t room =
      record->noisy.count * record->noisy.bits / 8 + beside_codes(record->noisy.count);
  change(*record, {0, (stays_raw(*record) ? 0 : scaled(*record, room)) - room});
}

void WhatIf::take_plan(const PleatTraceEvent& event) {
  Record* const record = records_.find_or_insert(event.record);
  if (record == nullptr) return;
  plans_ = true;
  record->bytes = sane(event.bytes);
  record->planned = sane(event.key);
  record->plan = event.reason == PLEAT_TRACE_PLAN_CODED        ? Plan::kCoded
                 : event.reason == PLEAT_TRACE_PLAN_RECOMPUTED ? Plan::kRecomputed
                                                               : Plan::kRaw;
  if (record->form == Form::kNone) change(*record, {});
}

// ---- events of the allocator --------------------------------------------------------------------

WhatIf::Change WhatIf::without_block(const PleatTraceEvent& event, std::int64_t payload,
                                     const Ledger& ledger) const {
  // One of before the trace is known by its size only.
  const std::optional<LiveEntry> block = ledger.block(device_, event.block);
  return {wrapping_subtract(0, block ? block->bytes : sane(event.bytes)), payload,
          block ? block->of : ByteClass::kUnknown};
}

void WhatIf::take_hold(const PleatTraceEvent& event, const Ledger& ledger) {
  Record* const record = records_.find(event.record);
  if (record == nullptr) return;
  const bool packed = record->plan == Plan::kCoded || record->plan == Plan::kRecomputed;
  if (!packed || stays_raw(*record)) return forget(event.record);
  // A block has one record: of another the end was not told.
  if (record->block != event.block) block_died(event.block);
  const std::int64_t payload = record->plan == Plan::kCoded ? scaled(*record, record->planned) : 0;
  if (record->form == Form::kNone) {  // raw bytes and payload, until it is coded
    change(*record, {0, payload});
    note(event, ledger);
  }
  record->form = Form::kPacked;
  bind(event.record, *record, event.block);
  change(*record, without_block(event, payload, ledger));
}

void WhatIf::take_encode(const PleatTraceEvent& event, const Ledger& ledger) {
  decisions_ = true;
  Record* const record = records_.find(event.record);
  if (record == nullptr) return;  // it is as it would be
  const std::int64_t payload = sane(event.bytes);
  if (!stays_raw(*record)) {
    record->form = Form::kScaled;
    unbind(event.record, *record);
    return change(*record, {0, scaled(*record, payload) - payload});
  }
  record->form = Form::kUnpacked;
  unpacks_ = true;
  const LiveRecord* const known = ledger.record(device_, event.record);
  const std::uint64_t source = known != nullptr ? known->block : 0;
  // In place the block holds the payload by now, else it is freed next.
  const bool raw_lives =
      event.reason != PLEAT_TRACE_PLACE_IN_PLACE && ledger.block(device_, source).has_value();
  if (raw_lives) {
    bind(event.record, *record, source);
  } else {
    unbind(event.record, *record);
  }
  change(*record,
         {raw_lives ? 0 : record->bytes, wrapping_subtract(0, payload), ByteClass::kSavedRaw});
}

void WhatIf::take_restore(const PleatTraceEvent& event) {
  Record* const record = records_.find(event.record);
  if (record == nullptr || event.block == 0) return;
  if (record->form == Form::kPacked) {
    // Given back as it is. If it was before, and has died since, a copy stands in for it.
    const bool given_back = record->change.raw == 0;
    if (record->block != event.block && !given_back) return;
  } else if (record->form != Form::kUnpacked) {
    return;
  }
  bind(event.record, *record, event.block);
  change(*record, {0, record->change.payload, record->change.of});
}

void WhatIf::take_restored_free(const PleatTraceEvent& event, const Ledger& ledger) {
  Record* const record = records_.find(event.record);
  if (record == nullptr || record->form != Form::kPacked || record->block != event.block) return;
  change(*record, without_block(event, record->change.payload, ledger));
}

void WhatIf::take_shrink(const PleatTraceEvent& event) {
  const std::uint64_t* const owner = records_of_.find(event.block);
  if (owner == nullptr) [[likely]]
    return;
  Record& record = *records_.find(*owner);
  if (record.form != Form::kPacked || record.change.raw == 0) return;
  change(record, {wrapping_subtract(0, static_cast<std::int64_t>(event.bytes)),
                  record.change.payload, record.change.of});
}

void WhatIf::take_memory(const PleatTraceEvent& event, const Ledger& ledger) {
  switch (event.kind) {
    case PLEAT_TRACE_ALLOCATE:
    case PLEAT_TRACE_FREE:
      block_died(event.block);
      break;
    case PLEAT_TRACE_SHRINK:
      take_shrink(event);
      break;
    case PLEAT_TRACE_TAG:
      forget(event.record);
      block_died(event.block);  // of another record
      break;
    case PLEAT_TRACE_KEEP:
    case PLEAT_TRACE_DROP:
      forget(event.record);
      break;
    case PLEAT_TRACE_HOLD:
      take_hold(event, ledger);
      break;
    case PLEAT_TRACE_ENCODE:
      take_encode(event, ledger);
      break;
    case PLEAT_TRACE_RESTORE:
      take_restore(event);
      break;
    case PLEAT_TRACE_RESTORED_FREE:
      take_restored_free(event, ledger);
      break;
    default:
      break;
  }
}

void WhatIf::take(const PleatTraceEvent& event, const Ledger& ledger) {
  highest_ = live_;
  if (event.device != device_) return;
  if (event.kind == PLEAT_TRACE_DECIDED) return take_decision(event);
  if (event.kind == PLEAT_TRACE_PLAN) return take_plan(event);
  if (event.kind >= PLEAT_TRACE_PHASE && event.kind != PLEAT_TRACE_PRESENT) return;
  end_allocated(event);
  take_memory(event, ledger);
  if (unpacks_ && event.kind == PLEAT_TRACE_ALLOCATE) return note_allocated(event, ledger);
  note(event, ledger);
}

// ---- a moment -----------------------------------------------------------------------------------

std::int64_t WhatIf::tell(std::vector<LiveEntry>& live, const Ledger& ledger) const {
  std::unordered_set<std::uint64_t> told;
  LiveEntry* rest = nullptr;
  for (LiveEntry& entry : live) {
    entry.would_be = entry.bytes;
    if (entry.block == 0 && entry.record == 0 && entry.of == ByteClass::kUnknown) rest = &entry;
    const std::uint64_t* const owner = records_of_.find(entry.block);
    const std::uint64_t id = owner != nullptr                   ? *owner
                             : entry.of == ByteClass::kPayloads ? entry.record
                                                                : 0;
    const Record* const record = records_.find(id);
    // What a payload becomes stands with the payload, and not with the block it is restored into.
    if (record == nullptr || (owner != nullptr) != (record->form == Form::kPacked)) continue;
    if (told.insert(id).second)
      entry.would_be =
          wrapping_add(entry.bytes, wrapping_add(record->change.raw, record->change.payload));
  }
  std::int64_t unknown = 0;
  std::vector<LiveEntry> more;
  records_.for_each([&](std::uint64_t id, const Record& record) {
    const std::int64_t sum = wrapping_add(record.change.raw, record.change.payload);
    if (sum == 0 || told.contains(id)) return;
    const LiveRecord* const known = ledger.record(device_, id);
    if (known == nullptr) {
      unknown = wrapping_add(unknown, sum);
      return;
    }
    LiveEntry& entry = more.emplace_back(entry_of(id, *known));
    entry.would_be = sum;
    if (record.form == Form::kUnpacked) entry.of = ByteClass::kSavedRaw;
  });
  if (unknown != 0) {
    if (rest == nullptr) rest = &more.emplace_back();
    rest->would_be = wrapping_add(rest->would_be, unknown);
  }
  live.insert(live.end(), more.begin(), more.end());
  return wrapping_add(ledger.totals(device_).live(), change_);
}

}  // namespace pleat::trace

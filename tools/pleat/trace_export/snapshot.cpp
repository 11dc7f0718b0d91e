#include "snapshot.h"

#include <algorithm>

#include "formats.h"
#include "interpose/trace/wrapping.h"

namespace pleat::cli {

using trace::ByteClass;
using trace::Ledger;
using trace::LiveEntry;

namespace {

constexpr std::uint64_t kMostEntries = 200'000;  // of a device, unless --max-events says more
constexpr std::uint64_t kAllEntries = 1u << 26;  // more than fit into memory
constexpr std::size_t kMostSegments = 1u << 20;

}  // namespace

// ---- history ------------------------------------------------------------------------------------

std::uint64_t SnapshotHistory::add(const SnapshotEntry& entry) {
  if (most_ == 0) return 0;
  if (entries_.size() < most_) {
    entries_.push_back(entry);
  } else {
    entries_[all_ % most_] = entry;
  }
  return ++all_;
}

SnapshotEntry* SnapshotHistory::find(std::uint64_t number) {
  if (number == 0 || number + entries_.size() <= all_) return nullptr;
  return &entries_[(number - 1) % most_];
}

// ---- events -------------------------------------------------------------------------------------

SnapshotDevice::SnapshotDevice(const TraceExport& to, const trace::DeviceLives& lives)
    : to_(to),
      lives_(lives),
      moment_(to.request.at, lives, to.lives),
      history_(std::min(to.request.most_events.value_or(kMostEntries), kAllEntries)) {}

bool SnapshotDevice::take(const PleatTraceEvent& event, const Ledger& ledger) {
  if (!moment_.may_come()) return false;
  if (is_memory(event.kind) && event.device == lives_.device) take_memory(event, ledger);
  if (!moment_.is_now(event, ledger.events() - 1)) return true;
  take_moment(event, ledger);
  return false;
}

void SnapshotDevice::add(SnapshotAction action, Place& place, const PleatTraceEvent& event) {
  if (!place.listed || !to_.filter.holds(event.time_ns)) return;
  SnapshotEntry entry;
  entry.action = action;
  entry.of = place.of;
  entry.outside = place.outside;
  entry.address = place.address;
  entry.bytes = place.requested;
  entry.stream = place.stream;
  entry.time_ns = event.time_ns;
  entry.place = place.origin;
  const std::uint64_t number = history_.add(entry);
  if (action != SnapshotAction::kAlloc) return;
  place.entry = number;
  if (place.first_entry == 0) place.first_entry = number;
}

void SnapshotDevice::call(Place& place, ByteClass of) {
  place.of = of;
  if (SnapshotEntry* const entry = history_.find(place.entry)) entry->of = of;
}

void SnapshotDevice::attribute(Place& place, trace::Origin origin) {
  place.origin = origin;
  // It was allocated, and where it shrank, freed and allocated again.
  for (const std::uint64_t number : {place.first_entry, place.entry - 1, place.entry}) {
    SnapshotEntry* const entry = history_.find(number);
    if (entry != nullptr && entry->address == place.address) entry->place = origin;
  }
}

// ---- segments -----------------------------------------------------------------------------------

void SnapshotDevice::add_segment(SnapshotAction action, std::uint64_t begin, std::uint64_t end,
                                 const PleatTraceEvent& event) {
  Place whole;
  whole.address = begin;
  whole.requested = static_cast<std::int64_t>(end - begin);
  whole.stream = event.stream;
  add(action, whole, event);
}

bool SnapshotDevice::in_segment(std::uint64_t address) const {
  const auto behind = reserved_.upper_bound(address);
  return behind != reserved_.begin() && std::prev(behind)->second > address;
}

void SnapshotDevice::reserve(const PleatTraceEvent& event) {
  const std::uint64_t end = event.address + event.bytes;
  if (end <= event.address || event.bytes > kMostPieceBytes) return;
  if (reserved_.size() >= kMostSegments) return;
  release(event);  // a segment that is still there
  reserved_.emplace(event.address, end);
  add_segment(SnapshotAction::kSegmentAlloc, event.address, end, event);
}

// To the viewer a segment is freed as a whole: its rest is allocated again.
void SnapshotDevice::release(const PleatTraceEvent& event) {
  const std::uint64_t begin = event.address;
  const std::uint64_t end = begin + event.bytes;
  if (end <= begin) return;
  auto it = reserved_.upper_bound(begin);
  if (it != reserved_.begin() && std::prev(it)->second > begin) --it;
  while (it != reserved_.end() && it->first < end) {
    const auto [left, right] = *it;
    it = reserved_.erase(it);
    add_segment(SnapshotAction::kSegmentFree, left, right, event);
    if (left < begin) {
      reserved_.emplace(left, begin);
      add_segment(SnapshotAction::kSegmentAlloc, left, begin, event);
    }
    if (right > end) {
      reserved_.emplace(end, right);
      add_segment(SnapshotAction::kSegmentAlloc, end, right, event);
    }
  }
}

// ---- blocks and records -------------------------------------------------------------------------

void SnapshotDevice::begin(Place& place, const PleatTraceEvent& event, const Ledger& ledger) {
  place.address = event.address;
  place.requested = static_cast<std::int64_t>(event.bytes);
  place.active = std::max(event.change[PLEAT_TRACE_ACTIVE], place.requested);
  place.stream = event.stream;
  place.outside = !in_segment(event.address);
  place.listed = to_.passes(place.requested, place.origin.op, ledger.step());
  add(SnapshotAction::kAlloc, place, event);
}

// To torch's viewer, which knows no such thing, a smaller block takes the place of a larger.
void SnapshotDevice::shrink(Place& place, const PleatTraceEvent& event) {
  add(SnapshotAction::kFree, place, event);
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  // Of a chunk the places are not counted as active, but the chunk.
  const std::int64_t change = event.kind == PLEAT_TRACE_PAYLOAD_SHRINK
                                  ? trace::wrapping_subtract(bytes, place.active)
                                  : event.change[PLEAT_TRACE_ACTIVE];
  place.active = std::max(trace::wrapping_add(place.active, change), bytes);
  place.requested = bytes;
  add(SnapshotAction::kAlloc, place, event);
}

void SnapshotDevice::end(Place& place, const PleatTraceEvent& event) {
  add(SnapshotAction::kFree, place, event);
}

void SnapshotDevice::take_memory(const PleatTraceEvent& event, const Ledger& ledger) {
  switch (event.kind) {
    case PLEAT_TRACE_SEGMENT_RESERVE:
      return reserve(event);
    case PLEAT_TRACE_SEGMENT_RELEASE:
      return release(event);
    case PLEAT_TRACE_OUT_OF_MEMORY: {
      Place wanted;
      wanted.requested = static_cast<std::int64_t>(event.bytes);
      wanted.stream = event.stream;
      wanted.origin = {event.op, event.stack};
      return add(SnapshotAction::kOutOfMemory, wanted, event);
    }
    case PLEAT_TRACE_ALLOCATE: {
      blocks_.erase(event.block);
      Place* const place = blocks_.insert(event.block);
      const std::optional<LiveEntry> block = ledger.block(event.device, event.block);
      if (place == nullptr || !block) return;
      place->of = block->of;
      place->origin = block->place();
      return begin(*place, event, ledger);
    }
    case PLEAT_TRACE_SHRINK:
      if (Place* const place = blocks_.find(event.block)) shrink(*place, event);
      return;
    case PLEAT_TRACE_FREE:
      if (Place* const place = blocks_.find(event.block)) end(*place, event);
      return blocks_.erase(event.block);
    case PLEAT_TRACE_CHUNK_ALLOCATE:
      chunks_.erase(event.block);
      if (Chunk* const chunk = chunks_.insert(event.block))
        *chunk = {event.address, static_cast<std::int64_t>(event.bytes)};
      return;
    case PLEAT_TRACE_CHUNK_FREE:
      return chunks_.erase(event.block);
    default:
      return take_record(event, ledger);
  }
}

void SnapshotDevice::take_record(const PleatTraceEvent& event, const Ledger& ledger) {
  switch (event.kind) {
    case PLEAT_TRACE_PAYLOAD_ALLOCATE: {
      payloads_.erase(event.address);
      Place* const place = payloads_.insert(event.address);
      if (place == nullptr) return;
      place->of = ByteClass::kPayloads;
      if (const trace::LiveRecord* const record = ledger.record(event.device, event.record))
        place->origin = record->origin;
      return begin(*place, event, ledger);
    }
    case PLEAT_TRACE_PAYLOAD_SHRINK:
      if (Place* const place = payloads_.find(event.address)) shrink(*place, event);
      return;
    case PLEAT_TRACE_PAYLOAD_FREE:
      if (Place* const place = payloads_.find(event.address)) end(*place, event);
      return payloads_.erase(event.address);
    case PLEAT_TRACE_TAG:
      if (Place* const place = blocks_.find(event.block))
        if (!trace::is_for_life(place->of)) call(*place, ByteClass::kSavedRaw);
      return;
    case PLEAT_TRACE_ENCODE:
      return take_encode(event, ledger);
    default:
      return;
  }
}

void SnapshotDevice::take_encode(const PleatTraceEvent& event, const Ledger& ledger) {
  if (event.reason != PLEAT_TRACE_PLACE_CHUNK) {
    Place* const own = blocks_.find(event.block);
    const std::optional<LiveEntry> block = ledger.block(event.device, event.block);
    if (own != nullptr && block && block->of == ByteClass::kPayloads)
      call(*own, ByteClass::kPayloads);
    return;
  }
  // In version 1 only ENCODE names the record.
  Place* const place = payloads_.find(event.address);
  const trace::LiveRecord* const record = ledger.record(event.device, event.record);
  if (place != nullptr && record != nullptr) attribute(*place, record->origin);
}

}  // namespace pleat::cli

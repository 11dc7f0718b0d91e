#include "places.h"

#include "interpose/trace/wrapping.h"

namespace pleat::cli {

using trace::Ledger;
using trace::Origin;
using trace::wrapping_add;

RunSums* RunPlaces::sums(Origin origin) {
  const PlaceKey place = key(origin);
  const std::uint64_t id = (std::uint64_t{place.op} << 32 | place.frame) + 1;  // 0 is no id
  return sums_.find_or_insert(id);
}

void RunPlaces::take(const PleatTraceEvent& event, const Ledger& ledger) {
  if (event.device != device_) return;
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  if (event.kind == PLEAT_TRACE_ALLOCATE) {
    const std::optional<trace::LiveEntry> block = ledger.block(device_, event.block);
    RunSums* const to = sums(block ? block->place() : Origin{event.op, event.stack});
    if (to == nullptr) return;
    to->allocated_bytes = wrapping_add(to->allocated_bytes, bytes);
    ++to->allocations;
  } else if (event.kind == PLEAT_TRACE_TAG) {
    RunSums* const to = sums({event.op, event.stack});
    if (to == nullptr) return;
    to->saved_bytes = wrapping_add(to->saved_bytes, bytes);
    ++to->saved;
  } else if (event.kind == PLEAT_TRACE_HOLD) {
    take_hold(event, ledger);
  }
}

void RunPlaces::take_hold(const PleatTraceEvent& event, const Ledger& ledger) {
  const trace::LiveRecord* const record = ledger.record(device_, event.record);
  if (record == nullptr) return;
  const PlaceKey place = key(record->origin);
  const auto where = std::tuple(place, record->decided, event.reason);
  auto it = left_raw_.find(where);
  if (it == left_raw_.end()) {
    if (left_raw_.size() >= kMostLeftRaw) return;
    it = left_raw_.emplace(where, LeftRaw{place, record->decided, event.reason}).first;
  }
  ++it->second.records;
  it->second.bytes = wrapping_add(it->second.bytes, static_cast<std::int64_t>(event.bytes));
}

std::vector<RunPlace> RunPlaces::places() const {
  std::vector<RunPlace> places;
  places.reserve(sums_.size());
  sums_.for_each([&](std::uint64_t id, const RunSums& sums) {
    const std::uint64_t place = id - 1;
    places.push_back(
        {{static_cast<std::uint32_t>(place >> 32), static_cast<std::uint32_t>(place)}, sums});
  });
  return places;
}

std::vector<LeftRaw> RunPlaces::left_raw() const {
  std::vector<LeftRaw> all;
  all.reserve(left_raw_.size());
  for (const auto& [where, one] : left_raw_) all.push_back(one);
  return all;
}

}  // namespace pleat::cli

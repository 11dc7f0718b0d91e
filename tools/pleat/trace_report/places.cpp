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
  }
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

}  // namespace pleat::cli

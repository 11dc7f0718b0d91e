#include "compression.h"

#include <algorithm>
#include <tuple>

#include "numbers.h"

namespace pleat::trace {
namespace {

void add(std::uint64_t& count, std::int64_t& sum, std::int64_t bytes) noexcept {
  ++count;
  sum = wrapping_add(sum, bytes);
}

}  // namespace

CompressionSums* Compression::of(Origin origin) {
  const std::uint64_t place =
      (std::uint64_t{origin.op} << 32 | lines_.frame_of(origin.stack)) + 1;  // 0 is no id
  return by_place_.find_or_insert(place);
}

void Compression::take_decision(const PleatTraceEvent& event, const Ledger& ledger) {
  const LiveRecord* const record = ledger.record(device_, event.record);
  if (record == nullptr || definitions_.string(event.op) == "may_bear_noise") return;
  const std::tuple key{event.op, record->origin.op, lines_.frame_of(record->origin.stack)};
  if (exact_.size() >= kMostExact && !exact_.contains(key)) return;
  Exact& exact = exact_[key];
  add(exact.records, exact.bytes, static_cast<std::int64_t>(event.bytes));
}

void Compression::take(const PleatTraceEvent& event, const Ledger& ledger) {
  if (event.kind == PLEAT_TRACE_DECIDED && event.device == device_)
    return take_decision(event, ledger);
  if (event.kind < PLEAT_TRACE_TAG || event.kind > PLEAT_TRACE_RESTORE || event.device != device_)
    return;
  const bool counts = event.kind == PLEAT_TRACE_TAG || event.kind == PLEAT_TRACE_HOLD ||
                      event.kind == PLEAT_TRACE_ENCODE || event.kind == PLEAT_TRACE_RESTORE;
  const LiveRecord* const record = counts ? ledger.record(device_, event.record) : nullptr;
  if (record == nullptr) return;
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  for (CompressionSums* const sums : {&all_, of(record->origin)}) {
    if (sums == nullptr) continue;
    switch (event.kind) {
      case PLEAT_TRACE_TAG:
        add(sums->saved, sums->saved_bytes, bytes);
        break;
      case PLEAT_TRACE_HOLD:
        add(sums->held, sums->held_bytes, bytes);
        break;
      case PLEAT_TRACE_ENCODE:
        add(sums->encoded, sums->source_bytes, record->bytes);
        sums->payload_bytes = wrapping_add(sums->payload_bytes, bytes);
        break;
      default:
        add(sums->restored, sums->restored_bytes, bytes);
    }
  }
  if (event.kind == PLEAT_TRACE_HOLD) {
    HeldReason& held = held_[{record->decided, event.reason}];
    add(held.records, held.bytes, bytes);
  }
}

std::vector<CompressionLine> Compression::lines() const {
  std::vector<CompressionLine> lines;
  lines.reserve(by_place_.size());
  by_place_.for_each([&](std::uint64_t place, const CompressionSums& sums) {
    lines.push_back({static_cast<std::uint32_t>((place - 1) >> 32),
                     static_cast<std::uint32_t>(place - 1), sums});
  });
  std::sort(lines.begin(), lines.end(), [](const CompressionLine& a, const CompressionLine& b) {
    return std::tie(b.sums.saved_bytes, a.op, a.frame) <
           std::tie(a.sums.saved_bytes, b.op, b.frame);
  });
  return lines;
}

std::vector<ExactLine> Compression::exact() const {
  std::vector<ExactLine> lines;
  for (const auto& [key, sums] : exact_) {
    const auto [why, op, frame] = key;
    lines.push_back({std::string(definitions_.string(why)), op, frame, sums.records, sums.bytes});
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const ExactLine& a, const ExactLine& b) { return a.bytes > b.bytes; });
  return lines;
}

std::vector<HeldReason> Compression::reasons() const {
  std::vector<HeldReason> reasons;
  for (const auto& [why, sums] : held_) {
    HeldReason reason = sums;
    reason.reason = why.first != 0    ? std::string(definitions_.string(why.first))
                    : why.second != 0 ? "reason " + std::to_string(why.second)
                                      : "no reason told";
    reasons.push_back(std::move(reason));
  }
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const HeldReason& a, const HeldReason& b) { return a.bytes > b.bytes; });
  return reasons;
}

}  // namespace pleat::trace

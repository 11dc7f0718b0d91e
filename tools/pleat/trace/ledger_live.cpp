// What a ledger tells of a moment.
#include <algorithm>

#include "ledger_state.h"

namespace pleat::trace {
namespace {

const Totals kNothing;

}  // namespace

const Ledger::Device* Ledger::find(int index) const noexcept {
  if (last_device_ != nullptr && index == last_index_) return last_device_;
  const auto it = devices_.find(index);
  return it == devices_.end() ? nullptr : it->second.get();
}

const Totals& Ledger::totals(int device) const noexcept {
  const Device* const found = find(device);
  return found == nullptr ? kNothing : found->now;
}

std::int64_t Ledger::other() const noexcept {
  if (resident_ < 0) return 0;
  return distance_above(resident_, wrapping_add(totals(-1).reserved(), small_));
}

const LiveRecord* Ledger::record(int device, std::uint64_t id) const noexcept {
  const Device* const found = find(device);
  return found == nullptr ? nullptr : found->records.find(id);
}

std::vector<LiveEntry> Ledger::live(int device) const {
  std::vector<LiveEntry> entries;
  const Device* const found = find(device);
  if (found == nullptr) return entries;
  std::int64_t unknown = found->now.of(ByteClass::kUnknown);
  found->blocks.for_each([&](std::uint64_t id, const LiveBlock& block) {
    LiveEntry entry = entry_of(*found, id, block);
    if (const LiveRecord* const record = found->records.find(block.record)) entry.key = record->key;
    if (entry.of == ByteClass::kUnknown) unknown = wrapping_subtract(unknown, entry.bytes);
    entries.push_back(entry);
  });
  std::int64_t chunked = std::max<std::int64_t>(found->chunked, 0);
  found->records.for_each([&](std::uint64_t id, const LiveRecord& record) {
    if (record.chunk_bytes <= 0) return;
    LiveEntry entry = trace::entry_of(id, record);
    entry.bytes = std::min(record.chunk_bytes, chunked);
    chunked -= entry.bytes;
    if (entry.bytes > 0) entries.push_back(entry);
  });
  const auto add_rest = [&](ByteClass of, std::int64_t bytes) {
    if (bytes <= 0) return;
    LiveEntry entry;
    entry.bytes = bytes;
    entry.of = of;
    entries.push_back(entry);
  };
  add_rest(ByteClass::kPayloads, chunked);
  add_rest(ByteClass::kUnknown, unknown);
  return entries;
}

std::vector<LiveEntry> Ledger::chunks(int device) const {
  std::vector<LiveEntry> chunks;
  if (const Device* const found = find(device)) {
    found->chunks.for_each([&](std::uint64_t /*id*/, const LifeChunk& chunk) {
      LiveEntry& entry = chunks.emplace_back();
      entry.address = chunk.address;
      entry.bytes = chunk.bytes;
    });
  }
  return chunks;
}

std::vector<LiveEntry> Ledger::chunked_payloads(int device) const {
  std::vector<LiveEntry> payloads;
  if (const Device* const found = find(device)) {
    found->slots.for_each([&](std::uint64_t address, const LifeSlot& slot) {
      const LiveRecord* const record = found->records.find(slot.record);
      LiveEntry& entry = payloads.emplace_back();
      if (record != nullptr) entry = trace::entry_of(slot.record, *record);
      entry.address = address;
      entry.bytes = slot.bytes;
      entry.of = ByteClass::kPayloads;
    });
  }
  return payloads;
}

Gaps Ledger::gaps(int device) const {
  Gaps gaps;
  const Device* const found = find(device);
  if (found == nullptr || found->segments.empty()) return gaps;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // begin, end
  const auto add = [&](std::uint64_t address, std::int64_t bytes) {
    if (address != 0 && bytes > 0)
      taken.emplace_back(address, address + static_cast<std::uint64_t>(bytes));
  };
  found->blocks.for_each(
      [&](std::uint64_t /*id*/, const LiveBlock& block) { add(block.address, block.bytes); });
  found->chunks.for_each(
      [&](std::uint64_t /*id*/, const LifeChunk& chunk) { add(chunk.address, chunk.bytes); });
  std::sort(taken.begin(), taken.end());
  auto next = taken.begin();
  for (const auto& [begin, end] : found->segments) {
    std::uint64_t at = begin;
    const auto pass = [&](std::uint64_t to) {
      if (to <= at) return;
      const auto room = static_cast<std::int64_t>(to - at);
      gaps.free_bytes = wrapping_add(gaps.free_bytes, room);
      gaps.largest = std::max(gaps.largest, room);
    };
    for (; next != taken.end() && next->first < end; ++next) {
      if (next->second <= begin) continue;
      pass(next->first);
      at = std::max(at, next->second);
    }
    pass(end);
    gaps.segment_bytes = wrapping_add(gaps.segment_bytes, static_cast<std::int64_t>(end - begin));
  }
  return gaps;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Ledger::segments(int device) const {
  const Device* const found = find(device);
  if (found == nullptr) return {};
  return {found->segments.begin(), found->segments.end()};
}

}  // namespace pleat::trace

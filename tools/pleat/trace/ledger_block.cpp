// What a ledger tells of one block, and of one record.
#include <algorithm>

#include "ledger_state.h"

namespace pleat::trace {

LiveEntry entry_of(std::uint64_t id, const LiveRecord& record) noexcept {
  LiveEntry entry;
  entry.record = id;
  entry.key = record.key;
  entry.born_ns = record.time_ns;
  entry.step = record.step;
  entry.phase = record.phase;
  entry.of = ByteClass::kPayloads;
  entry.born = entry.forward = record.origin;
  entry.module = record.origin.module;
  return entry;
}

LiveEntry Ledger::entry_of(const Device& device, std::uint64_t id, const LiveBlock& block) {
  LiveEntry entry;
  entry.block = id;
  entry.record = block.record;
  entry.address = block.address;
  entry.bytes = block.bytes;
  entry.born_ns = block.born_ns;
  entry.step = block.step;
  entry.phase = block.phase;
  entry.of = block.now();
  entry.born = block.born;
  entry.forward = block.forward;
  entry.module = block.module;
  // One module makes a tensor, another one may save it.
  const bool saved = entry.of == ByteClass::kSavedRaw || entry.of == ByteClass::kPayloads;
  const LiveRecord* const record = saved ? device.records.find(block.record) : nullptr;
  if (record != nullptr) entry.module = record->origin.module;
  return entry;
}

std::optional<LiveEntry> Ledger::block(int device, std::uint64_t id) const {
  const Device* const found = find(device);
  const LiveBlock* const block = found == nullptr ? nullptr : found->blocks.find(id);
  if (block == nullptr) return std::nullopt;
  return entry_of(*found, id, *block);
}

}  // namespace pleat::trace

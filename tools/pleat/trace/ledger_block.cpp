// What a ledger tells of one block.
#include <algorithm>

#include "ledger_state.h"

namespace pleat::trace {

std::optional<LiveEntry> Ledger::block(int device, std::uint64_t id) const {
  const Device* const found = find(device);
  const LiveBlock* const block = found == nullptr ? nullptr : found->blocks.find(id);
  if (block == nullptr) return std::nullopt;
  LiveEntry entry;
  entry.block = id;
  entry.record = block->record;
  entry.address = block->address;
  entry.bytes = block->bytes;
  entry.born_ns = block->born_ns;
  entry.step = block->step;
  entry.phase = block->phase;
  entry.of = block->now();
  entry.born = block->born;
  entry.forward = block->forward;
  return entry;
}

}  // namespace pleat::trace

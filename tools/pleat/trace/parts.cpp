#include "parts.h"

#include <algorithm>

#include "interpose/trace/wrapping.h"

namespace pleat::trace {

// ---- figures ------------------------------------------------------------------------------------

std::int64_t PartFigures::retained() const noexcept {
  return wrapping_add(live[static_cast<std::size_t>(ByteClass::kSavedRaw)],
                      live[static_cast<std::size_t>(ByteClass::kPayloads)]);
}

std::int64_t PartFigures::left_bytes() const noexcept {
  return wrapping_add(wrapping_subtract(saved.saved_bytes, saved.source_bytes),
                      saved.payload_bytes);
}

bool PartFigures::empty() const noexcept {
  return saved.saved == 0 && saved.restored == 0 && temporary == 0 && largest == 0 &&
         std::all_of(live.begin(), live.end(), [](std::int64_t bytes) { return bytes == 0; });
}

// ---- events -------------------------------------------------------------------------------------

template <class Change>
void PartBook::change(std::uint32_t part, Change&& change) {
  if (part >= nodes_.size()) nodes_.resize(part + std::size_t{1});
  change(nodes_[part].own);
  for (; part != kNone; part = parts_.parent_of(part)) change(nodes_[part].all);
}

void PartBook::take(const PleatTraceEvent& event, const Ledger& ledger) {
  if (event.device != device_) return;
  switch (event.kind) {
    case PLEAT_TRACE_ALLOCATE: {
      const std::optional<LiveEntry> block = ledger.block(device_, event.block);
      if (block) take_allocated(*block);
      return look_at(event.block, block);
    }
    case PLEAT_TRACE_FREE:
    case PLEAT_TRACE_SHRINK:
    case PLEAT_TRACE_RESTORED_FREE:
      break;
    case PLEAT_TRACE_TAG:
    case PLEAT_TRACE_KEEP:
    case PLEAT_TRACE_HOLD:
    case PLEAT_TRACE_ENCODE:
    case PLEAT_TRACE_RESTORE:
    case PLEAT_TRACE_DROP:
      take_record(event, ledger);
      break;
    default:
      return;
  }
  look_at(event.block, ledger.block(device_, event.block));
}

void PartBook::take_allocated(const LiveEntry& block) {
  const Origin place = block.place();
  change(parts_.part_of(place), [&](Figures& of) {
    if (block.bytes <= of.largest) return;
    of.largest = block.bytes;
    of.largest_place = place;
  });
}

void PartBook::take_record(const PleatTraceEvent& event, const Ledger& ledger) {
  if (event.kind == PLEAT_TRACE_TAG && event.block != 0) {
    if (std::uint64_t* const block = saved_blocks_.find_or_insert(event.record))
      *block = event.block;
  }
  // The block that was saved is now what it would have been without.
  const bool ends = event.kind == PLEAT_TRACE_KEEP || event.kind == PLEAT_TRACE_ENCODE ||
                    event.kind == PLEAT_TRACE_DROP;
  if (const std::uint64_t* const block = ends ? saved_blocks_.find(event.record) : nullptr) {
    look_at(*block, ledger.block(device_, *block));
    saved_blocks_.erase(event.record);
  }
  const LiveRecord* const record = ledger.record(device_, event.record);
  if (record == nullptr || !counts_in_sums(event.kind)) return;
  change(parts_.part_of(record->origin), [&](Figures& of) {
    add_to(of.saved, event, *record);
    if (event.kind != PLEAT_TRACE_TAG) return;
    if (of.step != ledger.step()) of.saved_now = 0;
    of.step = ledger.step();
    of.saved_now = wrapping_add(of.saved_now, static_cast<std::int64_t>(event.bytes));
    of.saved_in_step = std::max(of.saved_in_step, of.saved_now);
  });
}

// Brings in line what is known of the block's temporary bytes.
void PartBook::look_at(std::uint64_t id, const std::optional<LiveEntry>& block) {
  if (id == 0) return;
  const std::int64_t bytes = block && block->of == ByteClass::kTemporary ? block->bytes : 0;
  Temporary* known = temporary_.find(id);
  if (known == nullptr) {
    if (bytes == 0) return;
    known = temporary_.insert(id);
    if (known == nullptr) return;
    known->part = parts_.part_of(block->place());
  }
  const std::int64_t more = wrapping_subtract(bytes, known->bytes);
  change(known->part, [&](Figures& of) {
    of.temporary_now = wrapping_add(of.temporary_now, more);
    of.temporary = std::max(of.temporary, of.temporary_now);
  });
  known->bytes = bytes;
  if (bytes == 0) temporary_.erase(id);
}

// ---- a moment, and the whole --------------------------------------------------------------------

void PartBook::take_moment(const LiveEntry& entry) {
  change(parts_.part_of(entry.place()), [&](Figures& of) {
    std::int64_t& bytes = of.live[static_cast<std::size_t>(entry.of)];
    bytes = wrapping_add(bytes, entry.bytes);
  });
}

std::vector<PartUse> PartBook::uses() const {
  std::vector<PartUse> uses;
  uses.reserve(nodes_.size());
  for (const Node& node : nodes_) uses.push_back({node.own, node.all});
  return uses;
}

}  // namespace pleat::trace

#include "ledger.h"

#include <algorithm>

#include "ledger_state.h"

namespace pleat::trace {
namespace {

constexpr std::size_t kMostSegments = 1u << 20;

void reserve(std::map<std::uint64_t, std::uint64_t>& segments, std::uint64_t begin,
             std::uint64_t bytes) {
  std::uint64_t end = begin + bytes;
  if (end <= begin || segments.size() >= kMostSegments) return;
  auto it = segments.upper_bound(begin);
  if (it != segments.begin() && std::prev(it)->second >= begin) --it;
  while (it != segments.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    it = segments.erase(it);
  }
  segments.emplace(begin, end);
}

void release(std::map<std::uint64_t, std::uint64_t>& segments, std::uint64_t begin,
             std::uint64_t bytes) {
  const std::uint64_t end = begin + bytes;
  if (end <= begin) return;
  auto it = segments.upper_bound(begin);
  if (it != segments.begin() && std::prev(it)->second > begin) --it;
  while (it != segments.end() && it->first < end) {
    const auto [left, right] = *it;
    it = segments.erase(it);
    if (left < begin) segments.emplace(left, begin);
    if (right > end) segments.emplace(end, right);
  }
}

// The module `inner` is a part of `outer`, or the same.
bool encloses(std::string_view outer, std::string_view inner) {
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
}

}  // namespace

Ledger::Ledger(const File& file, const Lives& lives) : file_(file), lives_(lives) {}
Ledger::~Ledger() = default;

Ledger::Device& Ledger::device(int index) {
  if (last_device_ != nullptr && index == last_index_) return *last_device_;
  std::unique_ptr<Device>& device = devices_[index];
  if (device == nullptr) {
    static const DeviceLives kNothing;
    device = std::make_unique<Device>();
    const auto it = lives_.devices.find(index);
    device->lives = it == lives_.devices.end() ? &kNothing : &it->second;
  }
  last_index_ = index;
  last_device_ = device.get();
  return *device;
}

// ---- places -------------------------------------------------------------------------------------

Origin Ledger::origin_of(const PleatTraceEvent& event) {
  return {event.op, event.stack, lives_.has_modules ? modules_.of(event.thread) : 0};
}

// `own`: where the thread is; `forward`: what it differentiates, or null. A checkpoint runs modules
// again in backward, of which the differentiated operator knows nothing; but a module that
// differentiates what its parts do is not the place of each of these.
std::uint32_t Ledger::module_of(const Origin& own, const Origin* forward) const {
  if (forward == nullptr || forward->module == 0) return own.module;
  if (own.module == 0) return forward->module;
  const Definitions& definitions = file_.definitions();
  const bool is_part =
      encloses(definitions.string(own.module), definitions.string(forward->module));
  return is_part ? forward->module : own.module;
}

// ---- blocks -------------------------------------------------------------------------------------

Ledger::LiveBlock* Ledger::born(Device& device, const PleatTraceEvent& event, bool numbered) {
  LiveBlock* const block = device.blocks.insert(event.block);
  if (block == nullptr) return nullptr;
  const std::vector<ByteClass>& classes = device.lives->classes;
  block->bytes = static_cast<std::int64_t>(event.bytes);
  block->address = event.address;
  block->born_ns = event.time_ns;
  block->step = step_;
  block->phase = event.phase;
  block->born = origin_of(event);
  if (numbered) {
    const std::size_t number = device.next_number++;
    if (number < classes.size()) block->of = classes[number];
  }
  const Origin* const forward = event.node != 0 ? nodes_.find(event.node) : nullptr;
  if (forward != nullptr) block->forward = *forward;
  block->module = module_of(block->born, forward);
  device.add(block->now(), block->bytes);
  return block;
}

// The same decisions as in the first pass, so that numbers agree.
Ledger::LiveBlock* Ledger::known(Device& device, const PleatTraceEvent& event) {
  if (event.block == 0) return nullptr;
  if (LiveBlock* const block = device.blocks.find(event.block)) return block;
  const bool before = device.first_id == 0 || event.block < device.first_id;
  return born(device, event, !(device.began_with_something && before));
}

void Ledger::died(Device& device, std::uint64_t id) {
  const LiveBlock* const block = device.blocks.find(id);
  if (block == nullptr) return;
  device.remove(block->now(), block->bytes);
  device.blocks.erase(id);
}

void Ledger::take_present(Device& device, const PleatTraceEvent& /*event*/) {
  if (device.began_with_something) return;
  device.began_with_something = true;
  device.add_chunked(device.lives->first_payloads);
  for (const PresentBlock& one : device.lives->present) {
    if (device.blocks.find(one.id) != nullptr) continue;
    LiveBlock* const block = device.blocks.insert(one.id);
    if (block == nullptr) return;
    block->bytes = one.bytes;
    block->of = one.of;
    device.add(block->now(), block->bytes);
  }
}

// ---- events -------------------------------------------------------------------------------------

void Ledger::apply(const PleatTraceEvent& event) {
  if (changes_sums(event.kind)) {
    Device& on = device(event.device);
    take_memory(on, event);
    add_changes(on, event);
  } else {
    take_mark(event);
  }
  ++events_;
}

void Ledger::add_changes(Device& device, const PleatTraceEvent& event) {
  Totals& totals = device.totals;
  for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i)
    totals.sums[i] = wrapping_add(totals.sums[i], event.change[i]);
  const std::int64_t unknown = wrapping_subtract(totals.live(), device.known);
  totals.bytes[static_cast<std::size_t>(ByteClass::kUnknown)] = std::max<std::int64_t>(unknown, 0);
  const bool disagrees = unknown < 0;
  if (disagrees && !device.disagrees) ++disagreements_;
  device.disagrees = disagrees;
}

void Ledger::take_mark(const PleatTraceEvent& event) {
  switch (event.kind) {
    case PLEAT_TRACE_PHASE: {
      const std::size_t next = step_ == kNoStep ? 0 : step_ + std::size_t{1};
      if (next < lives_.steps.size() && lives_.steps[next].event == events_)
        step_ = static_cast<std::uint32_t>(next);
      break;
    }
    case PLEAT_TRACE_NODE:
      nodes_.note(event.node, origin_of(event));
      break;
    case PLEAT_TRACE_MODULE:
      modules_.of(event.thread) = event.op;
      break;
    case PLEAT_TRACE_DECIDED:
      if (LiveRecord* const record = device(event.device).records.find(event.record))
        record->decided = event.op;
      break;
    case PLEAT_TRACE_RESIDENT:
      resident_ = static_cast<std::int64_t>(event.bytes);
      break;
    case PLEAT_TRACE_SMALL:
      small_ = static_cast<std::int64_t>(event.bytes);
      break;
    default:
      break;
  }
}

void Ledger::take_memory(Device& device, const PleatTraceEvent& event) {
  switch (event.kind) {
    case PLEAT_TRACE_SEGMENT_RESERVE:
      reserve(device.segments, event.address, event.bytes);
      break;
    case PLEAT_TRACE_SEGMENT_RELEASE:
      release(device.segments, event.address, event.bytes);
      break;
    case PLEAT_TRACE_ALLOCATE:
      if (event.block == 0) break;
      died(device, event.block);
      if (device.first_id == 0) device.first_id = event.block;
      if (LiveBlock* const block = born(device, event, true); block != nullptr && event.record != 0)
        own(*block, event.record, device.records.find(event.record));
      break;
    case PLEAT_TRACE_FREE:
      died(device, event.block);
      break;
    case PLEAT_TRACE_SHRINK:
      if (LiveBlock* const block = device.blocks.find(event.block)) {
        const auto bytes = static_cast<std::int64_t>(event.bytes);
        device.add(block->now(), wrapping_subtract(bytes, block->bytes));
        block->bytes = bytes;
      }
      break;
    case PLEAT_TRACE_CHUNK_ALLOCATE: {
      if (device.first_id == 0) device.first_id = event.block;
      if (Chunk* const chunk = device.chunks.find_or_insert(event.block))
        *chunk = {event.address, static_cast<std::int64_t>(event.bytes)};
      break;
    }
    case PLEAT_TRACE_CHUNK_FREE:
      device.chunks.erase(event.block);
      break;
    case PLEAT_TRACE_PAYLOAD_ALLOCATE:
    case PLEAT_TRACE_PAYLOAD_SHRINK:
    case PLEAT_TRACE_PAYLOAD_FREE:
      take_payload(device, event);
      break;
    case PLEAT_TRACE_PRESENT:
      take_present(device, event);
      break;
    default:
      take_record(device, event);
  }
}

void Ledger::take_record(Device& device, const PleatTraceEvent& event) {
  switch (event.kind) {
    case PLEAT_TRACE_LABEL:
      known(device, event);
      break;
    case PLEAT_TRACE_TAG:
      take_tag(device, event);
      break;
    case PLEAT_TRACE_ENCODE:
      take_encode(device, event);
      break;
    case PLEAT_TRACE_KEEP:
      end_saving(device, event);
      break;
    case PLEAT_TRACE_DROP:
      end_saving(device, event);
      device.records.erase(event.record);
      break;
    case PLEAT_TRACE_RESTORE:
      take_restore(device, event);
      break;
    case PLEAT_TRACE_RESTORED_FREE: {
      LiveBlock* const block = device.blocks.find(event.block);
      // The record holds on to its raw bytes.
      if (block != nullptr && block->overlay == Overlay::kAdopted && block->record == event.record)
        device.overlay(*block, Overlay::kSavedRaw);
      break;
    }
    default:
      break;
  }
}

void Ledger::take_tag(Device& device, const PleatTraceEvent& event) {
  if (LiveBlock* const block = known(device, event)) {
    block->record = event.record;
    device.overlay(*block, Overlay::kSavedRaw);
  }
  LiveRecord* const record = device.records.find_or_insert(event.record);
  const Origin* const forward = event.node != 0 ? nodes_.find(event.node) : nullptr;
  Origin origin = origin_of(event);
  origin.module = module_of(origin, forward);
  if (record != nullptr) {
    *record = {};
    record->bytes = static_cast<std::int64_t>(event.bytes);
    record->block = event.block;
    record->key = event.key;
    record->time_ns = event.time_ns;
    record->step = step_;
    record->phase = event.phase;
    record->origin = origin;
  }
  if (event.node != 0 && forward == nullptr) nodes_.note(event.node, origin);
}

void Ledger::take_payload(Device& device, const PleatTraceEvent& event) {
  device.add_chunked(event.change[PLEAT_TRACE_REQUESTED]);
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  if (event.kind == PLEAT_TRACE_PAYLOAD_ALLOCATE) {
    if (Slot* const slot = device.slots.find_or_insert(event.address)) *slot = {bytes, event.record};
    if (LiveRecord* const record = device.records.find(event.record)) record->chunk_bytes = bytes;
    return;
  }
  Slot* const slot = device.slots.find(event.address);
  if (slot == nullptr) return;
  const bool is_freed = event.kind == PLEAT_TRACE_PAYLOAD_FREE;
  if (LiveRecord* const record = device.records.find(slot->record))
    record->chunk_bytes = is_freed ? 0 : bytes;
  slot->bytes = bytes;
  if (is_freed) device.slots.erase(event.address);
}

void Ledger::take_encode(Device& device, const PleatTraceEvent& event) {
  LiveRecord* const record = device.records.find(event.record);
  const bool in_chunk = event.reason == PLEAT_TRACE_PLACE_CHUNK;
  LiveBlock* const block = in_chunk ? nullptr : device.blocks.find(event.block);
  if (event.reason == PLEAT_TRACE_PLACE_IN_PLACE) {
    if (block != nullptr) device.overlay(*block, Overlay::kInPlace);
  } else {
    end_saving(device, event);
    if (block != nullptr) own(*block, event.record, record);
  }
  if (record == nullptr) return;
  record->payload_bytes = static_cast<std::int64_t>(event.bytes);
  record->chunk_bytes = in_chunk ? record->payload_bytes : 0;
  if (Slot* const slot = in_chunk ? device.slots.find(event.address) : nullptr)
    slot->record = event.record;
}

// The block holds the payload of a record.
void Ledger::own(LiveBlock& block, std::uint64_t id, const LiveRecord* record) {
  block.record = id;
  if (record == nullptr) return;
  block.forward = record->origin;
  block.module = record->origin.module;
}

// Of a record whose bytes are no longer needed raw.
void Ledger::end_saving(Device& device, const PleatTraceEvent& event) {
  const LiveRecord* const record = device.records.find(event.record);
  LiveBlock* const block = device.blocks.find(record != nullptr ? record->block : event.block);
  if (block != nullptr && block->overlay == Overlay::kSavedRaw && block->record == event.record)
    device.overlay(*block, Overlay::kNone);
}

void Ledger::take_restore(Device& device, const PleatTraceEvent& event) {
  LiveBlock* const block = known(device, event);
  const LiveRecord* const record = device.records.find(event.record);
  if (block == nullptr) return;
  block->record = event.record;
  if (record == nullptr) return;
  block->forward = record->origin;
  block->module = record->origin.module;
  if (event.record != 0 && record->block == event.block) device.overlay(*block, Overlay::kAdopted);
}

}  // namespace pleat::trace

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

Ledger::LiveBlock* Ledger::add_block(Device& device, const PleatTraceEvent& event, bool numbered) {
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

Ledger::LiveBlock* Ledger::born(Device& device, const PleatTraceEvent& event) {
  return add_block(device, event, true);
}

Ledger::LiveBlock* Ledger::mentioned(Device& device, const PleatTraceEvent& event) {
  return add_block(device, event, !device.beginning.was_there(event.block));
}

void Ledger::take_present(Device& device) {
  if (device.beginning.present) return;
  device.beginning.present = true;
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
    const bool disagrees = on.add_changes(event) < 0;
    if (disagrees && !on.disagrees) ++disagreements_;
    on.disagrees = disagrees;
  } else {
    take_mark(event);
  }
  ++events_;
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
    case PLEAT_TRACE_PRESENT:
      take_present(device);
      break;
    case PLEAT_TRACE_ALLOCATE:
    case PLEAT_TRACE_CHUNK_ALLOCATE:
      device.beginning.note_allocated(event.block);
      [[fallthrough]];
    default:
      take(device, event);
  }
}

void Ledger::tagged(const PleatTraceEvent& event, LiveRecord* record) {
  const Origin* const forward = event.node != 0 ? nodes_.find(event.node) : nullptr;
  Origin origin = origin_of(event);
  origin.module = module_of(origin, forward);
  if (record != nullptr) {
    record->bytes = signed_of(event.bytes);
    record->key = event.key;
    record->time_ns = event.time_ns;
    record->step = step_;
    record->phase = event.phase;
    record->origin = origin;
  }
  if (event.node != 0 && forward == nullptr) nodes_.note(event.node, origin);
}

void Ledger::placed(LiveBlock& block, const LiveRecord& record) noexcept {
  block.forward = record.origin;
  block.module = record.origin.module;
}

}  // namespace pleat::trace

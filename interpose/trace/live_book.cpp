#include "interpose/trace/live_book.h"

#include <algorithm>
#include <utility>

#include "interpose/trace/format.h"
#include "interpose/trace/mapped.h"

namespace pleat::trace {

bool LiveBook::begin() noexcept {
  if (devices_ == nullptr)
    devices_ = static_cast<BookDevice*>(map_zeros(kDevices * sizeof(BookDevice)));
  if (devices_ == nullptr) return false;
  for (int i = 0; i < kDevices; ++i) {
    BookDevice& device = devices_[i];
    if (!device.heard_of) continue;
    device.heard_of = false;
    device.now = {};
    device.peak = {};
    device.known = device.chunked = 0;
    device.young = 0;
    device.waiting.clear();
    device.blocks.clear();
    device.records.clear();
    device.chunks.clear();
    device.slots.clear();
    device.segments.clear();
  }
  threads_.clear();
  nodes_.clear();
  last_thread_ = 0;
  step_ = time_ns_ = 0;
  resident_ = 0;
  small_ = {};
  alarm_ = {};
  phase_ = 0;
  any_step_ = false;
  exact_ = true;
  return true;
}

std::int64_t LiveBook::other() const noexcept {
  const std::int64_t ours = wrapping_add(devices_[0].now.reserved(), signed_of(small_.bytes));
  return resident_ > ours ? wrapping_subtract(resident_, ours) : 0;
}

// ---- threads and nodes --------------------------------------------------------------------------

BookThread* LiveBook::thread(std::uint32_t number) noexcept {
  const std::uint64_t id = std::uint64_t{number} + 1;
  if (id == last_thread_) return &threads_.at(last_place_);
  BookThread* const found = threads_.find_or_insert(id);
  if (found == nullptr) {
    exact_ = false;
    return nullptr;
  }
  last_thread_ = id;
  last_place_ = threads_.place_of(id);
  return found;
}

// ---- blocks and records -------------------------------------------------------------------------

BookBlock* LiveBook::add_block(BookDevice& device, const PleatTraceEvent& event, Age age) noexcept {
  BookBlock* const block = device.blocks.insert(event.block);
  if (block == nullptr) {
    exact_ = false;
    return nullptr;
  }
  block->bytes = signed_of(event.bytes);
  block->address = event.address;
  block->stream = event.stream;
  block->born = {event.op, event.stack};
  block->thread = event.thread;
  block->phase = event.phase;
  block->age = age;
  if (const BookThread* const own = thread(event.thread)) block->module = own->module;
  if (const Origin* const origin = nodes_.find(event.node)) block->forward = *origin;
  device.add(block->now(), block->bytes);
  return block;
}

BookBlock* LiveBook::born(BookDevice& device, const PleatTraceEvent& event) noexcept {
  BookBlock* const block = add_block(device, event, Age::kYoung);
  if (block != nullptr) device.join_young(event.block);
  return block;
}

void LiveBook::tagged(const PleatTraceEvent& event, BookRecord* record) noexcept {
  const Origin origin{event.op, event.stack};
  if (event.node != 0 && nodes_.find(event.node) == nullptr) nodes_.note(event.node, origin);
  if (record == nullptr) return;
  record->bytes = signed_of(event.bytes);
  record->key = event.key;
  record->node = event.node;
  record->stream = event.stream;
  record->origin = origin;
  record->thread = event.thread;
  record->phase = event.phase;
  if (const BookThread* const own = thread(event.thread)) record->module = own->module;
}

void LiveBook::note_in_record(BookRecord& record, const PleatTraceEvent& event) noexcept {
  record.raw = wrapping_add(record.raw, event.change[PLEAT_TRACE_SAVED_RAW]);
  record.payload = wrapping_add(record.payload, event.change[PLEAT_TRACE_PAYLOAD]);
  record.restored = wrapping_add(record.restored, event.change[PLEAT_TRACE_RESTORED]);
  switch (event.kind) {
    case PLEAT_TRACE_RELEASE:
      record.released = true;
      break;
    case PLEAT_TRACE_HOLD:
      record.held = true;
      record.hold_reason = event.reason;
      break;
    case PLEAT_TRACE_KEEP:
      record.kept = true;
      break;
    case PLEAT_TRACE_RESTORE:
      record.restored_block = event.block;
      break;
    default:
      break;
  }
}

// ---- events -------------------------------------------------------------------------------------

void LiveBook::apply(const PleatTraceEvent& event) noexcept {
  time_ns_ = std::max(time_ns_, event.time_ns);
  if (event.kind == PLEAT_TRACE_OUT_OF_MEMORY || event.kind == PLEAT_TRACE_DUMP)
    alarm_ = {event.kind, std::max<int>(event.device, -1)};
  if (!changes_sums(event.kind)) return take_mark(event);
  if (event.device < -1) return;
  BookDevice& on = device(event.device);
  on.heard_of = true;
  take_memory(on, event);
  on.add_changes(event);
  if (on.now.live() > on.peak.totals.live())
    on.peak = {on.now, event.time_ns, step_, resident_, signed_of(small_.bytes), event.phase};
}

void LiveBook::take_memory(BookDevice& device, const PleatTraceEvent& event) noexcept {
  if (event.kind == PLEAT_TRACE_SEGMENT_RESERVE) {
    exact_ &= device.segments.reserve(event.address, event.bytes);
  } else if (event.kind == PLEAT_TRACE_SEGMENT_RELEASE) {
    exact_ &= device.segments.release(event.address, event.bytes);
  } else {
    take(device, event);
    const bool is_of_record = event.kind >= PLEAT_TRACE_TAG && event.kind <= PLEAT_TRACE_DROP;
    if (BookRecord* const record = is_of_record ? device.records.find(event.record) : nullptr)
      note_in_record(*record, event);
  }
}

// ---- marks --------------------------------------------------------------------------------------

void LiveBook::take_mark(const PleatTraceEvent& event) noexcept {
  switch (event.kind) {
    case PLEAT_TRACE_PHASE:
      begin_phase(event);
      break;
    case PLEAT_TRACE_NODE:
      nodes_.note(event.node, {event.op, event.stack});
      break;
    case PLEAT_TRACE_MODULE:
      if (BookThread* const own = thread(event.thread)) {
        own->module = event.op;
        own->depth = static_cast<std::uint32_t>(event.bytes);
      }
      break;
    case PLEAT_TRACE_RESIDENT:
      resident_ = signed_of(event.bytes);
      break;
    case PLEAT_TRACE_SMALL:
      small_ = event;
      break;
    case PLEAT_TRACE_DECIDED:
    case PLEAT_TRACE_PLAN:
      take_decision(event);
      break;
    default:
      break;
  }
}

void LiveBook::take_decision(const PleatTraceEvent& event) noexcept {
  BookRecord* const record =
      event.device >= -1 ? device(event.device).records.find(event.record) : nullptr;
  if (record == nullptr) return;
  if (event.kind == PLEAT_TRACE_DECIDED) {
    record->is_decided = true;
    record->decided = event.op;
    record->bits = event.reason;
    record->noisy_elements = event.key;
    record->least = static_cast<std::uint8_t>(std::min<std::uint64_t>(event.stream, 8));
  } else {
    record->has_plan = true;
    record->plan = event.reason;
    record->planned = event.key;
  }
}

void LiveBook::begin_phase(const PleatTraceEvent& event) noexcept {
  if (BookThread* const own = thread(event.thread)) {
    own->phase = event.phase;
    own->step = event.bytes;
    own->has_phase = true;
  }
  phase_ = event.phase;
  if (!any_step_ || event.bytes > step_) {
    any_step_ = true;
    step_ = event.bytes;
    nodes_.rotate();
  }
  for_each_device([&](int /*index*/, BookDevice& device) { device.begin_phase(event.thread); });
}

}  // namespace pleat::trace

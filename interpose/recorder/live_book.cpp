#include "interpose/recorder/live_book.h"

#include <algorithm>
#include <utility>

#include "interpose/recorder/live_book_impl.h"
#include "interpose/trace_format.h"

namespace pleat::trace {
namespace {

constexpr std::uint32_t kNoPlace = BookTable<int>::kNoPlace;

void leave_young(BookDevice& device, BookBlock& block, std::uint32_t place) noexcept {
  if (block.previous != kNoPlace) {
    device.blocks.at(block.previous).next = block.next;
  } else if (device.young == place) {
    device.young = block.next;
  }
  if (block.next != kNoPlace) device.blocks.at(block.next).previous = block.previous;
  block.next = block.previous = kNoPlace;
}

Age age_after(std::uint8_t phase) noexcept {
  switch (phase) {
    case PLEAT_TRACE_PHASE_OPTIMIZER:
      return Age::kState;
    case PLEAT_TRACE_PHASE_FORWARD:
    case PLEAT_TRACE_PHASE_BACKWARD:
    case PLEAT_TRACE_PHASE_BETWEEN:
      return Age::kKept;
    default:
      return Age::kInput;
  }
}

}  // namespace

ByteClass BookBlock::now() const noexcept {
  if (payload) return ByteClass::kPayloads;
  if (parameter) return ByteClass::kParameters;
  if (gradient) return ByteClass::kGradients;
  if (age == Age::kState) return ByteClass::kOptimizerState;
  if (age == Age::kInput) return ByteClass::kInputs;
  switch (use) {
    case Use::kSavedRaw:
      return ByteClass::kSavedRaw;
    case Use::kInPlace:
      return ByteClass::kPayloads;
    case Use::kAdopted:
      return ByteClass::kRestored;
    case Use::kNone:
      break;
  }
  if (restored) return ByteClass::kRestored;
  if (age == Age::kPresent) return ByteClass::kUnknown;
  return age == Age::kYoung ? ByteClass::kTemporary : ByteClass::kKept;
}

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
    device.blocks.clear();
    device.records.clear();
    device.chunks.clear();
    device.slots.clear();
    device.segments.clear();
    device.young = kNoPlace;
  }
  threads_.clear();
  nodes_[0].clear();
  nodes_[1].clear();
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
  const std::int64_t ours =
      wrapping_add(devices_[0].now.sums[PLEAT_TRACE_RESERVED], signed_of(small_.bytes));
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

void LiveBook::note_node(std::uint64_t node, BookOrigin origin) noexcept {
  if (node == 0) return;
  if (young_nodes_->size() >= kMostNodes && young_nodes_->find(node) == nullptr) {
    std::swap(young_nodes_, old_nodes_);
    young_nodes_->clear();
  }
  if (BookOrigin* const place = young_nodes_->find_or_insert(node)) *place = origin;
}

const BookOrigin* LiveBook::find_node(std::uint64_t node) noexcept {
  if (node == 0) return nullptr;
  const BookOrigin* const young = young_nodes_->find(node);
  return young != nullptr ? young : old_nodes_->find(node);
}

// ---- blocks -------------------------------------------------------------------------------------

void LiveBook::born(BookDevice& device, const PleatTraceEvent& event, Age age) noexcept {
  BookBlock* const block = device.blocks.insert(event.block);
  if (block == nullptr) {
    exact_ = false;
    return;
  }
  block->bytes = signed_of(event.bytes);
  block->address = event.address;
  block->stream = event.stream;
  block->born = {event.op, event.stack};
  block->thread = event.thread;
  block->phase = event.phase;
  block->age = age;
  if (const BookThread* const own = thread(event.thread)) block->module = own->module;
  if (const BookOrigin* const origin = find_node(event.node)) block->forward = *origin;
  if (age == Age::kYoung) {
    const std::uint32_t place = device.blocks.place_of(event.block);
    block->next = device.young;
    if (device.young != kNoPlace) device.blocks.at(device.young).previous = place;
    device.young = place;
  }
  add(device, block->now(), block->bytes);
}

// A block that is mentioned and not known was there before the trace began.
BookBlock* LiveBook::known(BookDevice& device, const PleatTraceEvent& event) noexcept {
  if (event.block == 0) return nullptr;
  if (BookBlock* const block = device.blocks.find(event.block)) return block;
  born(device, event, Age::kPresent);
  return device.blocks.find(event.block);
}

void LiveBook::died(BookDevice& device, std::uint64_t id) noexcept {
  const std::uint32_t place = device.blocks.place_of(id);
  if (place == kNoPlace) return;
  BookBlock& block = device.blocks.at(place);
  add(device, block.now(), wrapping_subtract(0, block.bytes));
  if (block.age == Age::kYoung) leave_young(device, block, place);
  device.blocks.erase(id);
}

// ---- events -------------------------------------------------------------------------------------

void LiveBook::apply(const PleatTraceEvent& event) noexcept {
  time_ns_ = std::max(time_ns_, event.time_ns);
  if (event.kind == PLEAT_TRACE_OUT_OF_MEMORY || event.kind == PLEAT_TRACE_DUMP)
    alarm_ = {event.kind, std::max<int>(event.device, -1)};
  if (!changes_sums(event.kind)) return take_mark(event);
  if (event.device < -1) return;
  BookDevice& on = device(event.device);
  if (!on.heard_of) {
    on.heard_of = true;
    on.young = kNoPlace;
  }
  take_memory(on, event);
  add_changes(on, event);
}

void LiveBook::add_changes(BookDevice& device, const PleatTraceEvent& event) noexcept {
  BookTotals& now = device.now;
  for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i)
    now.sums[i] = wrapping_add(now.sums[i], event.change[i]);
  now.classes[static_cast<std::size_t>(ByteClass::kUnknown)] =
      std::max<std::int64_t>(wrapping_subtract(now.live(), device.known), 0);
  if (now.live() > device.peak.totals.live()) {
    device.peak = {now, event.time_ns, step_, resident_, signed_of(small_.bytes), event.phase};
  }
}

void LiveBook::take_memory(BookDevice& device, const PleatTraceEvent& event) noexcept {
  switch (event.kind) {
    case PLEAT_TRACE_SEGMENT_RESERVE:
      exact_ &= device.segments.reserve(event.address, event.bytes);
      break;
    case PLEAT_TRACE_SEGMENT_RELEASE:
      exact_ &= device.segments.release(event.address, event.bytes);
      break;
    case PLEAT_TRACE_ALLOCATE:
      if (event.block == 0) break;
      died(device, event.block);
      born(device, event, Age::kYoung);
      if (event.record != 0) own(device, event.block, event.record);
      break;
    case PLEAT_TRACE_FREE:
      died(device, event.block);
      break;
    case PLEAT_TRACE_SHRINK:
      if (BookBlock* const block = device.blocks.find(event.block))
        change(device, *block, [&](BookBlock& it) { it.bytes = signed_of(event.bytes); });
      break;
    case PLEAT_TRACE_CHUNK_ALLOCATE:
      if (BookChunk* const chunk = device.chunks.find_or_insert(event.block)) {
        *chunk = {signed_of(event.bytes), event.address, event.stream};
      } else {
        exact_ &= event.block == 0;
      }
      break;
    case PLEAT_TRACE_CHUNK_FREE:
      device.chunks.erase(event.block);
      break;
    case PLEAT_TRACE_PAYLOAD_ALLOCATE:
    case PLEAT_TRACE_PAYLOAD_SHRINK:
    case PLEAT_TRACE_PAYLOAD_FREE:
      take_payload(device, event);
      break;
    default:
      take_record(device, event);
  }
}

void LiveBook::take_payload(BookDevice& device, const PleatTraceEvent& event) noexcept {
  add_chunked(device, event.change[PLEAT_TRACE_REQUESTED]);
  const bool is_new = event.kind == PLEAT_TRACE_PAYLOAD_ALLOCATE;
  const bool is_freed = event.kind == PLEAT_TRACE_PAYLOAD_FREE;
  BookSlot* const slot = is_new ? device.slots.find_or_insert(event.address)
                                : device.slots.find(event.address);
  if (slot == nullptr) {
    exact_ &= !is_new || event.address == 0;
    return;
  }
  *slot = {signed_of(event.bytes), event.block, is_new ? event.record : slot->record};
  if (BookRecord* const record = device.records.find(slot->record)) {
    record->chunk_bytes = is_freed ? 0 : slot->bytes;
    record->slot = is_freed ? 0 : event.address;
  }
  if (is_freed) device.slots.erase(event.address);
}

// ---- marks --------------------------------------------------------------------------------------

void LiveBook::take_mark(const PleatTraceEvent& event) noexcept {
  switch (event.kind) {
    case PLEAT_TRACE_PHASE:
      begin_phase(event);
      break;
    case PLEAT_TRACE_NODE:
      note_node(event.node, {event.op, event.stack});
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
    case PLEAT_TRACE_PLAN: {
      BookRecord* const record =
          event.device >= -1 ? device(event.device).records.find(event.record) : nullptr;
      if (record == nullptr) break;
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
      break;
    }
    default:
      break;
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
    std::swap(young_nodes_, old_nodes_);
    young_nodes_->clear();
  }
  for_each_device([&](int /*index*/, BookDevice& device) {
    for (std::uint32_t place = device.young; place != kNoPlace;) {
      BookBlock& block = device.blocks.at(place);
      const std::uint32_t next = block.next;
      const Age age = age_after(block.phase);
      if (age != Age::kState || block.thread == event.thread) {
        leave_young(device, block, place);
        change(device, block, [&](BookBlock& it) { it.age = age; });
      }
      place = next;
    }
  });
}

}  // namespace pleat::trace

#include "interpose/trace/book_replay.h"

#include <algorithm>

#include "interpose/trace/wrapping.h"

namespace pleat::trace {
namespace {

// Stands for a place of forward that is known by its operator and stack only. No thread has this
// number.
std::uint64_t node_of(Origin origin) noexcept {
  return std::uint64_t{0xffff} << 48 | std::uint64_t{origin.op} << 24 | origin.stack;
}

}  // namespace

PleatTraceEvent BookReplay::event(PleatTraceKind kind, int index) const noexcept {
  PleatTraceEvent made{};
  made.time_ns = time_ns_;
  made.kind = static_cast<std::uint8_t>(kind);
  made.device = static_cast<std::int8_t>(index);
  return made;
}

void BookReplay::say(const PleatTraceEvent& event) noexcept {
  if (told_device_ == kAll) return tell_(context_, event);
  if (event.device != told_device_) return;
  for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i)
    told_[i] = wrapping_add(told_[i], event.change[i]);
}

template <class Item, class Visit>
void BookReplay::in_order(MappedTable<Item>& table, Visit&& visit) noexcept {
  if (table.size() == 0) return;
  ids_.clear();
  auto* const ids =
      reinterpret_cast<std::uint64_t*>(ids_.reserve(table.size() * sizeof(std::uint64_t)));
  if (ids == nullptr) {
    complete_ = false;
    return;
  }
  std::size_t count = 0;
  table.for_each([&](std::uint64_t id, const Item& /*item*/) { ids[count++] = id; });
  std::sort(ids, ids + count);
  for (std::size_t i = 0; i < count; ++i) visit(ids[i], *table.find(ids[i]));
}

bool BookReplay::tell(LiveBook& book, std::uint64_t time_ns, Tell to, void* context) noexcept {
  time_ns_ = time_ns;
  tell_ = to;
  context_ = context;
  complete_ = true;
  present(book);
  modules_.clear();
  all(book);
  return complete_;
}

// What is told later is added up first, for each device.
void BookReplay::present(LiveBook& book) noexcept {
  book.for_each_device([&](int index, BookDevice& device) {
    told_ = {};
    told_device_ = index;
    modules_.clear();
    blocks(index, device, Ages::kPast);
    blocks(index, device, Ages::kYoung);
    payloads(index, device);
    records(index, device);
    restored(index, device);
    told_device_ = kAll;
    PleatTraceEvent rest = event(PLEAT_TRACE_PRESENT, index);
    for (std::size_t i = 0; i < PLEAT_TRACE_CHANGES; ++i)
      rest.change[i] = wrapping_subtract(device.now.sums[i], told_[i]);
    say(rest);
  });
}

// What phases have ended comes before the marks of those that go on.
void BookReplay::all(LiveBook& book) noexcept {
  book.for_each_device([&](int index, BookDevice& device) {
    for (std::size_t i = 0; i < device.segments.size(); ++i) {
      PleatTraceEvent segment = event(PLEAT_TRACE_SEGMENT_RESERVE, index);
      segment.address = device.segments[i].begin;
      segment.bytes = device.segments[i].end - device.segments[i].begin;
      say(segment);
    }
    blocks(index, device, Ages::kPast);
  });
  threads(book);
  book.for_each_device([&](int index, BookDevice& device) {
    blocks(index, device, Ages::kYoung);
    labels(index, device);
    payloads(index, device);
    records(index, device);
    restored(index, device);
  });
  in_order(book.threads(), [&](std::uint64_t id, const BookThread& thread) {
    in_module(static_cast<std::uint32_t>(id - 1), thread.module, thread.depth);
  });
  for (PleatTraceEvent mark : {book.small(), event(PLEAT_TRACE_RESIDENT, -1)}) {
    if (mark.kind == PLEAT_TRACE_RESIDENT) mark.bytes = static_cast<std::uint64_t>(book.resident());
    mark.time_ns = time_ns_;
    if (mark.kind != 0 && mark.bytes != 0) say(mark);
  }
}

void BookReplay::threads(LiveBook& book) noexcept {
  in_order(book.threads(), [&](std::uint64_t id, const BookThread& thread) {
    if (!thread.has_phase) return;
    PleatTraceEvent mark = event(PLEAT_TRACE_PHASE, -1);
    mark.thread = static_cast<std::uint32_t>(id - 1);
    mark.phase = thread.phase;
    mark.bytes = thread.step;
    say(mark);
  });
  book.for_each_node([&](std::uint64_t node, const Origin& origin) {
    PleatTraceEvent mark = event(PLEAT_TRACE_NODE, -1);
    mark.node = node;
    mark.op = origin.op;
    mark.stack = origin.stack;
    say(mark);
  });
}

// ---- blocks -------------------------------------------------------------------------------------

void BookReplay::in_module(std::uint32_t thread, std::uint32_t module,
                           std::uint32_t depth) noexcept {
  std::uint32_t* const said = modules_.find_or_insert(std::uint64_t{thread} + 1);
  if (said == nullptr || *said == module) return;
  *said = module;
  PleatTraceEvent mark = event(PLEAT_TRACE_MODULE, -1);
  mark.thread = thread;
  mark.op = module;
  mark.bytes = depth;
  if (told_device_ == kAll) say(mark);
}

void BookReplay::allocate(int index, std::uint64_t id, const BookBlock& block) noexcept {
  in_module(block.thread, block.module, block.module != 0 ? 1 : 0);
  PleatTraceEvent born = event(PLEAT_TRACE_ALLOCATE, index);
  born.phase = block.phase;
  born.thread = block.thread;
  if (block.payload) born.record = block.record;
  if (block.forward.stack != 0 || block.forward.op != 0) {
    PleatTraceEvent node = event(PLEAT_TRACE_NODE, -1);
    node.node = born.node = node_of(block.forward);
    node.op = block.forward.op;
    node.stack = block.forward.stack;
    if (told_device_ == kAll) say(node);
  }
  born.op = block.born.op;
  born.stack = block.born.stack;
  born.stream = block.stream;
  born.address = block.address;
  born.block = id;
  born.bytes = static_cast<std::uint64_t>(block.bytes);
  born.change[PLEAT_TRACE_REQUESTED] = born.change[PLEAT_TRACE_ACTIVE] = block.bytes;
  say(born);
}

void BookReplay::blocks(int index, BookDevice& device, Ages ages) noexcept {
  in_order(device.blocks, [&](std::uint64_t id, const BookBlock& block) {
    const bool goes_on = block.age == Age::kYoung || block.age == Age::kWaiting;
    if (block.age == Age::kUnknown || goes_on != (ages == Ages::kYoung)) return;
    allocate(index, id, block);
  });
}

void BookReplay::labels(int index, BookDevice& device) noexcept {
  in_order(device.blocks, [&](std::uint64_t id, const BookBlock& block) {
    const auto say_label = [&](bool is_so, PleatTraceLabel label) {
      if (!is_so) return;
      PleatTraceEvent mark = event(PLEAT_TRACE_LABEL, index);
      mark.block = id;
      mark.address = block.address;
      mark.bytes = static_cast<std::uint64_t>(block.bytes);
      mark.reason = static_cast<std::uint8_t>(label);
      say(mark);
    };
    say_label(block.parameter, PLEAT_TRACE_LABEL_PARAMETER);
    say_label(block.gradient, PLEAT_TRACE_LABEL_GRADIENT);
  });
}

void BookReplay::payloads(int index, BookDevice& device) noexcept {
  in_order(device.chunks, [&](std::uint64_t id, const LifeChunk& chunk) {
    PleatTraceEvent told = event(PLEAT_TRACE_CHUNK_ALLOCATE, index);
    told.block = id;
    told.address = chunk.address;
    told.stream = chunk.stream;
    told.bytes = static_cast<std::uint64_t>(chunk.bytes);
    told.change[PLEAT_TRACE_ACTIVE] = chunk.bytes;
    say(told);
  });
  std::int64_t left = device.chunked;
  in_order(device.slots, [&](std::uint64_t address, const LifeSlot& one) {
    left = wrapping_subtract(left, one.bytes);
    const BookRecord* const record = device.records.find(one.record);
    if (record == nullptr || record->slot != address) slot(index, address, one);
  });
  if (left > 0) slot(index, 0, {left, 0, 0});
}

void BookReplay::slot(int index, std::uint64_t address, const LifeSlot& slot) noexcept {
  PleatTraceEvent told = event(PLEAT_TRACE_PAYLOAD_ALLOCATE, index);
  told.record = slot.record;
  told.block = slot.chunk;
  told.address = address;
  told.bytes = static_cast<std::uint64_t>(slot.bytes);
  told.change[PLEAT_TRACE_REQUESTED] = slot.bytes;
  say(told);
}

// ---- records ------------------------------------------------------------------------------------

void BookReplay::records(int index, BookDevice& device) noexcept {
  in_order(device.records,
           [&](std::uint64_t id, const BookRecord& one) { record(index, device, id, one); });
}

void BookReplay::record(int index, BookDevice& device, std::uint64_t id,
                        const BookRecord& record) noexcept {
  const BookBlock* const block = device.blocks.find(record.block);
  in_module(record.thread, record.module, record.module != 0 ? 1 : 0);
  PleatTraceEvent told = event(PLEAT_TRACE_TAG, index);
  told.phase = record.phase;
  told.thread = record.thread;
  told.op = record.origin.op;
  told.stack = record.origin.stack;
  told.stream = record.stream;
  told.record = id;
  told.node = record.node;
  told.key = record.key;
  told.bytes = static_cast<std::uint64_t>(record.bytes);
  if (block != nullptr && block->record == id) {
    told.block = record.block;
    told.address = block->address;
  }
  told.change[PLEAT_TRACE_SAVED_RAW] = record.raw;
  say(told);
  decisions(index, id, record);
  const LifeSlot* const own_slot = device.slots.find(record.slot);
  const bool has_slot = own_slot != nullptr && own_slot->record == id;
  if (has_slot) slot(index, record.slot, *own_slot);
  if (record.encoded) {
    PleatTraceEvent encoded = event(PLEAT_TRACE_ENCODE, index);
    encoded.phase = record.phase;
    encoded.thread = record.thread;
    encoded.record = id;
    const auto lies_in = [&](PleatTracePlace place, std::uint64_t in, std::uint64_t address) {
      encoded.reason = static_cast<std::uint8_t>(place);
      encoded.block = in;
      encoded.address = address;
    };
    const BookBlock* const own = device.blocks.find(record.own_block);
    if (own != nullptr && own->payload && own->record == id) {
      lies_in(PLEAT_TRACE_PLACE_OWN_BLOCK, record.own_block, own->address);
    } else if (block != nullptr && block->record == id && block->use == Use::kInPlace) {
      lies_in(PLEAT_TRACE_PLACE_IN_PLACE, record.block, block->address);
    } else if (record.chunk_bytes > 0) {
      lies_in(PLEAT_TRACE_PLACE_CHUNK, has_slot ? own_slot->chunk : 0, record.slot);
    }
    encoded.bytes = static_cast<std::uint64_t>(record.payload_bytes);
    encoded.change[PLEAT_TRACE_PAYLOAD] = record.payload;
    say(encoded);
  }
}

void BookReplay::decisions(int index, std::uint64_t id, const BookRecord& record) noexcept {
  const auto mark = [&](bool is_so, PleatTraceKind kind, std::uint32_t op, std::uint8_t reason,
                        std::uint64_t key) {
    if (!is_so) return;
    PleatTraceEvent told = event(kind, index);
    told.phase = record.phase;
    told.thread = record.thread;
    told.record = id;
    told.block = kind < PLEAT_TRACE_PHASE ? record.block : 0;
    told.bytes = static_cast<std::uint64_t>(record.bytes);
    told.op = op;
    told.reason = reason;
    told.key = key;
    if (kind == PLEAT_TRACE_DECIDED) told.stream = record.least;
    say(told);
  };
  mark(record.is_decided, PLEAT_TRACE_DECIDED, record.decided, record.bits, record.noisy_elements);
  mark(record.has_plan, PLEAT_TRACE_PLAN, 0, record.plan, record.planned);
  mark(record.released, PLEAT_TRACE_RELEASE, 0, 0, 0);
  mark(record.held, PLEAT_TRACE_HOLD, 0, record.hold_reason, 0);
  mark(record.kept, PLEAT_TRACE_KEEP, 0, 0, 0);
}

// The bytes of a record count once, whatever was restored from it.
void BookReplay::restored(int index, BookDevice& device) noexcept {
  in_order(device.blocks, [&](std::uint64_t id, const BookBlock& block) {
    const bool adopted = block.use == Use::kAdopted;
    if (!block.restored && !adopted) return;
    PleatTraceEvent told = event(PLEAT_TRACE_RESTORE, index);
    told.phase = block.phase;
    told.thread = block.thread;
    told.record = block.record;
    told.block = id;
    told.address = block.address;
    told.bytes = static_cast<std::uint64_t>(block.bytes);
    const BookRecord* const record = device.records.find(block.record);
    if (record != nullptr && record->restored_block == id)
      told.change[PLEAT_TRACE_RESTORED] = record->restored;
    say(told);
  });
}

}  // namespace pleat::trace

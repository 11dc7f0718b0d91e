#include "story.h"

#include <stdexcept>

namespace pleat::trace::testing {

PleatTraceEvent Story::next(std::uint8_t kind) const {
  PleatTraceEvent one = event(kind, 1000 + 10 * events_.size());
  one.thread = thread;
  one.phase = phase;
  one.op = op;
  one.stack = stack;
  one.node = node;
  one.device = device;
  return one;
}

std::size_t Story::add(PleatTraceEvent event) {
  events_.push_back(event);
  return events_.size() - 1;
}

std::size_t Story::mark(std::uint8_t kind, std::uint64_t bytes) {
  PleatTraceEvent one = next(kind);
  one.bytes = bytes;
  return add(one);
}

std::size_t Story::begin(std::uint8_t new_phase, std::uint64_t step) {
  phase = new_phase;
  return mark(PLEAT_TRACE_PHASE, step);
}

std::size_t Story::allocate(std::uint64_t block, std::uint64_t bytes, std::uint64_t owner) {
  PleatTraceEvent one = next(PLEAT_TRACE_ALLOCATE);
  one.record = owner;
  one.block = block;
  one.bytes = bytes;
  one.change[0] = one.change[1] = static_cast<std::int64_t>(bytes);
  sizes_[{device, block}] = bytes;
  return add(one);
}

std::size_t Story::free(std::uint64_t block) {
  PleatTraceEvent one = next(PLEAT_TRACE_FREE);
  one.block = block;
  one.bytes = sizes_[{device, block}];
  one.change[0] = one.change[1] = -static_cast<std::int64_t>(one.bytes);
  sizes_.erase({device, block});
  return add(one);
}

std::size_t Story::shrink(std::uint64_t block, std::uint64_t bytes) {
  PleatTraceEvent one = next(PLEAT_TRACE_SHRINK);
  one.block = block;
  one.bytes = bytes;
  std::uint64_t& size = sizes_[{device, block}];
  one.change[0] = one.change[1] = static_cast<std::int64_t>(bytes - size);
  size = bytes;
  return add(one);
}

std::size_t Story::label(std::uint64_t block, std::uint8_t reason, std::uint64_t bytes) {
  PleatTraceEvent one = next(PLEAT_TRACE_LABEL);
  one.block = block;
  one.reason = reason;
  one.bytes = bytes;
  if (sizes_.count({device, block}) == 0) sizes_[{device, block}] = bytes;  // it was there before
  return add(one);
}

std::size_t Story::present(std::int64_t requested, std::int64_t reserved) {
  PleatTraceEvent one = next(PLEAT_TRACE_PRESENT);
  one.change[0] = one.change[1] = requested;
  one.change[2] = reserved;
  return add(one);
}

std::size_t Story::slot(std::uint8_t kind, std::uint64_t bytes, std::int64_t change,
                        std::uint64_t owner, std::uint64_t address) {
  PleatTraceEvent one = next(kind);
  one.block = kChunk;
  one.record = owner;
  one.address = address;
  one.bytes = bytes;
  one.change[0] = change;
  return add(one);
}

std::size_t Story::record(std::uint8_t kind, std::uint64_t record, std::uint64_t block,
                          std::uint64_t bytes) {
  PleatTraceEvent one = next(kind);
  one.record = record;
  one.block = block;
  one.bytes = bytes;
  return add(one);
}

std::size_t Story::encode(std::uint64_t record, std::uint8_t place, std::uint64_t block,
                          std::uint64_t bytes) {
  PleatTraceEvent one = next(PLEAT_TRACE_ENCODE);
  one.record = record;
  one.reason = place;
  one.block = block;
  one.bytes = bytes;
  return add(one);
}

std::unique_ptr<File> Story::open() {
  constexpr std::size_t kInBlock = 37;
  for (std::size_t i = 0; i < events_.size(); i += kInBlock)
    writer.records(
        {events_.begin() + static_cast<std::ptrdiff_t>(i),
         events_.begin() + static_cast<std::ptrdiff_t>(std::min(i + kInBlock, events_.size()))});
  const MemoryFile memory(writer.finish());
  std::string error;
  std::unique_ptr<File> file = File::open(memory.path(), error);
  if (file == nullptr) throw std::runtime_error(error);
  return file;
}

}  // namespace pleat::trace::testing

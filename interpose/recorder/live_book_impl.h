// How the sums of a book change. For those who keep it or tell of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "interpose/recorder/live_book.h"
#include "interpose/wrapping.h"

namespace pleat::trace {

[[nodiscard]] inline std::int64_t signed_of(std::uint64_t bytes) noexcept {
  return static_cast<std::int64_t>(bytes);
}

inline void add(BookDevice& device, ByteClass of, std::int64_t bytes) noexcept {
  if (of == ByteClass::kUnknown) return;  // it is what is left
  std::int64_t& all = device.now.classes[static_cast<std::size_t>(of)];
  all = wrapping_add(all, bytes);
  device.known = wrapping_add(device.known, bytes);
}

// Whatever `act` does to the block, its bytes are of its class before and after.
template <class Act>
void change(BookDevice& device, BookBlock& block, Act&& act) noexcept {
  const ByteClass before = block.now();
  const std::int64_t bytes = block.bytes;
  act(block);
  const ByteClass after = block.now();
  if (before == after && bytes == block.bytes) return;
  add(device, before, wrapping_subtract(0, bytes));
  add(device, after, block.bytes);
}

inline void add_chunked(BookDevice& device, std::int64_t bytes) noexcept {
  const std::int64_t before = std::max<std::int64_t>(device.chunked, 0);
  device.chunked = wrapping_add(device.chunked, bytes);
  add(device, ByteClass::kPayloads,
      wrapping_subtract(std::max<std::int64_t>(device.chunked, 0), before));
}

}  // namespace pleat::trace

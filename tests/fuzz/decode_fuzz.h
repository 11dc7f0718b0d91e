// Gives hostile bytes to decoders, which must touch only the two buffers, on any path. The
// sanitizers judge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pleat::fuzz {

// How an input becomes a payload.
enum class Shape {
  payload,  // as it is
  // a header put together from the first bytes, its lengths consistent with the rest as far as they
  // go, so that the decoder of that kind is reached
  grouped,
  framed,
  packed,
};

// The rest of an input.
struct Input {
  const std::uint8_t* data;
  std::size_t size;
  std::uint64_t take(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes && size != 0; ++i, ++data, --size)
      value |= std::uint64_t{*data} << (8 * i);
    return value;
  }
};

[[nodiscard]] std::vector<std::uint8_t> payload_of(Shape shape, Input input);
// Memory of which exactly so many bytes are addressable, aligned to 64. Freed by std::free.
[[nodiscard]] std::uint8_t* exactly(std::size_t bytes);

void decode_hostile(Shape shape, const std::uint8_t* data, std::size_t size);

}  // namespace pleat::fuzz

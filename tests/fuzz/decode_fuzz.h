// Decoders given hostile bytes: nothing outside the two buffers may be touched, on any path. The
// sanitizers judge.
#pragma once

#include <cstddef>
#include <cstdint>

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

void decode_hostile(Shape shape, const std::uint8_t* data, std::size_t size);

}  // namespace pleat::fuzz

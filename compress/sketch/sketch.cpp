#include "compress/sketch/sketch.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "compress/sketch/sketch_rows.h"

namespace pleat::compress {
namespace {

static_assert(kSketchRow == kSketchBuckets);
constexpr std::size_t kWords = kSketchBuckets / 32;

// The compiler makes vectors of these loops: a bit is tested with a mask of its lane, as vectors of
// old processors cannot be shifted lane by lane.
template <typename T>
void sign_row(const T* values, const SketchRow& row, T* out) noexcept {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  constexpr auto kLanes = [] {
    std::array<Bits, 32> lanes{};
    for (unsigned lane = 0; lane < 32; ++lane) {
      lanes[lane] = Bits{1} << lane;
    }
    return lanes;
  }();
  for (unsigned w = 0; w < kWords; ++w) {
    const Bits word = static_cast<std::uint32_t>(row.signs(w / 2) >> (w % 2 * 32));
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const Bits flip = (word & kLanes[lane]) != 0 ? kSign : 0;
      out[32 * w + lane] = std::bit_cast<T>(std::bit_cast<Bits>(values[32 * w + lane]) ^ flip);
    }
  }
}

template <typename T>
void add_rotated(const T* signed_row, std::size_t rotation, Sketch& sketch) noexcept {
  const std::size_t head = kSketchBuckets - rotation;
  for (std::size_t c = 0; c < head; ++c) {
    sketch[c + rotation] += static_cast<double>(signed_row[c]);
  }
  for (std::size_t c = head; c < kSketchBuckets; ++c) {
    sketch[c - head] += static_cast<double>(signed_row[c]);
  }
}

template <typename T>
void add_values(std::span<const T> values, std::size_t first, std::size_t all, std::uint64_t seed,
                Sketch& sketch) noexcept {
  if (all <= kSketchBuckets) {
    for (std::size_t i = 0; i < values.size() && first + i < kSketchBuckets; ++i) {
      sketch[first + i] += static_cast<double>(values[i]);
    }
    return;
  }
  const std::uint64_t hashed_seed = sketch_hash(seed);
  std::array<T, kSketchBuckets> part{};
  std::array<T, kSketchBuckets> turned;
  for (std::size_t i = 0; i < values.size();) {
    const std::size_t column = (first + i) % kSketchBuckets;
    const std::size_t count = std::min(kSketchBuckets - column, values.size() - i);
    const SketchRow row(hashed_seed, (first + i) / kSketchBuckets);
    const T* source = values.data() + i;
    if (count < kSketchBuckets) {  // a cut row: zeros in the place of what is missing
      part.fill(0);
      std::copy_n(source, count, part.begin() + static_cast<std::ptrdiff_t>(column));
      source = part.data();
    }
    sign_row(source, row, turned.data());
    add_rotated(turned.data(), row.rotation(), sketch);
    i += count;
  }
}

}  // namespace

void add_to_sketch(std::span<const float> values, std::size_t first, std::size_t all,
                   std::uint64_t seed, Sketch& sketch) noexcept {
  add_values(values, first, all, seed, sketch);
}

void add_to_sketch(std::span<const double> values, std::size_t first, std::size_t all,
                   std::uint64_t seed, Sketch& sketch) noexcept {
  add_values(values, first, all, seed, sketch);
}

std::size_t sketch_parts(std::size_t elements) noexcept { return parts_of_sketch(elements); }

double add_parts(std::span<const double> parts, Sketch& sketch) noexcept {
  double squares = 0;
  for (std::size_t at = 0; at + kSketchPart <= parts.size(); at += kSketchPart) {
    for (std::size_t b = 0; b < kSketchBuckets; ++b) {
      sketch[b] += parts[at + b];
      squares += parts[at + kSketchBuckets + b];
    }
  }
  return squares;
}

}  // namespace pleat::compress

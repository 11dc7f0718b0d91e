// A count-sketch (Charikar, Chen, Farach-Colton 2002): a vector's elements, with random signs,
// added up in 256 buckets. Inner products of sketches are those of the vectors in the mean. A
// vector of at most 256 elements is its own sketch. Linear, and a function of the seed alone;
// however a vector is cut, only the rounding of sums differs. compress/cuda/device_sketch.h makes
// the same sketches on a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pleat::compress {

inline constexpr std::size_t kSketchBuckets = 256;
using Sketch = std::array<double, kSketchBuckets>;

// Adds the elements [first, first + count) of a vector of `all` elements to its sketch.
void add_to_sketch(std::span<const float> values, std::size_t first, std::size_t all,
                   std::uint64_t seed, Sketch& sketch) noexcept;
void add_to_sketch(std::span<const double> values, std::size_t first, std::size_t all,
                   std::uint64_t seed, Sketch& sketch) noexcept;

// A device sums a part of a vector (sketch_rows.h): its share of the 256 buckets, then 256 sums of
// squares of the elements, those of each bucket. A sum of parts, in their order, is the same in
// every run.
inline constexpr std::size_t kSketchPart = 2 * kSketchBuckets;  // doubles
[[nodiscard]] std::size_t sketch_parts(std::size_t elements) noexcept;
// Adds parts of one vector, which the host has read, to its sketch. Returns their sum of squares.
double add_parts(std::span<const double> parts, Sketch& sketch) noexcept;

}  // namespace pleat::compress

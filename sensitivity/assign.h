// Which width each unit of a profile gets: the least noise in the gradient for so many bytes. A
// separable multiple-choice knapsack: per unit the lower convex hull of (bytes, noise), then greedy
// by noise saved per byte (Fox 1966), a fill pass behind the first step that does not fit, and
// exchanges of bytes between two units, where there are at most 200.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "sensitivity/profile.h"

namespace pleat::sensitivity {

struct Assignment {
  struct Choice {
    std::uint64_t key = 0;
    std::uint8_t width = 0;  // 0: exact
  };
  std::vector<Choice> choices;  // of each unit that may be noisy, in the profile's order
  double noise = 0;             // predicted, by the profile's objective
  double least_noise = 0;       // no assignment of so many bytes has less: the linear bound
  std::uint64_t bytes = 0;      // of payloads of the units in `choices`
  std::uint64_t budget = 0;     // what they were allowed
  bool fits = true;             // false: even the smallest allowed widths take more
};

// A unit counts as measured if it has a finite noise, is neither fixed nor distrusted, and has
// costs. Units with costs that are not measured keep uniform_width(bits), in bytes and choices
// alike. Fixed units take no part. A unit whose measurements are all zero takes as few bytes as its
// floor allows.

// No more payload bytes than one uniform width takes. `bits`: 1..8; between two widths of the codec
// the bytes allowed are linear between theirs. A unit's floor and missing candidates raise it in
// the uniform, too. Never more noise than uniform_width(bits) for all, if that fits; with
// Objective::kUpdate that width for all, unless others have less than 0.85 of its noise.
[[nodiscard]] Assignment assign(const Profile& profile, double bits);
// No more than `bytes` for all units with costs; those not measured keep uniform_width(bits). Noise
// above `most_noise` is not allowed: where `bytes` are too few for that, `fits` is false, and the
// widths are those of the greedy where its noise first is no more.
[[nodiscard]] Assignment assign_bytes(const Profile& profile, double bits, std::uint64_t bytes,
                                      double most_noise = std::numeric_limits<double>::infinity());
// The most noise that fewer bytes may cause, squared like Assignment::noise. `uniform`: the noise
// if all units have the uniform width, which is always allowed. `percent`: of the norm of the
// profile's objective. Without it: 30 %, or twice the norm of the uniform's noise, whichever is
// more.
[[nodiscard]] double noise_ceiling(double uniform, std::optional<std::uint64_t> percent) noexcept;

// Bytes and noise if every unit with costs has the uniform width of `bits` (fractions: linear
// between two). The noise counts measured units only.
struct UniformCost {
  std::uint64_t bytes = 0;
  double noise = 0;
};
[[nodiscard]] UniformCost uniform_cost(const Profile& profile, double bits);

// The mean payload bits an element of such units have, metadata left out as in `bits`: the most, of
// 1..8 and fractional, that a uniform assignment can have in as many bytes. 1 if none can.
[[nodiscard]] double equivalent_bits(const Profile& profile, std::uint64_t bytes);

}  // namespace pleat::sensitivity

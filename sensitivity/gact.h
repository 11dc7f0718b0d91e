// The rules of GACT for widths, as a baseline to compare ours with. They are the noise model and
// the greedy algorithm of Liu et al., ICML 2022, section 4 and algorithm 1. The cost of a unit is
// bits times elements. Metadata, the true error of a width and the rest of the budget do not count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sensitivity/assign.h"
#include "sensitivity/profile.h"

namespace pleat::sensitivity {

// S(b) = (2^b - 1)^-2, the noise of b bits but for a factor of each tensor; 0 for 32.
[[nodiscard]] double gact_shape(unsigned bits) noexcept;

struct GactTensor {
  double sensitivity = 0;  // c: its noise at b bits is c S(b)
  std::uint64_t elements = 0;
};
// The bits of each tensor, of 32, 8, 4, 2 and 1: all begin with 32, and the one whose noise grows
// least by the bit and element goes down a step, until they are no more than `bits` on average. Of
// equals the last one goes first.
[[nodiscard]] std::vector<unsigned> gact_bits(std::span<const GactTensor> tensors, double bits);

// As assign(), by these rules: 32 bits are the exact form, and a width that is no candidate, or
// below the floor, becomes the next one that is. Bytes and noise are by the profile's costs.
[[nodiscard]] Assignment assign_by_gact(const Profile& profile, double bits);

}  // namespace pleat::sensitivity

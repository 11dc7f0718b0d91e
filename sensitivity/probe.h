// How the sensitivity of many tensors is measured in few backward passes. Each pass adds to each
// unit one fixed noise, with a sign and an amplitude of the pass. To first order the error of a
// parameter's gradient is the sum of the errors that the units cause, and these are nearly
// orthogonal. So the inner products of the errors of two passes are linear in the energies that are
// wanted, and non-negative least squares find them, parameter by parameter: only units that are
// read before a parameter's gradient is final can have disturbed it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pleat::sensitivity {

// ---- designs ----

// The passes of one stage. Amplitudes are multiples of the unit's noise at 4 bits.
struct Stage {
  std::size_t units = 0;
  std::vector<std::int8_t> signs;  // passes * units: +1 or -1; 0: left alone in this pass
  std::vector<double> amplitudes;  // per unit
  [[nodiscard]] std::size_t passes() const noexcept {
    return units == 0 ? 0 : signs.size() / units;
  }
};

// Half of the noise of 4 bits for all, and random signs. In at most 12 passes no two of
// 2^(passes-1) units in a row have the same signs, or opposite ones: such units could not be
// separated.
[[nodiscard]] Stage first_stage(std::size_t units, std::size_t passes, std::uint64_t seed);
// The amplitudes of the first stage, times (median energy / energy)^(1/2) of each unit by what the
// stages before have found, at most twice: never above the noise of 4 bits. Units without energy
// get the most. Its signs are others than those of a first stage with the same seed.
[[nodiscard]] Stage second_stage(std::span<const double> energies, std::size_t passes,
                                 std::uint64_t seed);
// One pass per unit, which alone is disturbed, with the noise of 4 bits.
[[nodiscard]] Stage one_by_one(std::size_t units);

// ---- sketches of gradients ----

// Few sums of a vector's elements with random signs: a count-sketch, which whoever has the vector
// makes. Inner products of sketches are those of the vectors in the mean.
inline constexpr std::size_t kSketch = 256;
using Sketch = std::array<double, kSketch>;

// ---- estimates ----

// The measurements of a stage: for each parameter and pass the sketch of the gradient's error.
struct StageErrors {
  const Stage* stage = nullptr;
  std::vector<std::vector<Sketch>> errors;  // [parameter][pass]
};

struct Estimate {
  // Per parameter and unit: the energy (squared norm) of the error that the unit's noise of 4 bits
  // causes. Only units in the parameter's set, in its order; empty for a parameter left out.
  struct Share {
    std::uint32_t unit;
    double energy;
    double variance;  // of the energy, told from how well all fits
  };
  std::vector<std::vector<Share>> of_parameter;
  std::vector<double> energies;  // per unit, summed over parameters
};

// `readers[p]`: the units that may have disturbed parameter p. `floor[p]`: energy of the difference
// that two equal passes show, which is taken off the energy of each pass; empty: none. Left out,
// for a parameter: stages whose errors are not finite, or all zero. The solution is sparse: at most
// one non-zero energy per equation. Units a thousand times weaker come out as zero.
[[nodiscard]] Estimate estimate(std::span<const StageErrors> stages,
                                std::span<const std::vector<std::uint32_t>> readers,
                                std::size_t units, std::span<const double> floor = {});

// Cautious energies, per unit: their sums over parameters, each times its weight (none given: 1),
// but at least three tenths of the standard deviations of these sums. Zero only means that louder
// units hid a unit. A zero that is trusted wrongly costs more than a few bits of an unimportant
// unit.
[[nodiscard]] std::vector<double> cautious_energies(const Estimate& estimate,
                                                    std::span<const double> weights = {});

// x >= 0 that makes |A x - y|^2 least (Lawson and Hanson 1974, ch. 23). A: rows * columns, row by
// row. Of dependent columns some stay zero. An input that is not finite makes all zero.
[[nodiscard]] std::vector<double> non_negative_least_squares(std::span<const double> a,
                                                             std::span<const double> y,
                                                             std::size_t columns);

}  // namespace pleat::sensitivity

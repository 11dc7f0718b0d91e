// The squared error that the elements of a group would have at some width. A group is described by
// its metadata at that width. Its elements are pieces: single values, or ranges from the codes of
// another width. Internal to compress/block/.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "compress/format.h"
#include "compress/grouped/group_math.h"
#include "compress/payload_writer.h"
#include "compress/rotated/scaled_math.h"
#include "compress/sides/side_math.h"

namespace pleat::compress::block {

// `count` elements that lie evenly from `from` to `to`. An element counts for more or for less than
// one where its error is divided by a power of two afterwards.
struct Piece {
  float from, to;
  double count;
};

// The elements of a group that may have an error: elements that come back exact at every width are
// left out.
class Pieces {
 public:
  void clear() noexcept {
    size_ = 0;
    count_ = zeros_ = 0;
    largest_ = 0;
  }
  void add(float from, float to, double count) noexcept {
    if (count > 0 && size_ < pieces_.size()) {
      pieces_[size_++] = {from, to, count};
      count_ += count;
      zeros_ += from == 0.0f && to == 0.0f ? count : 0;
      largest_ = std::max({largest_, magnitude(from), magnitude(to)});
    }
  }
  [[nodiscard]] double count(bool with_zeros) const noexcept {
    return with_zeros ? count_ : count_ - zeros_;
  }
  [[nodiscard]] float largest() const noexcept { return largest_; }  // magnitude
  [[nodiscard]] const Piece* begin() const noexcept { return pieces_.data(); }
  [[nodiscard]] const Piece* end() const noexcept { return pieces_.data() + size_; }

 private:
  std::array<Piece, kGroupElements + 4> pieces_;  // between 256 codes, two more, and both ends
  std::size_t size_ = 0;
  double count_ = 0, zeros_ = 0;
  float largest_ = 0;
};

// Rounding to the type does not count where a step has so many ulps: distances from one value of
// the type to the next.
inline constexpr double kManyUlps = 32;
// Expected squared error of a value of the type that gets noise and is then rounded to the type.
// Restored with dither: the noise is uniform within half a step (Roberts 1962).
[[nodiscard]] double dithered_error(double step, double ulp) noexcept;
// Restored plainly, the mean over values anywhere between two levels: the noise is triangular.
[[nodiscard]] double rounded_error(double step, double ulp) noexcept;

// The bounds that values come back on the same side of, -Inf and Inf for none.
struct NoiseBounds {
  float low = float_of(0xFF80'0000u), high = float_of(0x7F80'0000u);

  [[nodiscard]] bool any() const noexcept { return is_finite_value(low) || is_finite_value(high); }
};
// Of a rotated group: the noise is about Gaussian.
[[nodiscard]] double gaussian_error(double deviation, double ulp) noexcept;
// How much of the dithered error is left, in the mean over [from, to], where values that noise has
// carried across a bound are moved back to it.
[[nodiscard]] double share_within(NoiseBounds bounds, double step, double from, double to) noexcept;

// The mean of f (1 - f) over [from, to], where f is the fraction of a number. Stochastic rounding
// of x has the squared error f (1 - f) of squared steps.
[[nodiscard]] double mean_rounding(double from, double to) noexcept;

// How the levels of a group were coded at the width of its payload.
struct CodedLevels {
  float anchor, step;          // of the first level; signed
  unsigned first_code, count;  // of the levels: what is before and behind them has no noise
  float minimum, maximum;      // no element is beyond
};
// The elements that had these codes. Rounding is unbiased: the code of an element is its distance
// from the anchor, in steps, in the mean. Elements between two levels are taken for even there. But
// those above the lowest level may crowd near it, as probabilities do; how many were rounded up
// tells. At an anchor of zero it is zeros that crowd.
void pieces_of_codes(const std::array<std::uint16_t, 256>& counts, const CodedLevels& levels,
                     Pieces* pieces) noexcept;

namespace {

// A regular or wide group. `zeros`: those of regular groups of both signs are kept.
template <class T>
Dequantiser read_coded_group(const Metadata<T>& metadata, unsigned bits, bool zeros) noexcept {
  return kind_of<T>(metadata) == GroupKind::kRegular ? read_group<T>(metadata, bits, zeros)
                                                     : read_lossy_group<T>(metadata, bits);
}

template <class T>
double ulp_at(float magnitude) noexcept {
  const auto word = static_cast<typename T::Word>(
      std::min<typename T::Word>(T::from_float(magnitude), T::kInfinity - 2));
  return double{T::to_float(next_above<T>(word))} - T::to_float(word);
}

// The noise of elements of one group by their binade, as rounding to the type leaves it.
template <class T>
class NoiseByBinade {
 public:
  using Error = double (*)(double size, double ulp);
  // `size`: as `error` has it.
  NoiseByBinade(double size, Error error) noexcept : size_(size), error_(error) { known_.fill(-1); }
  // The mean over [from, to].
  [[nodiscard]] double over(float from, float to) noexcept {
    const float low = magnitude(from), high = magnitude(to);
    if (from < 0.0f && to > 0.0f)
      return (low * above_zero(0, low) + high * above_zero(0, high)) / (double{low} + high);
    return above_zero(std::min(low, high), std::max(low, high));
  }

 private:
  static constexpr unsigned kMostBinades = 12;  // farther down the noise is the same

  [[nodiscard]] double above_zero(float low, float high) noexcept {
    unsigned binade = bits_of(high) >> 23;
    if (binade == bits_of(low) >> 23) return at(binade);
    double sum = 0, top = high;
    for (unsigned i = 0; i < kMostBinades && top > low; ++i, --binade) {
      const double bottom = std::max(low, float_of(binade << 23));
      sum += (top - bottom) * at(binade);
      top = bottom;
      if (binade == 0) break;
    }
    return (sum + (top - low) * at(binade)) / (double{high} - low);
  }
  [[nodiscard]] double at(unsigned binade) noexcept {
    if (known_[binade] < 0) known_[binade] = error_(size_, ulp_at<T>(float_of(binade << 23)));
    return known_[binade];
  }

  double size_;
  Error error_;
  std::array<double, 256> known_;
};

// The squared error of a rotated group: its quantised elements share theirs evenly.
template <class T>
double rotated_error(const Pieces& pieces, const Metadata<Float32>& metadata,
                     const Request& request) noexcept {
  const double step = step_of_any_group(metadata, request.bits, request.scaled);
  const bool scaled = request.scaled && is_scaled(metadata);
  const bool even = scaled || read_group<Float32>(metadata, request.bits).dither;
  NoiseByBinade<T> noise(step * std::sqrt(even ? 1.0 / 12 : 1.0 / 6), gaussian_error);
  double sum = 0;
  for (const Piece& piece : pieces) sum += piece.count * noise.over(piece.from, piece.to);
  return sum;
}

// The squared error of a group, summed over its elements, at the width whose metadata these are.
// The bounds of plain groups are not looked at: zero, the usual one, is none that these cross.
//   pieces   of the elements as they are coded, but not rotated
//   Coded    type of the metadata
//   request  of which the values are not read
template <class T, class Coded>
double squared_error(const Pieces& pieces, const Metadata<Coded>& metadata, const Request& request,
                     NoiseBounds bounds) noexcept {
  const GroupKind kind = kind_of<Coded>(metadata);
  if (kind != GroupKind::kRegular && kind != GroupKind::kWide) return 0;
  if constexpr (std::is_same_v<Coded, Float32>)
    if (request.transformed && kind == GroupKind::kRegular)
      return rotated_error<T>(pieces, metadata, request);
  const Dequantiser group = read_coded_group<Coded>(metadata, request.bits, request.zeros);
  const double step = magnitude(group.step);
  if (group.dither && !bounds.any() && step >= kManyUlps * ulp_at<T>(pieces.largest()))
    return pieces.count(!group.keep_zero) * dithered_error(step, 0);
  NoiseByBinade<T> noise(step, group.dither ? dithered_error : rounded_error);
  double sum = 0;
  for (const Piece& piece : pieces) {
    if (group.keep_zero && piece.from == 0.0f && piece.to == 0.0f) continue;
    double share = 1;
    if (group.dither) {
      share = share_within(bounds, step, piece.from, piece.to);
    } else {
      const double a = std::fabs(double{piece.from} - group.anchor) / step;
      const double b = std::fabs(double{piece.to} - group.anchor) / step;
      share = 6 * mean_rounding(std::min(a, b), std::max(a, b));
    }
    if (share != 0) sum += piece.count * share * noise.over(piece.from, piece.to);
  }
  return sum;
}

}  // namespace
}  // namespace pleat::compress::block

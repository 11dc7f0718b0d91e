#include "compress/block/scales.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compress/float_types.h"
#include "compress/format.h"

namespace pleat::compress::block {
namespace {

constexpr std::size_t kRows = 256, kGroups = 64;  // of a sample
// Elements of a channel that tell its size; of few elements a larger ratio counts.
constexpr std::size_t kFewest = 4, kFew = 16;
constexpr double kUnlike = 1, kUnlikeOfFew = 1.5;  // as powers of two
constexpr std::uint32_t kMostChannels = 1u << 16;
constexpr int kMostRatio = 15;  // of a channel to the median, as a power of two
// A rotated group spans 5.7 of its root mean square. Levels for a Gaussian have less noise.
constexpr double kWide = 6, kStillWide = 5.5, kWideForLevels = 4.5, kStillWideForLevels = 4;
constexpr double kManyZeros = 1.0 / 50;

// The `i`-th of the samples of `count` items.
std::size_t sampled(std::size_t i, std::size_t samples, std::size_t count) noexcept {
  return samples >= count ? i : spread_place(i, count);
}

template <class T>
class Sample {
 public:
  Sample(const Span& span, const BlockSpec& spec) noexcept
      : words_(static_cast<const typename T::Word*>(span.data)),
        elements_(span.elements),
        row_(spec.rows_have_exponents() ? spec.lines.length : 0),
        channels_(spec.channels),
        by_most_rows_(spec.lines.look == Look::kRows),
        levels_(has_scaled_groups(supported_bits(spec.bits))) {}

  [[nodiscard]] Scales measure(const Scales& before) const {
    Scales scales;
    measure_channels(scales);
    std::vector<double> widths;
    std::size_t zeros = 0, counted = 0;
    const std::size_t groups = elements_ / kGroupElements;
    for (std::size_t i = 0; i < std::min(kGroups, groups); ++i) {
      const Group group = look_at(sampled(i, kGroups, groups), scales.table.get());
      zeros += group.zeros;
      counted += group.counted;
      if (group.both_signs) widths.push_back(group.width);
    }
    scales.zeros = static_cast<double>(zeros) > kManyZeros * static_cast<double>(counted);
    if (!scales.zeros && 2 * widths.size() > std::min(kGroups, groups)) {
      const double least = levels_ ? (before.rotates ? kStillWideForLevels : kWideForLevels)
                                   : (before.rotates ? kStillWide : kWide);
      scales.rotates = median_above_zero(widths) > least;
    }
    return scales;
  }

 private:
  struct Group {
    double width = 0;  // of its root mean square
    std::size_t zeros = 0, counted = 0;
    bool both_signs = false;
  };

  [[nodiscard]] float value(std::size_t i) const noexcept {
    const float x = T::to_float(words_[i]);
    return std::isfinite(x) ? x : 0.0f;
  }

  // Exponents of the channels: their root mean square over the median of all. A channel that is
  // small but for a few elements is not brought to more than their size, and one that is large in a
  // few rows is not made smaller in others that are normalised.
  void measure_channels(Scales& scales) const {
    const std::size_t inner = channels_.inner, period = channels_.count * inner;
    if (channels_.count < 2 || channels_.count > kMostChannels || inner == 0 ||
        elements_ % period != 0)
      return;
    const std::size_t rows = elements_ / period, looks = std::min(kRows, rows);
    if (looks * inner < kFewest) return;
    const double unlike = looks * inner < kFew ? kUnlikeOfFew : kUnlike;
    std::vector<double> squares(channels_.count), largest(channels_.count);
    for (std::size_t i = 0; i < looks; ++i) {
      const std::size_t begin = sampled(i, kRows, rows) * period;
      for (std::size_t c = 0; c < channels_.count; ++c)
        for (std::size_t k = 0; k < inner; ++k) {
          const double x = value(begin + c * inner + k), square = x * x;
          squares[c] += square;
          largest[c] = std::max(largest[c], square);
        }
    }
    const double usual = median_above_zero(squares), usual_most = median_above_zero(largest);
    if (usual == 0) return;
    std::vector<double> quarters;
    double usual_quarter = 0;
    if (by_most_rows_) {
      quarters = measure_quarters(looks);
      usual_quarter = median_above_zero(quarters);
    }
    auto table = std::make_shared<std::vector<std::int8_t>>(channels_.count);
    for (std::size_t c = 0; c < squares.size(); ++c) {
      if (squares[c] == 0) continue;
      double ratio = std::log2(squares[c] / usual) / 2;
      if (ratio > 0 && by_most_rows_) {
        const double of_most = quarters[c] / usual_quarter;
        ratio = of_most > 1 ? std::min(ratio, std::log2(of_most)) : 0;
      }
      if (ratio < 0) ratio = std::min(0.0, std::max(ratio, std::log2(largest[c] / usual_most) / 2));
      if (std::fabs(ratio) >= unlike)
        (*table)[c] = static_cast<std::int8_t>(
            -std::clamp<double>(std::round(ratio), -kMostRatio, kMostRatio));
    }
    const std::int8_t most = *std::max_element(table->begin(), table->end());
    for (std::int8_t& entry : *table) entry = static_cast<std::int8_t>(entry - most);
    if (*std::min_element(table->begin(), table->end()) < 0) scales.table = std::move(table);
  }
  // Of each channel: a quarter of its sampled elements are smaller.
  [[nodiscard]] std::vector<double> measure_quarters(std::size_t looks) const {
    const std::size_t inner = channels_.inner, period = channels_.count * inner;
    std::vector<double> quarters(channels_.count), sizes(looks * inner);
    for (std::size_t c = 0; c < channels_.count; ++c) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::size_t row = sampled(i / inner, kRows, elements_ / period);
        sizes[i] = std::fabs(double{value(row * period + c * inner + i % inner)});
      }
      const auto quarter = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 4);
      std::nth_element(sizes.begin(), quarter, sizes.end());
      quarters[c] = *quarter;
    }
    return quarters;
  }
  [[nodiscard]] static double median_above_zero(std::vector<double> values) {
    std::erase_if(values, [](double x) { return !(x > 0); });
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  [[nodiscard]] int entry(std::size_t i, const std::vector<std::int8_t>& table) const noexcept {
    return table[i / channels_.inner % channels_.count];
  }
  // Of a part that is alone in its group.
  [[nodiscard]] int common_exponent_of(std::size_t begin, std::size_t end,
                                       const std::vector<std::int8_t>& table) const {
    float largest = 0, scaled = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const float size = std::fabs(value(i));
      largest = std::max(largest, size);
      scaled = std::max(scaled, std::ldexp(size, entry(i, table)));
    }
    if (scaled == 0) return 0;
    return static_cast<int>(common_exponent(std::bit_cast<std::uint32_t>(largest),
                                            std::bit_cast<std::uint32_t>(scaled),
                                            std::bit_cast<std::uint32_t>(T::kLargest)));
  }

  // A group as it would be quantised.
  [[nodiscard]] Group look_at(std::size_t number, const std::vector<std::int8_t>* table) const {
    const std::size_t first = number * kGroupElements;
    double least = 0, most = 0, squares = 0;
    Group group;
    for (std::size_t begin = first, end; begin < first + kGroupElements; begin = end) {
      end = first + kGroupElements;
      if (row_ != 0) end = std::min(end, begin - begin % row_ + row_);
      const int common = table == nullptr ? 0 : common_exponent_of(begin, end, *table);
      double low = 0, high = 0, sum = 0;
      std::size_t zeros = 0;
      for (std::size_t i = begin; i < end; ++i) {
        double x = value(i);
        zeros += x == 0 ? 1 : 0;
        if (table != nullptr) x = std::ldexp(x, exponent_of_element(common, entry(i, *table)));
        low = std::min(low, x);
        high = std::max(high, x);
        sum += x * x;
      }
      if (low == high) continue;  // zeros
      group.zeros += zeros;
      group.counted += end - begin;
      const double size = std::max(-low, high);  // parts are brought to about one size
      const double scale = row_ != 0 ? 1 / size : 1;
      least = std::min(least, low * scale);
      most = std::max(most, high * scale);
      squares += sum * scale * scale;
    }
    group.both_signs = least < 0 && most > 0;
    if (squares > 0)
      group.width = (most - least) / std::sqrt(squares / static_cast<double>(group.counted));
    return group;
  }

  const typename T::Word* words_;
  std::size_t elements_, row_;
  Channels channels_;
  // A reader that normalises rows asks for noise of each row's own size. Where a channel is large
  // in a few rows only, the others that share groups with these would have more in it.
  bool by_most_rows_;
  bool levels_;
};

}  // namespace

Scales measure_scales(const Span& span, const BlockSpec& spec, const Scales& before) {
  return with_type(span.type, [&]<class T>() { return Sample<T>(span, spec).measure(before); });
}

}  // namespace pleat::compress::block

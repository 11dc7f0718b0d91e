#include "torch_bridge/policy/claim.h"

#include <algorithm>

namespace pleat::bridge {

using compress::block::Channels;
using compress::block::kShortestLine;
using compress::block::Lines;
using compress::block::Look;
using compress::block::Steps;

SavedShape::SavedShape(const c10::TensorImpl& tensor) noexcept
    : rank(static_cast<std::uint8_t>(std::min<std::int64_t>(tensor.dim(), kMostDimensions + 1))) {
  if (rank > kMostDimensions) {
    return;
  }
  std::copy_n(tensor.sizes().begin(), rank, sizes.begin());
  contiguous = tensor.is_contiguous();
  const bool dense = rank >= 2 && tensor.is_non_overlapping_and_dense();
  channels_last = dense && tensor.stride(1) == 1;
  // Heads may lie next to each other: the rows are those of all heads then.
  row = dense && tensor.stride(rank - 1) == 1 ? tensor.stride(rank - 2) : 0;
}

Lines lines_of(const SavedShape& shape, Rows rows, std::int64_t groups) noexcept {
  constexpr std::int64_t kShortestRow = 24;  // shorter ones would need too many exponents
  const auto lines = [](Look look, std::int64_t length) {
    return length > 1 && length <= UINT32_MAX ? Lines{look, static_cast<std::uint32_t>(length)}
                                              : Lines{};
  };
  if (shape.rank < 2 || shape.rank > SavedShape::kMostDimensions) {
    return {};
  }
  const std::size_t dimensions = shape.rank;
  const std::int64_t channels = shape.sizes[1];
  if (!shape.contiguous) {
    const bool of_image = rows == Rows::kPlanes || rows == Rows::kSamples;
    return of_image && shape.channels_last ? lines(Look::kColumns, channels) : Lines{};
  }
  const std::int64_t last = shape.sizes[dimensions - 1];
  std::int64_t plane = 1;
  for (std::size_t d = 2; d < dimensions; ++d) {
    plane *= shape.sizes[d];
  }
  if (rows == Rows::kPlanes) {  // small planes of one channel are columns next to each other
    return plane >= kShortestLine ? lines(Look::kRows, plane)
                                  : lines(Look::kColumns, channels * plane);
  }
  if (rows == Rows::kSamples) {
    const std::int64_t line = groups > 0 ? channels / groups * plane : 0;
    return lines(Look::kRows, line >= kShortestLine ? line : channels * plane);
  }
  if (rows == Rows::kLastDimension) {
    std::int64_t length = last;
    for (std::size_t d = dimensions - 2; d > 0 && length < kShortestLine; --d) {
      length *= shape.sizes[d];  // the normalisation can span several last dimensions
    }
    return lines(Look::kRows, length);
  }
  return dimensions <= 3 && last >= kShortestRow ? lines(Look::kParts, last) : Lines{};
}

Channels channels_of(const SavedShape& shape, bool of_image) noexcept {
  if (shape.rank < 2 || shape.rank > SavedShape::kMostDimensions) {
    return {};
  }
  std::int64_t count = shape.row, inner = 1;
  if (of_image && (shape.contiguous || shape.channels_last)) {
    count = shape.sizes[1];
    for (std::size_t d = 2; shape.contiguous && d < shape.rank; ++d) {
      inner *= shape.sizes[d];
    }
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 16;
  constexpr auto kGroup = static_cast<std::int64_t>(compress::kGroupElements);
  return count > 1 && count <= kMost && inner < kGroup
             ? Channels{static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(inner)}
             : Channels{};
}

Decision with_noise(const Decision& decision, Noise noise, Why why) noexcept {
  Decision next = noise >= Noise::kEight ? decision.raised(why, 8) : decision;
  if (noise == Noise::kExponent) {
    next.choice.steps = Steps::kExponent;
  } else if (noise == Noise::kCurved) {
    next.choice.steps = std::max(next.choice.steps, Steps::kCurved);
  }
  return next;
}

}  // namespace pleat::bridge

#include "torch_bridge/policy/claim.h"

#include <algorithm>

namespace pleat::bridge {

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
  channels_last = rank >= 2 && tensor.stride(1) == 1 && tensor.is_non_overlapping_and_dense();
}

Lines lines_of(const SavedShape& shape, Rows rows) noexcept {
  constexpr std::uint32_t kShortestZeroRow = 32;
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
    return lines(Look::kRows, plane >= kShortestLine ? plane : channels * plane);
  }
  if (rows == Rows::kLastDimension) {
    std::int64_t length = last;
    for (std::size_t d = dimensions - 2; d > 0 && length < kShortestLine; --d) {
      length *= shape.sizes[d];  // the normalisation can span several last dimensions
    }
    return lines(Look::kRows, length);
  }
  return dimensions <= 3 && last >= kShortestZeroRow ? lines(Look::kZeroRows, last) : Lines{};
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

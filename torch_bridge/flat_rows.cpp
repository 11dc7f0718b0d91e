#include "torch_bridge/flat_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compress/group_math.h"

namespace pleat::bridge {
namespace {

using compress::ElementType;

constexpr std::size_t kGroup = 256;
constexpr std::size_t kProbe = 16;  // elements of a row
constexpr std::size_t kManyRows = 1024, kProbeEvery = 8;
constexpr std::size_t kShortest = 16;  // row: of a few elements many are flat by chance
constexpr std::size_t kShortestRun = 256;  // bytes of a span, on average; what it takes beside its codes is 130

struct Float32 {
  const float* data;
  float operator[](std::size_t i) const noexcept { return data[i]; }
};
struct BFloat16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(data[i]) << 16);
  }
};
struct Float16 {
  const std::uint16_t* data;
  float operator[](std::size_t i) const noexcept { return compress::float_of_half(data[i]); }
};

// Largest less smallest of [begin, end); what is not finite makes it so, or is passed over.
template <class Values>
float range_of(const Values& values, std::size_t begin, std::size_t end) noexcept {
  float low = values[begin];
  float high = low;
  for (std::size_t i = begin + 1; i < end; ++i) {
    const float value = values[i];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  return high - low;
}

constexpr float levels(std::uint8_t bits) noexcept { return static_cast<float>((1u << bits) - 1); }

template <class Values>
std::uint8_t bits_for(const Values& values, std::size_t elements, std::size_t row, std::uint8_t bits) noexcept {
  for (std::size_t begin = 0; begin < elements; begin += kGroup) {
    const std::size_t end = std::min(elements, begin + kGroup);
    const std::size_t first = begin / row;
    const std::size_t last = (end - 1) / row;
    if (first == last) {
      continue;
    }
    float least = std::numeric_limits<float>::infinity();
    float most = 0;
    for (std::size_t r = first; r <= last; ++r) {
      const float range = range_of(values, r * row, std::min({elements, (r + 1) * row, r * row + kProbe}));
      least = std::min(least, range);
      most = std::max(most, range);
    }
    if (levels(bits) * least >= 4 * most) {  // half of what a look at the whole asks for
      continue;
    }
    const float step = 2 * range_of(values, begin, end);
    if (!std::isfinite(step)) {
      continue;  // such a group is kept as it is
    }
    for (std::size_t r = first; r <= last; ++r) {
      const float range = range_of(values, r * row, std::min(elements, (r + 1) * row));
      while (bits != 0 && levels(bits) * range < step) {
        bits = bits < 8 ? 8 : 0;
      }
    }
    if (bits == 0) {
      return 0;
    }
  }
  return bits;
}

}  // namespace

std::uint8_t bits_for_rows(const void* data, std::size_t elements, ElementType type, std::size_t row,
                           std::uint8_t bits) noexcept {
  if (row < kShortest || row % kGroup == 0) {
    return bits;
  }
  switch (type) {
    case ElementType::kFloat32:
      return bits_for(Float32{static_cast<const float*>(data)}, elements, row, bits);
    case ElementType::kBFloat16:
      return bits_for(BFloat16{static_cast<const std::uint16_t*>(data)}, elements, row, bits);
    case ElementType::kFloat16:
      return bits_for(Float16{static_cast<const std::uint16_t*>(data)}, elements, row, bits);
    default:
      return bits;
  }
}

std::vector<allocator::ByteRange> ranges_without_zero_rows(const void* data, std::size_t elements,
                                                           ElementType type, std::size_t row) {
  std::vector<allocator::ByteRange> ranges;
  if (row == 0 || row % kGroup == 0 || elements % row != 0) {
    return ranges;
  }
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const std::size_t item = compress::element_size(type);
  const std::size_t row_bytes = row * item;
  const std::size_t total = elements * item;
  const auto is_zero = [&](std::size_t begin) {
    if (bytes[begin + item - 1] != 0 || bytes[begin + item - 2] != 0) {  // nearly always: sign and exponent
      return false;
    }
    return std::all_of(bytes + begin, bytes + begin + row_bytes, [](unsigned char b) { return b == 0; });
  };
  // A look at every row would take 1 % of a step of a model of width 128. Padding is many rows.
  const std::size_t rows = elements / row;
  if (rows >= kManyRows) {
    std::size_t probed = 0;
    while (probed < rows && !is_zero(probed * row_bytes)) {
      probed += kProbeEvery;
    }
    if (probed >= rows && !is_zero(total - row_bytes)) {
      return ranges;
    }
  }
  std::size_t begin = 0;  // of a run of rows that are not zero
  std::size_t covered = 0;
  const auto end_run = [&](std::size_t end) {
    if (begin < end) {
      ranges.push_back({begin, end});
      covered += end - begin;
    }
  };
  for (std::size_t at = 0; at < total; at += row_bytes) {
    if (is_zero(at)) {
      end_run(at);
      begin = at + row_bytes;
    }
  }
  end_run(total);
  if (covered == total || ranges.size() * kShortestRun > covered) {
    ranges.clear();
  }
  return ranges;
}

}  // namespace pleat::bridge

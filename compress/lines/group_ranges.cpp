#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/format.h"
#include "compress/lines/exact_lines.h"
#include "compress/lines/line_values.h"
#include "compress/parts.h"

namespace pleat::compress::block {
namespace {

// True if some word is one of Inf or NaN: its exponent's bits, `mask`, are all set.
template <class Word>
bool any_nonfinite(const void* data, std::size_t begin, std::size_t end, Word mask) noexcept {
  const auto* const words = static_cast<const Word*>(data);
  Word found = 0;
  for (std::size_t i = begin; i < end; ++i)
    found = static_cast<Word>(found | static_cast<Word>((words[i] & mask) == mask));
  return found != 0;
}
bool any_nonfinite(const Float32& values, std::size_t begin, std::size_t end) noexcept {
  return any_nonfinite<std::uint32_t>(values.data, begin, end, 0x7F80'0000u);
}
bool any_nonfinite(const BFloat16& values, std::size_t begin, std::size_t end) noexcept {
  return any_nonfinite<std::uint16_t>(values.data, begin, end, 0x7F80u);
}
bool any_nonfinite(const Float16& values, std::size_t begin, std::size_t end) noexcept {
  return any_nonfinite<std::uint16_t>(values.data, begin, end, 0x7C00u);
}

template <class Values>
GroupRange group_range(const Values& values, std::size_t begin, std::size_t end) noexcept {
  const float range = range_of(values, begin, end);
  if (std::isfinite(range) && !any_nonfinite(values, begin, end)) return {range, false};
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::size_t i = begin; i < end; ++i) {
    const double value = values[i];
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return {high < low ? 0 : high - low, true};
}

}  // namespace

float GroupRange::step(ElementType type, unsigned bits, float widest) const noexcept {
  bits = supported_bits(bits);
  if (wide && !has_wide_groups(bits)) return 0;
  // Three codes of a wide group stand for no level, and its step has few bits.
  const double rounded_up = type == ElementType::kFloat32    ? 1 + 0x1p-18
                            : type == ElementType::kBFloat16 ? 1.25
                                                             : 1.0625;
  const double step = wide ? range / ((1u << bits) - 4) * rounded_up : range / ((1u << bits) - 1);
  return step <= widest ? static_cast<float>(step) : 0;
}

std::vector<GroupRange> group_ranges(const void* data, std::size_t elements, ElementType type,
                                     const compress::Executor& executor) {
  std::vector<GroupRange> ranges((elements + kGroup - 1) / kGroup);
  with_values(data, type, [&](const auto& values) {
    compress::run_parts(
        executor, ranges.size(), kGrainElements / kGroup, [&](std::size_t begin, std::size_t end) {
          for (std::size_t g = begin; g < end; ++g)
            ranges[g] = group_range(values, g * kGroup, std::min(elements, (g + 1) * kGroup));
        });
  });
  return ranges;
}

}  // namespace pleat::compress::block

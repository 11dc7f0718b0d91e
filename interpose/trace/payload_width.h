// The size of a payload at another width, for the recorder's report and for `pleat trace`.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pleat::trace {

// Of a payload what stands beside the codes: at least 4 bytes for each group of 256 elements.
[[nodiscard]] constexpr std::int64_t beside_codes(std::int64_t elements) noexcept {
  return elements / 64;
}

// The elements of a saved tensor that may bear noise, as they are coded.
struct NoisyElements {
  std::int64_t count = 0;  // 0: it is exact
  std::uint8_t bits = 0;   // of each; 1 to 8, if there are any
  std::uint8_t least = 0;  // that each needs, however few are asked for
};

// Bytes of a payload of `payload` bytes with `bits` for each element, for a storage of `raw` bytes.
// Codes are scaled, what stands beside them is not. Of a payload with fewer codes than elements,
// because zeros or constants were left out, as many are left out.
[[nodiscard]] constexpr std::int64_t payload_at_width(std::int64_t payload,
                                                      const NoisyElements& elements, double bits,
                                                      std::int64_t raw) noexcept {
  if (elements.count <= 0 || elements.bits == 0 || payload <= 0) return payload;
  const std::int64_t beside = std::min(payload, beside_codes(elements.count));
  const double codes = std::min(static_cast<double>(elements.count) * elements.bits / 8,
                                static_cast<double>(payload - beside));
  const double more = codes * (std::max<double>(bits, elements.least) / elements.bits - 1);
  const auto rounded = static_cast<std::int64_t>(more < 0 ? more - 0.5 : more + 0.5);
  return std::clamp<std::int64_t>(payload + rounded, 0, std::max(raw, payload));
}

}  // namespace pleat::trace

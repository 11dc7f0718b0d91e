// The request for a payload, and the header that completes it, for all forms. Internal to
// compress/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "compress/format.h"
#include "compress/parts.h"
#include "compress/types.h"

namespace pleat::compress {

// A request after the checks that need no data.
struct Request {
  Span span;
  CodecSpec spec;
  unsigned bits = 0;  // the width used: 0 unless the type is floating
  bool transformed = false;
  bool scaled = false;
  bool sides_only = false;  // the sides of the elements are kept, not their values
  bool zeros = false;       // CodecSpec::zeros
  Exponents exponents{};
  std::uint64_t nonce = 0;
  // The bytes of the parts of all groups, written while encoding; null without exponents.
  std::int8_t* parts = nullptr;
  // A count of elements near zero for each group, written while encoding; null: none are kept.
  std::uint16_t* near_counts = nullptr;

  Request(const Span& span, const CodecSpec& spec, std::uint64_t nonce) noexcept;

  [[nodiscard]] GroupedLayout layout() const noexcept {
    return {span.type, bits, span.elements, transformed, exponents};
  }
  [[nodiscard]] ElementType metadata_type() const noexcept {
    return transformed ? ElementType::kFloat32 : span.type;
  }
  // False if any values can be coded: no group is escaped then.
  [[nodiscard]] bool may_escape() const noexcept {
    return !has_wide_groups(bits) || spec.widest_step <= std::numeric_limits<float>::max();
  }
  [[nodiscard]] std::size_t escape_limit(const GroupedLayout& layout) const noexcept {
    return may_escape() ? layout.escape_limit(bits, spec.escape_64ths) : 0;
  }
  // Bytes of a grouped payload with `escapes` escaped groups and no compacted block.
  [[nodiscard]] std::size_t grouped_bytes(const GroupedLayout& layout,
                                          std::size_t escapes) const noexcept;
  [[nodiscard]] std::size_t raw_bytes() const noexcept { return kHeaderBytes + span.bytes(); }
  // False if the raw payload is no larger: the span is then stored raw from the start.
  [[nodiscard]] bool grouped_pays(const GroupedLayout& layout) const noexcept;
  // As EncodeGroups::widest_step.
  [[nodiscard]] std::uint32_t widest_step_bits() const noexcept;
  [[nodiscard]] Header header(PayloadKind kind) const noexcept;
};

// True if the span repeats one bit pattern.
[[nodiscard]] bool is_constant(const Span& span) noexcept;
[[nodiscard]] std::uint64_t first_pattern(const Span& span) noexcept;

[[nodiscard]] constexpr std::size_t packed_bytes(std::size_t elements, unsigned width) noexcept {
  return elements / 8 * width + ceil_divide(elements % 8 * width, 8);
}

// The outcome of an encode whose payload is larger than the room for it.
inline constexpr EncodeResult kDoesNotFit{Status::kNoRoom, 0};
// Writes the header of a payload of `bytes` bytes.
EncodeResult finish_header(Header header, std::size_t bytes, std::uint8_t* payload) noexcept;

}  // namespace pleat::compress

#include "compress/payload_writer.h"

#include <cstring>

#include "compress/element_math.h"
#include "compress/sides/side_bounds.h"

namespace pleat::compress {

Request::Request(const Span& span_of, const CodecSpec& spec_of, std::uint64_t nonce_of) noexcept
    : span(span_of),
      spec(spec_of),
      bits(is_floating(span_of.type) && !spec_of.sides.any() ? supported_bits(spec_of.bits) : 0),
      transformed(bits != 0 && spec_of.transform != Transform::kNone),
      scaled(has_scaled_groups(bits) && spec_of.transform == Transform::kHadamardScaled),
      sides_only(!spec_of.force_raw && sides_hold(spec_of.sides, span_of.type)),
      zeros(bits >= 2 && spec_of.zeros && !transformed && !spec_of.near_zero),
      exponents(bits != 0 && spec_of.exponents.any() && !spec_of.near_zero ? spec_of.exponents
                                                                           : Exponents{}),
      nonce(nonce_of) {}

std::size_t Request::grouped_bytes(const GroupedLayout& layout,
                                   std::size_t escapes) const noexcept {
  return layout.end() + escapes * layout.source_bytes_per_group;
}

bool Request::grouped_pays(const GroupedLayout& layout) const noexcept {
  return layout.end() < raw_bytes();
}

std::uint32_t Request::widest_step_bits() const noexcept {
  return spec.widest_step < float_of(kLargestFinite) ? bits_of(spec.widest_step) : kLargestFinite;
}

Header Request::header(PayloadKind kind) const noexcept {
  Header header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.type = static_cast<std::uint8_t>(span.type);
  header.bits = static_cast<std::uint8_t>(bits);
  if (spec.force_raw) header.flags |= kFlagForceRaw;
  header.elements = span.elements;
  header.nonce = nonce;
  return header;
}

bool is_constant(const Span& span) noexcept {
  const std::size_t size = element_size(span.type);
  const auto* const bytes = static_cast<const std::uint8_t*>(span.data);
  return span.elements != 0 && std::memcmp(bytes, bytes + size, span.bytes() - size) == 0;
}

std::uint64_t first_pattern(const Span& span) noexcept {
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, span.data, element_size(span.type));
  return pattern;
}

EncodeResult finish_header(Header header, std::size_t bytes, std::uint8_t* payload) noexcept {
  header.payload_bytes = bytes;
  std::memcpy(payload, &header, sizeof header);
  return {Status::kOk, bytes};
}

}  // namespace pleat::compress

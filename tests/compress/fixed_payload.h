// A grouped payload as docs/payload_format.md lays it out before compaction, which is how a device
// writes it; groups by the scalar path. Needs no test framework: the check on a GPU uses it too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compress/format.h"
#include "compress/kernels.h"

namespace pleat::compress::test {

// Empty: so many groups escape that the span is kept raw.
inline std::vector<unsigned char> fixed_payload(ElementType type, unsigned bits,
                                                Transform transform, std::size_t elements,
                                                std::uint64_t nonce, const unsigned char* source) {
  const bool transformed = transform != Transform::kNone;
  const bool scaled = transform == Transform::kHadamardScaled && has_scaled_groups(bits);
  const GroupedLayout layout(type, bits, elements, transformed);
  std::vector<unsigned char> payload(layout.end_of_codes());
  BlockResult seen{};
  EncodeGroups job{};
  job.source = source;
  job.groups = elements / kGroupElements;
  job.tail_elements = elements % kGroupElements;
  job.bits = bits;
  job.nonce = nonce;
  job.metadata = payload.data() + kHeaderBytes;
  job.codes = payload.data() + layout.codes_offset;
  job.transformed = transformed;
  job.scaled = scaled;
  job.result = &seen;
  kScalarKernels.encode[static_cast<int>(type)](job);
  if (seen.escaped_groups > layout.escape_limit(bits)) return {};
  const std::size_t size = element_size(type), words = layout.metadata_bytes_per_group;
  std::vector<unsigned char> mark(words, 0);
  mark[words / 2 - 1] = mark[words - 1] = 0x80;
  Header header;
  for (std::size_t g = 0; g < layout.groups; ++g) {
    if (std::memcmp(payload.data() + kHeaderBytes + words * g, mark.data(), words) != 0) continue;
    const std::uint64_t index = header.escapes++;
    std::memcpy(payload.data() + layout.codes_offset + g * layout.slot_bytes, &index, 8);
    const std::size_t from = g * kGroupElements * size;
    const std::size_t end = std::min(elements * size, from + kGroupElements * size);
    payload.insert(payload.end(), source + from, source + end);
    payload.resize(layout.end_of_codes() + header.escapes * kGroupElements * size);
  }
  if (bits == 0 && payload.size() >= kHeaderBytes + elements * size) return {};
  header.kind = static_cast<std::uint8_t>(PayloadKind::kGrouped);
  header.type = static_cast<std::uint8_t>(type);
  header.bits = static_cast<std::uint8_t>(bits);
  header.flags =
      static_cast<std::uint8_t>((seen.lossy_groups != 0 ? kFlagLossy : 0) |
                                (transformed ? kFlagTransformed : 0) | (scaled ? kFlagScaled : 0));
  header.elements = elements;
  header.nonce = nonce;
  header.payload_bytes = payload.size();
  header.code_bytes = layout.code_bytes;
  std::memcpy(payload.data(), &header, sizeof header);
  return payload;
}

}  // namespace pleat::compress::test

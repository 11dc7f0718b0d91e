#include "compress/block/payload_sample.h"

#include <cstring>

#include "compress/format.h"

namespace pleat::compress::block {

void PayloadSample::finish(void* sample) const noexcept {
  Header header;
  std::memcpy(&header, sample, sizeof header);
  header.elements = elements;
  header.payload_bytes = bytes;
  header.code_bytes = code_bytes;
  std::memcpy(sample, &header, sizeof header);
}

std::optional<PayloadSample> sample_payload(ElementType type, unsigned bits, std::size_t elements) {
  constexpr std::size_t kParts = 64;  // of a block of groups each
  const std::size_t blocks = elements / kBlockElements;
  if (!is_floating(type) || !has_wide_groups(bits) || blocks < 2 * kParts) return std::nullopt;
  const GroupedLayout whole(type, bits, elements, false);
  const GroupedLayout part(type, bits, kParts * kBlockElements, false);
  PayloadSample sample{.parts = {{0, kHeaderBytes}},
                       .elements = kParts * kBlockElements,
                       .bytes = part.end_of_codes(),
                       .code_bytes = part.code_bytes};
  const auto add = [&](std::size_t begin, std::size_t bytes_per_group) {
    for (std::size_t i = 0; i < kParts; ++i) {
      const std::size_t from = begin + i * blocks / kParts * kBlockGroups * bytes_per_group;
      sample.parts.push_back({from, from + kBlockGroups * bytes_per_group});
    }
  };
  add(kHeaderBytes, whole.metadata_bytes_per_group);
  add(whole.codes_offset, whole.slot_bytes);
  return sample;
}

}  // namespace pleat::compress::block

#include "compress/block/payload_sample.h"

#include <cstring>
#include <numeric>

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

namespace {

// After so many blocks, rows and channels lie in the groups as they did. 0: not within `most`.
std::uint64_t period_of(const Exponents& exponents, std::uint64_t most) noexcept {
  if (!exponents.any()) return 1;
  const auto blocks = [](std::uint64_t elements) {
    return elements / std::gcd(elements, std::uint64_t{kBlockElements});
  };
  const std::uint64_t rows = blocks(exponents.row);
  const std::uint64_t maps =
      exponents.channels == 0 ? 1 : blocks(std::uint64_t{exponents.channels} * exponents.inner);
  return rows > most || maps > most ? 0 : std::lcm(rows, maps);
}

}  // namespace

std::optional<PayloadSample> sample_payload(const void* header_of) {
  Header header;
  std::memcpy(&header, header_of, sizeof header);
  constexpr std::size_t kParts = 64;  // of a block of groups each
  const auto type = static_cast<ElementType>(header.type);
  const std::size_t blocks = header.elements / kBlockElements;
  const Exponents exponents = exponents_of(header);
  const std::uint64_t period = period_of(exponents, blocks);
  if (header.magic != kMagic || static_cast<PayloadKind>(header.kind) != PayloadKind::kGrouped ||
      (header.flags & (kFlagCompacted | kFlagNearZero)) != 0 || !is_floating(type) ||
      !has_wide_groups(header.bits) || header.escapes != 0 || blocks < 2 * kParts || period == 0 ||
      blocks / period < kParts / 4)
    return std::nullopt;
  const bool transformed = (header.flags & kFlagTransformed) != 0;
  const GroupedLayout whole(type, header.bits, header.elements, transformed, exponents);
  const GroupedLayout part(type, header.bits, kParts * kBlockElements, transformed, exponents);
  PayloadSample sample{.parts = {{0, kHeaderBytes}},
                       .elements = kParts * kBlockElements,
                       .bytes = part.end(),
                       .code_bytes = part.code_bytes};
  // The block of the payload that is block `i` of the sample.
  const auto block_of = [&](std::size_t i) {
    return i + (i * blocks / kParts - i) / period * period;
  };
  const auto add = [&](std::size_t begin, std::size_t bytes_per_group) {
    for (std::size_t i = 0; i < kParts; ++i) {
      const std::size_t from = begin + block_of(i) * kBlockGroups * bytes_per_group;
      sample.parts.push_back({from, from + kBlockGroups * bytes_per_group});
    }
  };
  add(kHeaderBytes, whole.metadata_bytes_per_group);
  add(whole.codes_offset, whole.slot_bytes);
  if (!exponents.any()) return sample;
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::size_t group = block_of(i) * kBlockGroups;
    sample.parts.push_back({whole.end_of_codes() + parts_before(exponents, group),
                            whole.end_of_codes() + parts_before(exponents, group + kBlockGroups)});
  }
  const std::size_t table = whole.end_of_codes() + table_offset(exponents, header.elements);
  const std::size_t parts = all_parts(exponents, sample.elements);
  const std::size_t at = exponents.channels == 0 ? parts : table_offset(exponents, sample.elements);
  sample.parts.push_back({0, at - parts});  // any bytes pad the section
  sample.parts.push_back({table, table + exponents.channels});
  sample.parts.push_back({0, part.exponent_bytes - at - exponents.channels});
  return sample;
}

}  // namespace pleat::compress::block

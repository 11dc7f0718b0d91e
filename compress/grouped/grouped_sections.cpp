#include "compress/grouped/grouped_sections.h"

#include <algorithm>
#include <cstring>

#include "compress/float_types.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// Bytes of the first slot of a compacted block's job; more than are left if the block is damaged.
template <class T>
std::size_t first_slot(const DecodeGroups& job, std::size_t regular) noexcept {
  Metadata<T> metadata;
  std::memcpy(&metadata, job.metadata, sizeof metadata);
  if (!job.squeezed || !is_zero_kept<T>(metadata)) return slot_bytes_of<T>(metadata, regular);
  const auto left = static_cast<std::size_t>(job.codes_end - job.codes);
  return left < kSlotBitmap ? kSlotBitmap : squeezed_slot_bytes(job.bits, job.codes);
}

// Whether an encoder may have written the section of exponents.
bool are_exponents(const Exponents& exponents, std::uint64_t elements,
                   const std::int8_t* parts) noexcept {
  const auto is_part = [](std::int8_t e) { return e == kZeroPart || (e >= 0 && e <= kMostOfPart); };
  const auto is_channel = [](std::int8_t e) { return e >= kLeastOfChannel && e <= 0; };
  return std::all_of(parts, parts + all_parts(exponents, elements), is_part) &&
         std::all_of(exponents.table, exponents.table + exponents.channels, is_channel);
}

}  // namespace

std::optional<GroupedSections> read_sections(const Header& header,
                                             const std::uint8_t* payload) noexcept {
  const auto type = static_cast<ElementType>(header.type);
  const bool transformed = (header.flags & kFlagTransformed) != 0;
  const bool scaled = (header.flags & kFlagScaled) != 0;
  const bool compacted = (header.flags & kFlagCompacted) != 0;
  if (!is_floating(type) || header.elements == 0 || (header.bits == 0 && transformed) ||
      (scaled && !(transformed && has_scaled_groups(header.bits))))
    return std::nullopt;
  const bool has_near = (header.flags & kFlagNearZero) != 0;
  Exponents exponents = exponents_of(header);
  const bool has_exponents = (header.flags & kFlagExponents) != 0;
  if (has_exponents &&
      (!exponents.any() || header.bits == 0 || has_near || header.third_value >> 32 != 0))
    return std::nullopt;
  if ((header.flags & kFlagZeros) != 0 && (header.bits < 2 || transformed || has_near))
    return std::nullopt;
  const GroupedLayout layout(type, header.bits, header.elements, transformed, exponents);
  // Each term is compared before it is added, so no sum can wrap.
  if (layout.codes_offset > header.payload_bytes) return std::nullopt;
  std::size_t left = header.payload_bytes - layout.codes_offset;
  if (compacted ? header.code_bytes > layout.code_bytes : header.code_bytes != layout.code_bytes)
    return std::nullopt;
  if (header.code_bytes > left) return std::nullopt;
  left -= header.code_bytes;
  const std::size_t table_bytes = compacted ? layout.offset_table_bytes() : 0;
  if (table_bytes > left) return std::nullopt;
  left -= table_bytes;
  if (layout.exponent_bytes > left) return std::nullopt;
  left -= layout.exponent_bytes;
  if (header.escapes > layout.groups || header.escapes > left / layout.source_bytes_per_group)
    return std::nullopt;
  left -= header.escapes * layout.source_bytes_per_group;
  const NearZeroLayout near_layout(layout);
  if (has_near ? header.bits == 0 || near_layout.elements > left : left != 0) return std::nullopt;
  const std::uint8_t* const codes = payload + layout.codes_offset;
  const std::uint8_t* const codes_end = codes + header.code_bytes;
  const std::uint8_t* const end = payload + header.payload_bytes;
  const std::uint8_t* const near = end - left;
  GroupedSections sections{header, layout,    transformed,
                           scaled, compacted, payload + kHeaderBytes,
                           codes,  codes_end, codes_end + table_bytes + layout.exponent_bytes,
                           {},     {},        {}};
  if (has_exponents) {
    sections.parts = reinterpret_cast<const std::int8_t*>(codes_end + table_bytes);
    exponents.table = sections.parts + table_offset(exponents, header.elements);
    sections.exponents = exponents;
    if (!are_exponents(exponents, header.elements, sections.parts)) return std::nullopt;
  }
  if (has_near)
    sections.near_zero = {near, near + near_layout.offsets, near + near_layout.elements, end};
  return sections;
}

bool GroupedSections::block_job(std::size_t block, DecodeGroups* job) const noexcept {
  const std::size_t from = block * kBlockGroups;
  const std::size_t to = from + kBlockGroups < layout.groups ? from + kBlockGroups : layout.groups;
  std::uint64_t offset = from * layout.slot_bytes, end = to * layout.slot_bytes;
  if (compacted) {
    std::memcpy(&offset, codes_end + block * sizeof offset, sizeof offset);
    end = header.code_bytes;
    if (block + 1 < layout.blocks)
      std::memcpy(&end, codes_end + (block + 1) * sizeof end, sizeof end);
  }
  if (offset > end || end > header.code_bytes) return false;
  const std::size_t whole = whole_groups();
  *job = {};
  job->metadata = metadata + from * layout.metadata_bytes_per_group;
  job->codes = codes + offset;
  job->codes_end = codes + end;
  job->escapes = escapes;
  job->escape_count = header.escapes;
  job->first_group = from;
  job->groups = (to > whole ? whole : to) - from;
  job->tail_elements = to > whole ? header.elements % kGroupElements : 0;
  job->bits = header.bits;
  job->compacted = end - offset != (to - from) * layout.slot_bytes;
  job->squeezed = job->compacted && !transformed && header.bits >= 2;
  job->transformed = transformed;
  job->scaled = scaled;
  job->nonce = header.nonce;
  job->zeros = (header.flags & kFlagZeros) != 0;
  job->exponents = exponents;
  if (exponents.any()) job->parts = parts + parts_before(exponents, from);
  return true;
}

bool GroupedSections::group_job(std::size_t group, DecodeGroups* job) const noexcept {
  if (group >= whole_groups() || !block_job(group / kBlockGroups, job)) return false;
  const auto type = transformed ? ElementType::kFloat32 : static_cast<ElementType>(header.type);
  for (; job->first_group < group; ++job->first_group) {
    const std::size_t slot =

        !job->compacted
            ? layout.slot_bytes
            : with_type(type, [&]<class T>() { return first_slot<T>(*job, layout.slot_bytes); });
    if (slot > static_cast<std::size_t>(job->codes_end - job->codes)) return false;
    job->codes += slot;
    job->metadata =
        static_cast<const std::uint8_t*>(job->metadata) + layout.metadata_bytes_per_group;
  }
  job->groups = 1;
  job->tail_elements = 0;
  if (exponents.any()) job->parts = parts + parts_before(exponents, group);
  return true;
}

}  // namespace pleat::compress

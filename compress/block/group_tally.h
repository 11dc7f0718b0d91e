// A block of groups, as the encoder would lay it out, from the groups' metadata. Internal to
// compress/block/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compress/block/group_costs.h"
#include "compress/block/span_tally.h"
#include "compress/exponents/group_exponents.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/near_zero/near_zero.h"
#include "compress/sides/side_values.h"

namespace pleat::compress::block {
namespace {

// The counts of a group that are needed in addition to its metadata.
struct GroupCounts {
  std::uint16_t other_than_zero = 0;
  std::uint16_t near_zero = 0;
};

// The sides of values that codes must not change.
struct SideCheck {
  bool any = false;
  SideTest test{};
  NoiseBounds bounds{};

  // `beside`: as sides_beside_values() gives them.
  template <class T>
  static SideCheck of(const Sides& beside) noexcept {
    if (!beside.any()) return {};
    const SideTest test = side_values<T>(beside).test;
    return {true, test, {test.first, test.last}};
  }
};

// Adds the slots of a block.
template <class Coded>
void add_block(const Metadata<Coded>* metadata, const GroupCounts* counts, std::size_t groups,
               const Request& request, SpanTally* tally) noexcept {
  const std::size_t slot = kBitmapBytes * request.bits, regular = groups * slot;
  std::size_t bytes = 0;
  SpanTally block;
  block.groups = groups;
  for (std::size_t g = 0; g < groups; ++g) {
    const GroupKind kind = kind_of<Coded>(metadata[g]);
    if (kind == GroupKind::kEscaped)
      ++block.escapes;
    else if (counts[g].near_zero != 0)
      block.near_bytes += near_zero_bytes(counts[g].near_zero, element_size(request.span.type));
    if (kind == GroupKind::kConstant) {
      SpanTally one;
      one.constant_groups = 1;
      one.constant = metadata[g].first;
      block.add(one);
    }
    bytes += !request.transformed && is_zero_kept<Coded>(metadata[g])
                 ? kSlotBitmap + request.bits * ceil_divide(counts[g].other_than_zero, 8)
                 : slot_bytes_of<Coded>(metadata[g], slot);
  }
  // docs/payload_format.md, "Slots"
  block.compacted = block.escapes == 0 && bytes <= regular - std::max<std::size_t>(regular / 8, 16);
  block.code_bytes = block.compacted ? bytes : regular;
  tally->add(block);
}

// Adds a group, slot apart.
//   weight  of the squared errors of all pieces
template <class T, class Coded>
void add_group(const Pieces& pieces, double weight, const Metadata<Coded>& metadata,
               const GroupExponents& exponents, const Request& request, const SideCheck& sides,
               SpanTally* tally) noexcept {
  tally->squared_error += weight * squared_error<T>(pieces, metadata, request, sides.bounds);
  tally->has_exponents = tally->has_exponents || exponents.any();
  if (sides.any && !tally->may_leave_side)
    tally->may_leave_side = request.transformed
                                ? is_quantised<Coded>(metadata)
                                : group_may_leave(metadata, exponents, request.bits, sides.test);
}

// The values of a group: the elements that may have an error, as they are coded, and their counts.
template <class T>
GroupCounts read_values(const typename T::Word* words, std::size_t elements,
                        const GroupExponents& exponents, bool near_zero, const bool* exact,
                        Pieces* pieces) noexcept {
  const typename T::Word minus_one = T::from_float(-1.0f);
  pieces->clear();
  GroupCounts counts;
  for (std::size_t e = 0; e < elements; ++e) {
    const float raised = T::to_float(words[e]) * exponents.factor(e);
    const float value = exponents.any() ? T::to_float(T::from_float(raised)) : raised;
    counts.other_than_zero =
        static_cast<std::uint16_t>(counts.other_than_zero + (value == 0.0f ? 0 : 1));
    if (near_zero && words[e] < minus_one)
      ++counts.near_zero;
    else if (is_finite_value(value) && !exact[e])
      pieces->add(value, value, exponents.weight(e));
  }
  return counts;
}

}  // namespace
}  // namespace pleat::compress::block

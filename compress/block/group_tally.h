// A block of groups, as the encoder would lay it out, from the groups' metadata. Internal to
// compress/block/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "compress/block/block_spec.h"
#include "compress/block/group_costs.h"
#include "compress/block/span_tally.h"
#include "compress/grouped/compacted_blocks.h"
#include "compress/grouped/step_math.h"
#include "compress/near_zero/near_zero.h"
#include "compress/sides/side_values.h"
#include "compress/sides/sides.h"

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

  template <class T>
  static SideCheck of(const BlockSpec& spec) noexcept {
    const Sides sides = sides_beside_values(spec.sides, spec.type);
    if (!sides.any()) return {};
    const SideTest test = side_values<T>(sides).test;
    return {true, test, {test.first, test.last}};
  }
};

// Adds a block, errors apart.
template <class T>
void add_block(const Metadata<T>* metadata, const GroupCounts* counts, std::size_t groups,
               unsigned bits, const SideCheck& sides, SpanTally* tally) noexcept {
  const std::size_t slot = kBitmapBytes * bits, regular = groups * slot;
  std::size_t bytes = 0;
  SpanTally block;
  block.groups = groups;
  for (std::size_t g = 0; g < groups; ++g) {
    const GroupKind kind = kind_of<T>(metadata[g]);
    if (kind == GroupKind::kEscaped)
      ++block.escapes;
    else if (counts[g].near_zero != 0)
      block.near_bytes += near_zero_bytes(counts[g].near_zero, sizeof(typename T::Word));
    if (kind == GroupKind::kConstant) {
      SpanTally one;
      one.constant_groups = 1;
      one.constant = metadata[g].first;
      block.add(one);
    }
    bytes += is_zero_kept<T>(metadata[g])
                 ? kSlotBitmap + bits * ceil_divide(counts[g].other_than_zero, 8)
                 : slot_bytes_of<T>(metadata[g], slot);
    block.may_leave_side =
        block.may_leave_side || (sides.any && group_may_leave<T>(metadata[g], bits, sides.test));
  }
  // docs/payload_format.md, "Slots"
  block.compacted = block.escapes == 0 && bytes <= regular - std::max<std::size_t>(regular / 8, 16);
  block.code_bytes = block.compacted ? bytes : regular;
  tally->add(block);
}

// The values of a group: the elements that may have an error, and their counts.
template <class T>
GroupCounts read_values(const typename T::Word* words, std::size_t elements, bool near_zero,
                        const bool* exact, Pieces* pieces) noexcept {
  const typename T::Word minus_one = T::from_float(-1.0f);
  pieces->clear();
  GroupCounts counts;
  bool negative = false;  // else zeros come back exact
  for (std::size_t e = 0; e < elements; ++e) negative = negative || T::to_float(words[e]) < 0.0f;
  for (std::size_t e = 0; e < elements; ++e) {
    const float value = T::to_float(words[e]);
    counts.other_than_zero =
        static_cast<std::uint16_t>(counts.other_than_zero + (value == 0.0f ? 0 : 1));
    if (near_zero && words[e] < minus_one)
      ++counts.near_zero;
    else if (is_finite_value(value) && !exact[e] && (value != 0.0f || negative))
      pieces->add(value, value, 1);
  }
  return counts;
}

}  // namespace
}  // namespace pleat::compress::block

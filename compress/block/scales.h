// How the values of a key differ in size, as an older tensor of the key has shown: by channel, by
// the tails of their groups, by zeros. The forms that suit them need no look at the values then.
// Torch-free.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compress/block/block_spec.h"
#include "compress/types.h"

namespace pleat::compress::block {

struct Scales {
  // Exponents of the channels (exponents.h); null where these are about alike.
  std::shared_ptr<const std::vector<std::int8_t>> table;
  // Groups are so wide that rotating them makes less noise.
  bool rotates = false;
  // Many elements are zeros: groups of both signs keep them.
  bool zeros = false;

  [[nodiscard]] bool any() const noexcept { return table != nullptr || rotates || zeros; }
};

// Whether the values of such a block may be coded by their scales: any noise that is small beside
// them is harmless. Not where their absolute error counts, nor their sides.
[[nodiscard]] constexpr bool may_have_scales(const BlockSpec& spec) noexcept {
  return is_floating(spec.type) && spec.kept == Kept::kValues && spec.bits != 0 &&
         spec.steps == Steps::kAny && !spec.near_zero && !spec.sides.any();
}

// The part of the `measured` scales that a block is coded by.
[[nodiscard]] inline Scales scales_for(const BlockSpec& asked, const Scales& measured) {
  if (!may_have_scales(asked)) return {};
  Scales scales = measured;
  if (asked.lines.look == Look::kColumns) scales.table = nullptr;
  return scales;
}

// Of a block's groups. Valid as long as the table.
[[nodiscard]] inline Exponents exponents_of(const BlockSpec& spec, const Scales& scales) noexcept {
  Exponents exponents = spec.codec().exponents;
  if (scales.table == nullptr) return exponents;
  exponents.channels = spec.channels.count;
  exponents.inner = spec.channels.inner;
  exponents.table = scales.table->data();
  if (exponents.row == 0) exponents.row = exponents.channels * exponents.inner;
  return exponents;
}

// The place of the `i`-th of some samples among `count` items, i below 2^32. The places are spread
// evenly, without a period.
[[nodiscard]] constexpr std::size_t spread_place(std::size_t i, std::size_t count) noexcept {
  const auto place = static_cast<std::uint32_t>(i) * 0x9E37'79B9u;  // golden ratio
  return static_cast<std::size_t>((static_cast<unsigned __int128>(place) * count) >> 32);
}

// Measures a sample of a span's values: at most 256 rows, and 64 groups.
//   before  the last answer, for a decision that is about as good either way
// Throws std::bad_alloc.
[[nodiscard]] Scales measure_scales(const Span& span, const BlockSpec& spec, const Scales& before);

}  // namespace pleat::compress::block

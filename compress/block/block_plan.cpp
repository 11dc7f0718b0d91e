#include "compress/block/block_plan.h"

#include <algorithm>

#include "compress/block/block_layout.h"
#include "compress/block/line_patch.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "compress/sides.h"

namespace pleat::compress::block {
namespace {

// True if the ranges are in order, hold whole elements of the type, and fit a table.
bool is_sound(const BlockSource& source, ElementType type) noexcept {
  std::size_t from = 0;
  for (std::size_t i = 0; i < source.range_count; ++i) {
    const ByteRange& range = source.ranges[i];
    if (range.begin < from || range.end < range.begin || range.end > source.bytes ||
        (range.end - range.begin) % element_size(type) != 0) {
      return false;
    }
    from = range.end;
  }
  return source.range_count <= kMostSpans;
}

// True if each of eight samples spread over the span holds at most two bit patterns: the exact
// one-bit form is then worth trying. A wrong guess costs time or memory, never exactness.
template <class Word>
bool looks_two_valued(const Word* data, std::size_t elements) noexcept {
  constexpr std::size_t kProbes = 8;
  constexpr std::size_t kProbeElements = 64;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    const std::size_t begin = elements / kProbes * probe;
    const std::size_t end = std::min(elements, begin + kProbeElements);
    Word a = data[begin];
    Word b = a;
    for (std::size_t i = begin; i < end; ++i) {
      if (data[i] == a || data[i] == b) {
        continue;
      }
      if (a != b) {
        return false;
      }
      b = data[i];
    }
  }
  return true;
}

bool looks_two_valued(const Span& span) noexcept {
  if (span.elements == 0) {
    return false;
  }
  if (span.type == ElementType::kFloat32) {
    return looks_two_valued(static_cast<const std::uint32_t*>(span.data), span.elements);
  }
  return looks_two_valued(static_cast<const std::uint16_t*>(span.data), span.elements);
}

// Bytes for the exact form of a span if it may have a short one; 0 if it has none.
std::size_t exact_room(const Span& span) noexcept {
  switch (span.type) {
    case ElementType::kBool:
      return align_up(span.elements / 8 + 2 * kAlign);
    case ElementType::kInt64:
    case ElementType::kInt32:
      return align_up(span.bytes() / 2 + 2 * kAlign);
    case ElementType::kFloat32:
    case ElementType::kBFloat16:
    case ElementType::kFloat16:
      // 1 bit per element, 4 to 8 bytes per 256, and the offsets: 1.6 bits of 16 in the worst case.
      return looks_two_valued(span) ? align_up(span.elements / 4 + 4 * kAlign) : 0;
    case ElementType::kBytes:
      return 0;
  }
  return 0;
}

// What of `spec` a payload can hold.
BlockSpec as_kept(const BlockSpec& spec) noexcept {
  if (spec.kept == Kept::kNothing) {
    return {.type = spec.type, .kept = Kept::kNothing};
  }
  const bool needs_sides = spec.kept == Kept::kSides || (spec.bits != 0 && spec.sides.any());
  if (needs_sides && !sides_hold(spec.sides, spec.type)) {
    return lossless(spec.type);
  }
  if (spec.kept == Kept::kSides) {
    return {.type = spec.type, .kept = Kept::kSides, .sides = spec.sides};
  }
  BlockSpec values = spec;
  if (values.bits == 0) {
    values.sides = {};
  }
  return values;
}

std::size_t span_room(const Span& span, const BlockSpec& spec, bool copy_raw) noexcept {
  if (spec.kept == Kept::kValues && spec.bits == 0 && !copy_raw) {
    return exact_room(span);
  }
  const bool tiled = is_tiled(copy_raw, span.type, spec.bits, span.elements);
  const std::size_t codes =
      align_up(payload_bound(spec.codec(), span.type, tiled ? kTiledElements : span.elements));
  if (spec.kept != Kept::kValues || spec.bits == 0 || !spec.sides.any()) {
    return codes;
  }
  const CodecSpec beside{.sides = sides_beside_values(spec.sides, span.type)};
  return codes +
         (beside.sides.any() ? align_up(payload_bound(beside, span.type, span.elements)) : 0);
}

// True if a payload of `room` bytes is worth having for a block of so many.
bool is_worth_it(std::size_t room, std::size_t bytes, bool copy_raw) noexcept {
  return copy_raw || room <= bytes - bytes / 16;
}

void plan_exact_lines(const BlockSource& source, BlockPlan& plan) noexcept {
  BlockSpec& spec = plan.spec;
  if (spec.bits == 0 || spec.lines.look == Look::kNone || source.range_count != 1) {
    return;
  }
  const Span span = source.span(0, spec.type);
  if (is_tiled(plan.tiles, span.type, spec.bits, span.elements)) {
    return;
  }
  try {
    plan.lines = plan_lines(span.data, span.elements, span.type, spec.lines, spec.bits);
    spec.bits = plan.lines.bits;
  } catch (...) {
    spec.bits = 0;
  }
  if (!plan.lines.exact.empty()) {
    plan.patch_bytes = patch_bytes(plan.lines, spec.lines, span.elements, span.type);
  }
}

}  // namespace

BlockPlan plan_block(const BlockSource& source, const BlockSpec& spec, bool copy_raw) noexcept {
  BlockPlan plan;
  plan.spec = as_kept(spec);
  if (plan.spec.kept == Kept::kNothing) {
    plan.room = is_worth_it(kHeaderBytes, source.bytes, copy_raw) ? kHeaderBytes : 0;
    plan.in_place = plan.room != 0 && plan.room <= source.bytes;
    return plan;
  }
  plan.tiles = copy_raw && plan.spec.kept == Kept::kValues;
  if (!is_sound(source, spec.type)) {
    return plan;
  }
  plan_exact_lines(source, plan);
  const bool single = source.is_one_span();
  std::size_t room = align_up(plan.patch_bytes) + (single ? 0 : table_bytes(source.range_count));
  for (std::size_t i = 0; i < source.range_count; ++i) {
    const Span span = source.span(i, spec.type);
    const std::size_t more = span_room(span, plan.spec, copy_raw);
    if (more == 0) {
      return plan;
    }
    room += more;
  }
  if (!is_worth_it(room, source.bytes, copy_raw)) {
    return plan;
  }
  plan.room = room;
  // In place, a table in front would overwrite bytes not yet read, and a payload that turns out too
  // coarse could not be undone.
  plan.in_place = single && plan.lines.exact.empty() && plan.spec.steps != Steps::kExponent;
  return plan;
}

}  // namespace pleat::compress::block

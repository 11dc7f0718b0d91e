#include "compress/block/block_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compress/block/block_layout.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "compress/lines/line_patch.h"
#include "compress/near_zero/near_zero.h"

namespace pleat::compress::block {
namespace {

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
      if (data[i] == a || data[i] == b) continue;
      if (a != b) return false;
      b = data[i];
    }
  }
  return true;
}

bool looks_two_valued(const Span& span) noexcept {
  if (span.elements == 0) return false;
  if (span.type == ElementType::kFloat32)
    return looks_two_valued(static_cast<const std::uint32_t*>(span.data), span.elements);
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

constexpr std::uint32_t kOftenFlat = 32;  // elements of a row

std::size_t span_room(const Span& span, const BlockPlan& plan, Effort effort,
                      const Executor& executor) noexcept {
  const BlockSpec& spec = plan.spec;
  if (plan.kind() > FormKind::kLossy && !plan.tiles && !plan.closed) return exact_room(span);
  const bool tiled = is_tiled(plan.tiles, span.type, spec.bits, span.elements);
  const std::size_t elements = tiled ? kTiledElements : span.elements;
  std::size_t codes = payload_bound(plan.codec(), span.type, elements);
  if (spec.near_zero) {
    codes += tiled ? kTiledElements * (element_size(span.type) + 1) + 4 * kAlign
                   : near_zero_room(span, effort == Effort::kThorough, executor);
  }
  if (plan.keeps_beside)
    codes = align_up(codes) + payload_bound({.sides = plan.beside}, span.type, span.elements);
  return plan.closed ? codes : align_up(codes);
}

// The steps that groups with these ranges have, as far as they are not exact for that.
std::vector<float> steps_of(const std::vector<GroupRange>& ranges, const BlockSpec& spec) {
  std::vector<float> steps(ranges.size());
  for (std::size_t g = 0; g < ranges.size(); ++g)
    steps[g] = ranges[g].step(spec.type, spec.bits, widest_step(spec.steps));
  return steps;
}

// Counts the groups whose step is too wide at the plan's width. False if they are too many.
bool allow_escapes(const BlockSource& source, BlockPlan& plan, std::size_t* bytes,
                   const Executor& executor) noexcept {
  plan.escape_64ths = 1;
  if (plan.spec.steps == Steps::kAny) return true;
  for (std::size_t i = 0; i < source.range_count; ++i) {
    const Span span = source.span(i, plan.spec.type);
    const std::size_t groups = ceil_divide(span.elements, kGroupElements);
    const std::size_t escapes = count_escapes(span, plan.codec(), 0, executor);
    *bytes += escapes * kGroupElements * element_size(span.type);
    if (escapes == 0 || (escapes == 1 && plan.spec.transform == Transform::kNone))
      continue;  // every payload may have one
    // Rotated groups differ a little with the nonce, which encoding brings.
    const std::size_t share =
        ceil_divide(escapes * 64, groups) + (plan.spec.transform == Transform::kNone ? 0 : 1);
    if (share > kMostEscape64ths) return false;
    plan.escape_64ths = std::max(plan.escape_64ths, static_cast<std::uint8_t>(share));
  }
  return true;
}

// Chooses width, exact lines and exact groups from all values.
void plan_thoroughly(const BlockSource& source, BlockPlan& plan, const Executor& executor) {
  const std::uint8_t asked = plan.spec.bits;
  const bool with_lines = plan.spec.lines.look != Look::kNone;
  const Span span = with_lines ? source.span(0, plan.spec.type) : Span{};
  std::vector<GroupRange> ranges;
  if (with_lines && may_be_flat(span.elements, span.type, plan.spec.lines))
    ranges = group_ranges(span.data, span.elements, span.type, executor);
  const std::size_t elements = source.elements(plan.spec.type);
  BlockPlan best = plan;
  best.spec.bits = 0;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  const std::array<std::uint8_t, 3> widths{asked, 4, 8};
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const std::uint8_t bits = widths[i];
    if ((i != 0 && bits <= asked) || elements * bits / 8 >= least) continue;
    BlockPlan at = plan;
    at.spec.bits = bits;
    std::size_t bytes = elements * bits / 8;
    if (!allow_escapes(source, at, &bytes, executor)) continue;
    if (with_lines) {
      at.lines = flat_lines(span.data, span.elements, span.type, plan.spec.lines,
                            steps_of(ranges, at.spec));
      at.patch_bytes = at.lines.exact.empty()
                           ? 0
                           : patch_bytes(at.lines, plan.spec.lines, span.elements, span.type);
      bytes += at.patch_bytes;
    }
    if (bytes < least) {
      least = bytes;
      best = std::move(at);
    }
  }
  plan = std::move(best);
}

// Looks for the facts about the values that the spec requires.
void look(const BlockSource& source, BlockPlan& plan, Effort effort, const Executor& executor) {
  if (plan.kind() != FormKind::kLossy || plan.closed) return;
  bool needs_all = effort == Effort::kThorough;
  if (plan.spec.lines.look != Look::kNone) {
    const Span span = source.span(0, plan.spec.type);
    const Lines lines = plan.spec.lines;
    // Some of many short rows are flat by chance.
    const bool short_rows = lines.length < kOftenFlat && lines.look == Look::kRows &&
                            may_be_flat(span.elements, span.type, lines);
    needs_all =
        needs_all || short_rows || has_even_column(span.data, span.elements, span.type, lines);
    plan.checks_lines = !needs_all && may_be_flat(span.elements, span.type, lines);
  }
  if (needs_all) plan_thoroughly(source, plan, executor);
  plan.guesses = effort == Effort::kQuick &&
                 (plan.checks_lines || plan.spec.near_zero || plan.spec.steps != Steps::kAny);
}

}  // namespace

BlockPlan plan_block(const BlockSource& source, const BlockSpec& spec, bool copy_raw, Effort effort,
                     const Executor& executor, const Scales& scales) noexcept {
  const std::size_t elements = source.elements(spec.type);
  BlockPlan plan{effort == Effort::kNone ? plan_closed_form(spec, elements, source.range_count)
                                         : plan_form(spec, {}, elements, source.range_count)};
  if (plan.kind() == FormKind::kLossy) {
    plan.scales = scales_for(spec, scales);
    if (plan.scales.rotates) plan.spec.transform = Transform::kHadamardScaled;
  }
  const bool any_size = copy_raw || plan.closed;
  if (plan.kind() == FormKind::kNothing) {
    plan.room = any_size || is_worth_having(kHeaderBytes, source.bytes) ? kHeaderBytes : 0;
    plan.in_place = plan.room != 0 && plan.room <= source.bytes;
    return plan;
  }
  plan.tiles = copy_raw && !plan.closed && plan.spec.kept == Kept::kValues;
  if (is_tiled(plan.tiles, spec.type, plan.spec.bits, elements)) plan.spec.lines = {};
  if (!source.is_sound(spec.type) || source.range_count > kMostSpans) return plan;
  try {
    look(source, plan, effort, executor);
  } catch (...) {
    plan.spec.bits = 0;
  }
  if (plan.kind() == FormKind::kFloats && !plan.closed) {
    static_cast<FormPlan&>(plan) = plan_form(lossless(spec.type), {}, elements, source.range_count);
    plan.lines = {};
    plan.scales = {};
    plan.patch_bytes = 0;
    plan.checks_lines = plan.guesses = false;
  }
  const bool single = source.is_one_span();
  std::size_t room = align_up(plan.patch_bytes) + (single ? 0 : table_bytes(source.range_count));
  for (std::size_t i = 0; i < source.range_count; ++i) {
    const Span span = source.span(i, spec.type);
    const std::size_t more = span_room(span, plan, effort, executor);
    if (more == 0) return plan;
    room = align_up(room) + more;
  }
  if (!any_size && !is_worth_having(room, source.bytes)) return plan;
  plan.room = room;
  // In place, a table in front would overwrite bytes not yet read, and flat lines that are found
  // afterwards could not be undone. Groups that are kept exact wait in memory of their own.
  plan.in_place = single && !plan.closed && plan.lines.exact.empty() && !plan.checks_lines &&
                  !plan.spec.near_zero && plan.escape_64ths == 1;
  return plan;
}

}  // namespace pleat::compress::block

#include "compress/block/form_plan.h"

#include "compress/format.h"
#include "compress/sides/sides.h"

namespace pleat::compress::block {
namespace {

// The part of `spec` that a payload can hold.
BlockSpec as_kept(const BlockSpec& spec) noexcept {
  if (spec.kept == Kept::kNothing) return {.type = spec.type, .kept = Kept::kNothing};
  const bool needs_sides = spec.kept == Kept::kSides || (spec.bits != 0 && spec.sides.any());
  if (needs_sides && !sides_hold(spec.sides, spec.type)) return lossless(spec.type);
  if (spec.kept == Kept::kSides)
    return {.type = spec.type, .kept = Kept::kSides, .sides = spec.sides};
  if (spec.bits == 0 || !is_floating(spec.type)) return lossless(spec.type);
  BlockSpec kept = spec;
  kept.bits = spec.width();
  kept.floor = 0;
  return kept;
}

}  // namespace

FormKind FormPlan::kind() const noexcept {
  if (spec.kept == Kept::kNothing) return FormKind::kNothing;
  if (spec.kept == Kept::kSides) return FormKind::kSides;
  if (is_floating(spec.type)) return spec.bits != 0 ? FormKind::kLossy : FormKind::kFloats;
  return spec.type == ElementType::kBool    ? FormKind::kBooleans
         : spec.type == ElementType::kBytes ? FormKind::kBytes
                                            : FormKind::kIntegers;
}

FormPlan plan_form(const BlockSpec& asked, const KeyLesson& lesson, std::size_t elements,
                   std::size_t spans) noexcept {
  FormPlan plan{.spec = as_kept(asked)};
  BlockSpec& spec = plan.spec;
  const FormKind kind = plan.kind();
  if (kind == FormKind::kLossy) {
    spec.bits = std::max(spec.bits, lesson.least_bits);
    const bool useful =
        has_lines_to_keep(elements, spec.type, spec.lines) ||
        (has_lines(elements, spec.type, spec.lines) && spec.codec().exponents.any());
    if (spans != 1 || !useful) spec.lines = {};
    plan.beside = sides_beside_values(spec.sides, spec.type);
    // What a rotation moves may be carried across any bound.
    plan.keeps_beside =
        plan.beside.any() && (lesson.keeps_sides() || spec.transform != Transform::kNone);
    // More flat lines than there is room for would be lost.
    const bool may_lose_lines = spec.lines.look > Look::kParts;
    const bool looks = spec.steps != Steps::kAny || may_lose_lines || spec.near_zero;
    plan.gated = !has_wide_groups(spec.bits) || may_lose_lines || (looks && !lesson.sure());
    plan.judged = plan.gated || looks || plan.beside.any();
  } else if (kind == FormKind::kBooleans) {
    plan.any_byte = lesson.sure();
    plan.judged = plan.gated = !plan.any_byte;
  } else {
    plan.judged = plan.gated = kind != FormKind::kNothing && kind != FormKind::kSides;
  }
  return plan;
}

FormPlan plan_closed_form(const BlockSpec& asked, std::size_t elements,
                          std::size_t spans) noexcept {
  FormPlan plan = plan_form(asked, {}, elements, spans);
  BlockSpec& spec = plan.spec;
  if (spec.near_zero || spec.steps == Steps::kExponent || spec.lines.look > Look::kParts)
    plan = plan_form(lossless(spec.type), {}, elements, spans);
  if (plan.kind() == FormKind::kLossy) {
    spec.bits = std::max<std::uint8_t>(spec.bits, spec.steps == Steps::kCurved ? 8 : 3);
    spec.steps = Steps::kAny;
  }
  plan.any_byte = plan.kind() == FormKind::kBooleans;
  plan.judged = plan.gated = false;
  plan.closed = true;
  return plan;
}

}  // namespace pleat::compress::block

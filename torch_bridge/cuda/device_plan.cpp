#include "torch_bridge/cuda/device_plan.h"

#include <algorithm>
#include <cstdint>

#include "compress/cuda/device_asides.h"
#include "compress/format.h"
#include "compress/sides/side_bounds.h"
#include "compress/sides/sides.h"

namespace pleat::bridge::cuda {
namespace {

using compress::ElementType;
using compress::Look;
using compress::Sides;
using compress::Transform;
using compress::block::BlockSpec;
using compress::block::Kept;
using compress::block::Steps;

bool is_integer(ElementType type) noexcept {
  return type == ElementType::kInt64 || type == ElementType::kInt32;
}

constexpr std::uint32_t kFew = 4;

// Of `elements` elements, if such a share was seen: a quarter more, and a few.
std::uint32_t predicted(double share, std::uint64_t elements, std::uint32_t few = kFew) noexcept {
  const double expected = share * static_cast<double>(elements) * 1.25 + few;
  return static_cast<std::uint32_t>(std::min(expected, static_cast<double>(elements)));
}

// Of the lines of so many elements. Zeros need no bytes.
std::uint32_t predicted_lines(const KeyLesson& lesson, compress::Lines lines,
                              std::uint64_t elements) noexcept {
  if (lines.look == Look::kZeroRows) return 0;
  const std::uint64_t all = lines.look == Look::kColumns ? lines.length : elements / lines.length;
  const auto few = static_cast<std::uint32_t>(std::min<std::uint64_t>(kFew, 1 + all / 64));
  return std::min(predicted(lesson.lines, elements, few), static_cast<std::uint32_t>(all));
}

std::uint8_t bits_of(const Sides& sides) noexcept {
  return sides.kind == Sides::Kind::kThree ? 2 : 1;
}

// Lossy values of a form with the plan's type. False: the type cannot keep the sides.
bool plan_values(DevicePlan& plan, const KeyLesson& lesson, std::size_t elements,
                 bool one_span) noexcept {
  BlockSpec& spec = plan.spec;
  DeviceForm& form = plan.form;
  if (spec.sides.any()) {
    if (!compress::sides_hold(spec.sides, form.type)) return false;
    plan.beside = compress::sides_beside_values(spec.sides, form.type);
  }
  spec.bits = std::max(spec.bits, lesson.least_bits);
  form.kind = DeviceKind::kFloats;
  form.bits = static_cast<std::uint8_t>(compress::supported_bits(spec.bits));
  form.transform = spec.transform;
  // What a rotation moves may be carried across any bound.
  if (plan.beside.any() && (lesson.keeps_sides() || form.transform != Transform::kNone)) {
    form.side_bits = bits_of(plan.beside);
  }
  if (spec.lines.look != Look::kNone && one_span &&
      compress::cuda::has_lines_to_keep(elements, form.type, spec.lines)) {
    form.look = spec.lines.look;
    form.line_length = spec.lines.length;
    form.most_lines = predicted_lines(lesson, form.lines(), elements);
  }
  if (spec.near_zero) form.most_near_zero = predicted(lesson.near_zero, elements);
  const bool looks = spec.steps != Steps::kAny || form.has_lines() || form.most_near_zero != 0;
  // More flat lines than there is room for would be lost.
  const bool may_lose_lines = form.has_lines() && form.look != Look::kZeroRows;
  plan.judged = looks || plan.beside.any();
  plan.gated = !compress::has_wide_groups(form.bits) || may_lose_lines || (looks && !lesson.sure());
  return true;
}

// Plans a payload that comes back exact. False: the type has no shorter form.
bool plan_exact(DevicePlan& plan, const KeyLesson& lesson) noexcept {
  DeviceForm& form = plan.form;
  plan.gated = true;
  if (compress::is_floating(form.type)) {
    form.kind = lesson.in_groups ? DeviceKind::kFloats : DeviceKind::kFrames;
    if (!lesson.in_groups) form.share = lesson.room_of_frames();
  } else if (form.type == ElementType::kBool) {
    form.kind = DeviceKind::kBooleans;
    plan.gated = !lesson.sure();
    plan.any_byte = lesson.sure();
  } else if (is_integer(form.type)) {
    form.kind = DeviceKind::kIntegers;
    form.width = lesson.width;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<DevicePlan> plan_on_device(const BlockSpec& spec, const KeyLesson& lesson,
                                         const allocator::ByteRange* ranges,
                                         std::size_t count) noexcept {
  DevicePlan plan;
  plan.spec = spec;
  DeviceForm& form = plan.form;
  form.type = spec.type;
  // Sides that the type cannot keep: the values come back as they are.
  if (spec.kept == Kept::kSides && !compress::sides_hold(spec.sides, form.type)) {
    plan.spec = compress::block::lossless(form.type);
  }
  std::size_t elements = 0;
  for (std::size_t i = 0; i < count; ++i) {
    elements += (ranges[i].end - ranges[i].begin) / compress::element_size(form.type);
  }
  bool has_form = true;
  if (plan.spec.kept == Kept::kNothing) {
    form.kind = DeviceKind::kNothing;
  } else if (plan.spec.kept == Kept::kSides) {
    form.kind = DeviceKind::kSides;
    form.side_bits = bits_of(spec.sides);
  } else if (compress::is_floating(form.type) && plan.spec.bits != 0) {
    has_form = plan_values(plan, lesson, elements, count == 1);
  } else {
    has_form = plan_exact(plan, lesson);
  }
  plan.judged = plan.judged || plan.gated;
  plan.payload_bytes = has_form ? payload_room(form, ranges, count) : 0;
  if (plan.payload_bytes == 0) return std::nullopt;
  if (form.has_lines()) {
    plan.scratch_bytes = compress::cuda::line_scratch_bytes(form.lines(), elements, form.type);
  }
  return plan;
}

}  // namespace pleat::bridge::cuda

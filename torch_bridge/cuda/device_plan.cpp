#include "torch_bridge/cuda/device_plan.h"

#include <algorithm>
#include <cstdint>

#include "compress/cuda/device_asides.h"
#include "compress/format.h"

namespace pleat::bridge::cuda {
namespace {

using compress::block::FormKind;
using compress::block::KeyLesson;

constexpr std::uint32_t kFew = 4;

// Of `elements` elements, if such a share was seen: a quarter more, and a few.
std::uint32_t predicted(double share, std::uint64_t elements, std::uint32_t few = kFew) noexcept {
  const double expected = share * static_cast<double>(elements) * 1.25 + few;
  return static_cast<std::uint32_t>(std::min(expected, static_cast<double>(elements)));
}

// Of the lines of so many elements. Zeros need no bytes.
std::uint32_t predicted_lines(const KeyLesson& lesson, compress::Lines lines,
                              std::uint64_t elements) noexcept {
  if (lines.look == compress::Look::kZeroRows) return 0;
  const std::uint64_t all =
      lines.look == compress::Look::kColumns ? lines.length : elements / lines.length;
  const auto few = static_cast<std::uint32_t>(std::min<std::uint64_t>(kFew, 1 + all / 64));
  return std::min(predicted(lesson.lines, elements, few), static_cast<std::uint32_t>(all));
}

}  // namespace

std::optional<DevicePlan> plan_on_device(const compress::block::BlockSpec& asked,
                                         const KeyLesson& lesson,
                                         const allocator::ByteRange* ranges,
                                         std::size_t count) noexcept {
  std::size_t elements = 0;
  for (std::size_t i = 0; i < count; ++i) {
    elements += (ranges[i].end - ranges[i].begin) / compress::element_size(asked.type);
  }
  DevicePlan plan{plan_form(asked, lesson, elements, count)};
  const compress::block::BlockSpec& spec = plan.spec;
  DeviceForm& form = plan.form;
  form.type = spec.type;
  switch (plan.kind()) {
    case FormKind::kNothing:
      form.kind = DeviceKind::kNothing;
      break;
    case FormKind::kSides:
      form.kind = DeviceKind::kSides;
      form.side_bits = spec.sides.bits();
      break;
    case FormKind::kLossy:
      form.kind = DeviceKind::kFloats;
      form.bits = static_cast<std::uint8_t>(compress::supported_bits(spec.bits));
      form.transform = spec.transform;
      if (plan.keeps_beside) form.side_bits = plan.beside.bits();
      form.look = spec.lines.look;
      form.line_length = spec.lines.length;
      if (form.has_lines()) form.most_lines = predicted_lines(lesson, spec.lines, elements);
      if (spec.near_zero) form.most_near_zero = predicted(lesson.near_zero, elements);
      break;
    case FormKind::kFloats:
      form.kind = lesson.in_groups ? DeviceKind::kFloats : DeviceKind::kFrames;
      if (!lesson.in_groups) form.share = lesson.room_of_frames();
      break;
    case FormKind::kBooleans:
      form.kind = DeviceKind::kBooleans;
      break;
    case FormKind::kIntegers:
      form.kind = DeviceKind::kIntegers;
      form.width = lesson.width;
      break;
    case FormKind::kBytes:
      return std::nullopt;
  }
  plan.payload_bytes = payload_room(form, ranges, count);
  if (plan.payload_bytes == 0) return std::nullopt;
  if (form.has_lines()) {
    plan.scratch_bytes = compress::cuda::line_scratch_bytes(spec.lines, elements, form.type);
  }
  return plan;
}

}  // namespace pleat::bridge::cuda

#include "torch_bridge/cuda/device_form.h"

#include <algorithm>

#include "compress/cuda/device_asides.h"
#include "compress/format.h"

namespace pleat::bridge::cuda {

using compress::Sides;
using compress::block::BlockSpec;
using compress::block::FormPlan;
using compress::block::KeyLesson;
using compress::block::Scales;
using compress::cuda::DeviceTask;

namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t align_up(std::size_t n) noexcept { return (n + kAlign - 1) & ~(kAlign - 1); }

// Sides of so many bits each: the kept bytes do not depend on their bounds.
Sides sides_of_bits(unsigned bits) noexcept {
  return {.kind = bits == 2 ? Sides::Kind::kThree : Sides::Kind::kClosed};
}

std::size_t scratch_of_frames(const DeviceTask& task) noexcept {
  return 2 * align_up(compress::cuda::device_scratch_bytes(task));
}

constexpr std::uint32_t kFew = 4;

// Of `elements` elements, if such a share was seen: a quarter more, and a few.
std::uint32_t predicted(double share, std::uint64_t elements, std::uint32_t few = kFew) noexcept {
  const double expected = share * static_cast<double>(elements) * 1.25 + few;
  return static_cast<std::uint32_t>(std::min(expected, static_cast<double>(elements)));
}

// Of the lines of so many elements.
std::uint32_t predicted_lines(const KeyLesson& lesson, compress::Lines lines,
                              std::uint64_t elements) noexcept {
  const std::uint64_t all =
      lines.look == compress::Look::kColumns ? lines.length : elements / lines.length;
  const auto few = static_cast<std::uint32_t>(std::min<std::uint64_t>(kFew, 1 + all / 64));
  return std::min(predicted(lesson.lines, elements, few), static_cast<std::uint32_t>(all));
}

// A table that the device does not take is left out.
void add_scales(const BlockSpec& asked, const Scales& measured, std::size_t elements,
                DevicePlan& plan) noexcept {
  DeviceForm& form = plan.form;
  plan.scales = scales_for(asked, measured);
  form.zeros = plan.scales.zeros;
  if (plan.scales.rotates) form.transform = compress::Transform::kHadamardScaled;
  if (plan.scales.table == nullptr) return;
  const compress::block::Channels channels = plan.spec.channels;
  DeviceForm with_table = form;
  with_table.channels = channels.count;
  with_table.inner = static_cast<std::uint8_t>(channels.inner);
  if (with_table.inner == channels.inner &&
      compress::cuda::device_can_encode(with_table.codes_task(elements))) {
    form = with_table;
  } else {
    plan.scales.table = nullptr;
  }
}

}  // namespace

compress::Exponents DeviceForm::exponents() const noexcept {
  if (kind != FormKind::kLossy) return {};
  const BlockSpec spec{.type = type, .lines = lines()};
  const std::uint32_t row = spec.codec().exponents.row;
  return {.row = row != 0 ? row : channels * inner, .channels = channels, .inner = inner};
}

DeviceTask DeviceForm::codes_task(std::size_t elements) const noexcept {
  DeviceTask task;
  task.elements = elements;
  task.type = type;
  task.bits = bits;
  task.transform = transform;
  task.width = width;
  if (kind == FormKind::kLossy) {
    task.exponents = exponents();
    task.zeros = zeros;
  } else if (kind == FormKind::kSides) {
    task.sides = sides_of_bits(side_bits);
  } else if (is_framed()) {
    task.framed = true;
    const double bytes = static_cast<double>(elements * compress::element_size(type)) * share;
    const std::size_t room = align_up(static_cast<std::size_t>(bytes));
    task.capacity = room - std::min(room, scratch_of_frames(task));
  }
  return task;
}

DeviceTask DeviceForm::sides_task(std::size_t elements) const noexcept {
  DeviceTask task;
  task.elements = elements;
  task.type = type;
  task.sides = sides_of_bits(side_bits);
  return task;
}

SpanPlace place_span(const DeviceForm& form, std::size_t span_bytes, std::size_t begin) noexcept {
  SpanPlace place;
  place.elements = span_bytes / compress::element_size(form.type);
  std::size_t at = align_up(begin);
  place.sides = at;
  if (form.has_sides_beside()) {
    at += align_up(compress::cuda::device_payload_bytes(form.sides_task(place.elements)));
  }
  place.lines = at;
  if (form.has_lines()) {
    at += align_up(compress::cuda::line_section_bytes(form.lines(), place.elements, form.type,
                                                      form.most_lines));
  }
  place.near_zero = at;
  if (form.most_near_zero != 0) {
    at += align_up(compress::cuda::near_zero_section_bytes(form.type, form.most_near_zero));
  }
  place.scratch = at;
  const DeviceTask codes = form.codes_task(place.elements);
  place.codes = codes.framed ? at + scratch_of_frames(codes) : at;
  place.codes_room = compress::cuda::device_payload_bound(codes);
  return place;
}

std::size_t SpanPlace::table(const DeviceForm& form) const noexcept {
  const compress::Exponents exponents = form.exponents();
  const compress::GroupedLayout layout(form.type, form.bits, elements,
                                       form.transform != compress::Transform::kNone, exponents);
  return codes + layout.end_of_codes() + compress::table_offset(exponents, elements);
}

std::size_t payload_room(const DeviceForm& form, const allocator::ByteRange* ranges,
                         std::size_t count) noexcept {
  if (form.kind == FormKind::kNothing) return kAlign;
  std::size_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = ranges[i].end - ranges[i].begin;
    if (bytes % compress::element_size(form.type) != 0 ||
        ranges[i].begin % compress::element_size(form.type) != 0 ||
        !compress::cuda::device_can_encode(
            form.codes_task(bytes / compress::element_size(form.type)))) {
      return 0;
    }
    end = place_span(form, bytes, end).end();
  }
  return end;
}

std::optional<DevicePlan> plan_on_device(const BlockSpec& asked, const KeyLesson* taught,
                                         const Scales& scales, const allocator::ByteRange* ranges,
                                         std::size_t count) noexcept {
  std::size_t elements = 0;
  for (std::size_t i = 0; i < count; ++i) {
    elements += (ranges[i].end - ranges[i].begin) / compress::element_size(asked.type);
  }
  const KeyLesson lesson = taught == nullptr ? KeyLesson{} : *taught;
  DevicePlan plan;
  static_cast<FormPlan&>(plan) = taught == nullptr ? plan_closed_form(asked, elements, count)
                                                   : plan_form(asked, lesson, elements, count);
  const BlockSpec& spec = plan.spec;
  DeviceForm& form = plan.form;
  form.type = spec.type;
  form.kind = plan.kind();
  // Floats and integers are refused where the values need more bits than was predicted.
  const bool exact = form.kind == FormKind::kFloats || form.kind == FormKind::kIntegers;
  if (form.kind == FormKind::kBytes || (exact && plan.closed)) return std::nullopt;
  if (form.kind == FormKind::kSides) form.side_bits = spec.sides.bits();
  if (form.kind == FormKind::kLossy) {
    form.bits = static_cast<std::uint8_t>(compress::supported_bits(spec.bits));
    form.transform = spec.transform;
    if (plan.keeps_beside) form.side_bits = plan.beside.bits();
    form.look = spec.lines.look;
    form.line_length = spec.lines.length;
    add_scales(asked, scales, elements, plan);
    if (form.has_lines()) form.most_lines = predicted_lines(lesson, spec.lines, elements);
    if (spec.near_zero) form.most_near_zero = predicted(lesson.near_zero, elements);
  }
  if (form.kind == FormKind::kFloats && !lesson.in_groups) form.share = lesson.room_of_frames();
  if (form.kind == FormKind::kIntegers) form.width = lesson.width;
  plan.payload_bytes = payload_room(form, ranges, count);
  if (plan.payload_bytes == 0) return std::nullopt;
  if (form.has_lines()) {
    plan.scratch_bytes = compress::cuda::line_scratch_bytes(spec.lines, elements, form.type);
  }
  return plan;
}

}  // namespace pleat::bridge::cuda

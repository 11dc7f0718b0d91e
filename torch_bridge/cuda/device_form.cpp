#include "torch_bridge/cuda/device_form.h"

#include <algorithm>

#include "compress/cuda/device_asides.h"

namespace pleat::bridge::cuda {

using compress::Sides;
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

}  // namespace

DeviceTask DeviceForm::codes_task(std::size_t elements) const noexcept {
  DeviceTask task;
  task.elements = elements;
  task.type = type;
  if (kind == DeviceKind::kSides) {
    task.sides = sides_of_bits(side_bits);
  } else if (kind == DeviceKind::kFloats) {
    task.bits = bits;
    task.transform = transform;
  } else if (kind == DeviceKind::kFrames) {
    task.framed = true;
    const double bytes = static_cast<double>(elements * compress::element_size(type)) * share;
    const std::size_t room = align_up(static_cast<std::size_t>(bytes));
    task.capacity = room - std::min(room, scratch_of_frames(task));
  } else if (kind == DeviceKind::kIntegers) {
    task.minimum = minimum;
    task.width = width;
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

std::size_t payload_room(const DeviceForm& form, const allocator::ByteRange* ranges,
                         std::size_t count) noexcept {
  if (form.kind == DeviceKind::kNothing) return kAlign;
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

}  // namespace pleat::bridge::cuda

// How a block's payload lies in device memory. The host knows all of it without a look: sizes
// follow from the form and from the ranges of the block, both of which the record keeps.
//
// For each span, in order, each part 64-byte aligned:
//   sides       of its values, where the form has them (a payload of sides)
//   lines       that come back exact (compress/cuda/device_asides.h)
//   near zero   elements that come back exact (likewise)
//   scratch     of frames: memory of the kernels, zero whenever none runs. The first half serves
//               launches, the second half those that become part of a graph.
//   codes       the payload of the span: docs/payload_format.md
// Codes come last, so that a payload of one span ends with what alone may turn out shorter. The CPU
// reads none of it. Torch-free.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "allocator/store/block_codec.h"
#include "allocator/store/byte_ranges.h"
#include "compress/block/form_plan.h"
#include "compress/block/scales.h"
#include "compress/cuda/device_codec.h"
#include "compress/lines/lines.h"

namespace pleat::bridge::cuda {

using compress::block::FormKind;

struct DeviceForm {
  FormKind kind = FormKind::kNothing;
  compress::ElementType type = compress::ElementType::kBytes;
  std::uint8_t bits = 0;
  compress::Transform transform = compress::Transform::kNone;
  std::uint8_t side_bits = 0;  // of each side, kept alone or beside values; 0: none are
  std::uint8_t width = 0;      // of integers
  compress::Look look = compress::Look::kNone;
  bool zeros = false;  // groups of both signs keep theirs
  std::uint32_t line_length = 0;
  std::uint32_t most_lines = 0;      // 0: none are kept
  std::uint32_t most_near_zero = 0;  // 0: none are kept
  // Of exact floats: the part of a span's bytes that is room of its frames, scratch included. 0:
  // they are in groups of at most two values each.
  float share = 0;
  // Of a table of exponents, as Exponents has them.
  std::uint32_t channels = 0;
  std::uint8_t inner = 1;
  std::uint8_t unused[3] = {};

  [[nodiscard]] allocator::PayloadForm pack() const noexcept {
    return {std::bit_cast<std::array<std::uint64_t, 4>>(*this), is_framed()};
  }
  [[nodiscard]] static DeviceForm unpack(const allocator::PayloadForm& form) noexcept {
    return std::bit_cast<DeviceForm>(form.words);
  }
  [[nodiscard]] compress::Lines lines() const noexcept { return {look, line_length}; }
  // Whether lines are looked for.
  [[nodiscard]] bool has_lines() const noexcept { return look > compress::Look::kParts; }
  // Of lossy values; an encoder adds the table.
  [[nodiscard]] compress::Exponents exponents() const noexcept;

  [[nodiscard]] bool is_framed() const noexcept { return share != 0; }
  [[nodiscard]] bool has_sides_beside() const noexcept {
    return kind == FormKind::kLossy && side_bits != 0;
  }

  // A task for the codes of a span, without addresses, and one for the sides beside them.
  [[nodiscard]] compress::cuda::DeviceTask codes_task(std::size_t elements) const noexcept;
  [[nodiscard]] compress::cuda::DeviceTask sides_task(std::size_t elements) const noexcept;
};
static_assert(sizeof(DeviceForm) == 32);

// Where the parts of a span begin in the payload.
struct SpanPlace {
  std::size_t elements = 0;
  std::size_t sides = 0, lines = 0, near_zero = 0, scratch = 0, codes = 0;
  std::size_t codes_room = 0;
  [[nodiscard]] std::size_t end() const noexcept { return codes + codes_room; }
  // Of lossy values with exponents of channels.
  [[nodiscard]] std::size_t table(const DeviceForm& form) const noexcept;
};

// The place of the span whose parts begin at or behind `begin`.
[[nodiscard]] SpanPlace place_span(const DeviceForm& form, std::size_t span_bytes,
                                   std::size_t begin) noexcept;
// Bytes of the payload. 0: the device has no kernel for some span.
[[nodiscard]] std::size_t payload_room(const DeviceForm& form, const allocator::ByteRange* ranges,
                                       std::size_t count) noexcept;

// The form in the memory of a device of a payload that is planned.
struct DevicePlan final : allocator::EncodePlan::Details, compress::block::FormPlan {
  DeviceForm form;
  compress::block::Scales scales;
  bool due = false;  // the tensor is to be measured (KeyScales)
  std::size_t payload_bytes = 0, scratch_bytes = 0;
};

// Empty where the device has no form for the block.
//   lesson  of the block's key; null: the plan is closed
//   scales  of the block's key
//   ranges  `count` of them: the block's spans
[[nodiscard]] std::optional<DevicePlan> plan_on_device(const compress::block::BlockSpec& spec,
                                                       const compress::block::KeyLesson* lesson,
                                                       const compress::block::Scales& scales,
                                                       const allocator::ByteRange* ranges,
                                                       std::size_t count) noexcept;

}  // namespace pleat::bridge::cuda

// The form of a block's payload, as far as it follows from the specification of the block and from
// what earlier payloads of its key have taught. No value is looked at. The host refines the plan by
// the values (block_plan.h); a device carries it out as it is. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/block/block_spec.h"
#include "compress/block/key_lesson.h"

namespace pleat::compress::block {

// Whether a payload of `room` bytes is worth having for a block of so many.
[[nodiscard]] constexpr bool is_worth_having(std::size_t room, std::size_t bytes) noexcept {
  return room <= bytes - bytes / 16;
}

// The parts that a payload is made of.
enum class FormKind : std::uint8_t {
  kNothing,  // only the size is kept
  kSides,    // only the sides of the values
  kLossy,    // quantised floats
  kFloats,   // exact, as the rest
  kBooleans,
  kIntegers,
  kBytes,
};

struct FormPlan {
  BlockSpec spec;             // the part of the specification that a payload can hold
  Sides beside{};             // of lossy values: closed, as they stand beside them or would have to
  bool keeps_beside = false;  // they stand there, unless the values show no need
  bool any_byte = false;      // booleans: every byte other than 0 is true
  // Without a look at the values before: the writer is to report whether they have what the
  // specification asks for; and they may not have it, so the source stays until the report.
  bool judged = false, gated = false;
  bool closed = false;  // plan_closed_form()

  [[nodiscard]] FormKind kind() const noexcept;
};

// Lossless where the type or the bounds do not allow the sides that `spec` asks for.
//   lesson    of the block's key; KeyLesson{} if it has taught nothing, as on the host
//   elements  of all spans
[[nodiscard]] FormPlan plan_form(const BlockSpec& spec, const KeyLesson& lesson,
                                 std::size_t elements, std::size_t spans) noexcept;

// A form whose payload has a size that no value changes, and that can hold any values. Values that
// the specification wants exact because of other values are all exact (near_zero, kExponent, lines
// that may be flat). Lossy values have 3 bits or more, where NaN and Inf have codes. With kCurved
// they have 8, and wider steps are coded too. Rows of zeros are coded as the rest.
[[nodiscard]] FormPlan plan_closed_form(const BlockSpec& spec, std::size_t elements,
                                        std::size_t spans) noexcept;

}  // namespace pleat::compress::block

// Payloads that keep of every float only the side of two bounds it lies on. Decoding gives an
// element of the same side; beside values, the sides move back what noise has carried across a
// bound. See docs/payload_format.md, "Sides".
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/sides/side_bounds.h"
#include "compress/types.h"

namespace pleat::compress {

// Sides to keep beside values, closed. Two bounds leave three intervals, and a value must not be
// moved from the one outside to the other, so these sides are three then, else two. None where all
// elements are on one side. The side of NaN is not kept: quantised groups hold none.
[[nodiscard]] Sides sides_beside_values(const Sides& sides, ElementType type) noexcept;

// True if may_leave_side() (block/group_steps.h) would be false for the span, coded so. Reads the
// elements, until one shows that it might be true. Says no to bounds other than zero, to transforms
// and to exponents: a small element that is divided once restored may become zero.
[[nodiscard]] bool keeps_sides(const Span& source, const CodecSpec& codec, const Sides& sides,
                               const Executor& executor) noexcept;

// Moves each element of `target` that is on another side than `payload` (of kSides) says to the
// nearest value of its own side. NaN stays as it is. No error grows: the element that was
// encoded is on that side too.
//   payload   `payload_bytes` bytes of any origin, all of which are the payload's; of sides as
//             sides_beside_values() gives them
//   target    `target_bytes` must equal the bytes of the span
// Returns kCorrupt, with some elements moved, if the payload is damaged. Thread-safe, never throws.
[[nodiscard]] Status restore_sides(const void* payload, std::size_t payload_bytes, void* target,
                                   std::size_t target_bytes, const Executor& executor) noexcept;

}  // namespace pleat::compress

// Keeps the lines of a tensor that must come back exact (exact_lines.h) as bytes in front of a
// payload. Torch-free.
#pragma once

#include <cstddef>

#include "compress/codec.h"
#include "compress/lines/exact_lines.h"

namespace pleat::compress::block {

// The patch with the exact lines of a plan that has any, and its size in bytes. Native byte order,
// as in all payloads.
[[nodiscard]] std::size_t patch_bytes(const LinePlan& plan, Lines lines, std::size_t elements,
                                      compress::ElementType type) noexcept;
void write_patch(const LinePlan& plan, Lines lines, const void* data, std::size_t elements,
                 compress::ElementType type, void* patch) noexcept;
// True if `data` begins with a patch's magic number; the rest may still be damaged.
[[nodiscard]] bool is_patch(const void* data, std::size_t bytes) noexcept;
// The length of the patch at the front of `bytes` bytes; 0 if it is damaged, or not for
// `target_bytes`.
[[nodiscard]] std::size_t check_patch(const void* patch, std::size_t bytes,
                                      std::size_t target_bytes) noexcept;
// Writes the lines into `target`. Only after check_patch() accepted the patch.
void apply_patch(const void* patch, void* target, std::size_t target_bytes) noexcept;

}  // namespace pleat::compress::block

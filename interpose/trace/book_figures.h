// What follows from a book: what saved tensors would take at other widths; sizes as texts.
#pragma once

#include <cstdint>
#include <span>

#include "interpose/trace/live_book.h"

namespace pleat::trace {

// Saved tensors of a device that forward does not need: what they take, and would take.
struct SavedBytes {
  std::int64_t now = 0;
  std::int64_t at_8_bits = 0, at_4_bits = 0;  // what nothing is known of counts as it is
  std::int64_t not_known = 0;                 // of `now`: so much
};
[[nodiscard]] SavedBytes saved_bytes(BookDevice& device) noexcept;

// "1.25 GiB", with a NUL.
void write_size(std::int64_t bytes, std::span<char> text) noexcept;

}  // namespace pleat::trace

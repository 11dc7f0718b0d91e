// Bytes of a block read as numbers and texts. Nothing is read beyond the end: what is missing
// reads as 0 or as an empty text, and the cursor says that it has failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pleat::trace {

// A number whose last byte is known to lie before the end of what `at` points into.
[[nodiscard]] inline std::uint64_t take_number(const std::uint8_t*& at) noexcept {
  std::uint64_t byte = *at++;
  if (byte < 0x80) [[likely]]
    return byte;
  std::uint64_t value = byte & 0x7f;
  unsigned shift = 7;
  do {
    byte = *at++;
    if (shift < 64) value |= (byte & 0x7f) << shift;
    shift += 7;
  } while (byte >= 0x80);
  return value;
}

class Cursor {
 public:
  explicit Cursor(std::span<const std::uint8_t> bytes) noexcept
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  [[nodiscard]] std::uint8_t byte() noexcept {
    if (at_ == end_) return fail();
    return *at_++;
  }
  [[nodiscard]] std::uint64_t number() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
      const std::uint64_t byte = this->byte();
      if (shift < 64) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return failed_ ? 0 : value;
    }
    return fail();
  }
  [[nodiscard]] std::span<const std::uint8_t> bytes(std::uint64_t count) noexcept {
    if (count > left()) {
      at_ = end_;
      fail();
      return {};
    }
    const std::span<const std::uint8_t> taken(at_, static_cast<std::size_t>(count));
    at_ += count;
    return taken;
  }
  [[nodiscard]] std::string_view text(std::uint64_t count) noexcept {
    const std::span<const std::uint8_t> taken = bytes(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::uint8_t fail() noexcept {
    failed_ = true;
    return 0;
  }

  const std::uint8_t* at_;
  const std::uint8_t* end_;
  bool failed_ = false;
};

}  // namespace pleat::trace

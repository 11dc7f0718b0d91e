// Which pages of a segment have been touched since they were last given back: one bit a page.
// Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pleat::allocator {

class TouchedPages {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  [[nodiscard]] static std::size_t metadata_bytes(std::size_t pages) noexcept {
    return (pages + 63) / 64 * sizeof(std::uint64_t);
  }
  // `memory` holds metadata_bytes(pages) zero bytes and outlives this object.
  void attach(std::byte* memory, std::size_t pages) noexcept {
    words_ = reinterpret_cast<std::uint64_t*>(memory);
    pages_ = pages;
    count_ = 0;
    high_ = 0;
  }

  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool test(std::size_t page) const noexcept {
    return (words_[page / 64] >> (page % 64)) & 1;
  }

  [[nodiscard]] bool all_touched(std::size_t begin, std::size_t end) const noexcept {
    bool all = true;
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) {
      all = all && (words_[word] & mask) == mask;
    });
    return all;
  }
  // Pages of [begin, end) not touched yet.
  [[nodiscard]] std::size_t untouched(std::size_t begin, std::size_t end) const noexcept {
    std::size_t touched = 0;
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) {
      touched += static_cast<std::size_t>(std::popcount(words_[word] & mask));
    });
    return end - begin - touched;
  }
  void touch(std::size_t begin, std::size_t end) noexcept {
    count_ += untouched(begin, end);
    if (end > high_) high_ = end;
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) { words_[word] |= mask; });
  }
  void clear(std::size_t begin, std::size_t end) noexcept {
    count_ -= end - begin - untouched(begin, end);
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) { words_[word] &= ~mask; });
  }

  // The highest touched page of [begin, end), kNone if there is none.
  [[nodiscard]] std::size_t last_touched(std::size_t begin, std::size_t end) const noexcept {
    if (end > high_) end = high_;
    while (end > begin) {
      const std::size_t word = (end - 1) / 64;
      const std::size_t first = word * 64;
      std::uint64_t bits = words_[word];
      if (end - first < 64) bits &= (std::uint64_t{1} << (end - first)) - 1;
      if (bits != 0) {
        const std::size_t page = first + static_cast<std::size_t>(std::bit_width(bits)) - 1;
        return page >= begin ? page : kNone;
      }
      end = first;
    }
    return kNone;
  }

 private:
  template <typename Function>
  static void for_each_word(std::size_t begin, std::size_t end, Function&& function) noexcept {
    while (begin < end) {
      const std::size_t word = begin / 64;
      const std::size_t low = begin % 64;
      const std::size_t stop = end < (word + 1) * 64 ? end : (word + 1) * 64;
      const std::size_t bits = stop - begin;
      const std::uint64_t mask = (bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1)
                                 << low;
      function(word, mask);
      begin = stop;
    }
  }

  std::uint64_t* words_ = nullptr;
  std::size_t pages_ = 0;
  std::size_t count_ = 0;
  std::size_t high_ = 0;  // no page from here on was ever touched
};

}  // namespace pleat::allocator

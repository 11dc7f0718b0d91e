// TouchedPages records which pages of a segment were touched since their last release, one bit per
// page. If the kernel uses huge pages, it also records which of those are *split*. A touch of an
// untouched huge page makes all of it resident. Once a part was released, its pages become resident
// singly; on some kernels only until all of it is released at once. (The kernel can also join pages
// by itself.)
//
// If huge pages are made of small ones (DeviceCapabilities::joins_pages), a huge page is *plain*
// until it has been joined: its pages become resident singly. Pages count as touched once they are
// handed out, although their owner can leave them unwritten. A huge page with such pages is
// *unsure* until its pages have been examined. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pleat::allocator {

class TouchedPages {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;

  [[nodiscard]] static std::size_t metadata_bytes(std::size_t pages) noexcept {
    return kArrays * words_for(pages) * sizeof(std::uint64_t);
  }
  // `memory` holds metadata_bytes(pages) zero bytes and outlives this object.
  // `pages_per_huge_page`: a power of two, 1 if there are no huge pages; divides `pages`. `rejoin`:
  // a huge page released at once is no longer split. `joins`: huge pages begin as plain.
  void attach(std::byte* memory, std::size_t pages, std::size_t pages_per_huge_page = 1,
              bool rejoin = false, bool joins = false) noexcept {
    words_ = reinterpret_cast<std::uint64_t*>(memory);
    split_ = words_ + words_for(pages);
    moved_ = split_ + words_for(pages);
    unsure_ = moved_ + words_for(pages);
    whole_ = unsure_ + words_for(pages);
    pages_ = pages;
    huge_ = pages_per_huge_page;
    rejoin_ = rejoin;
    joins_ = joins;
    count_ = 0;
    high_ = 0;
    moved_count_ = 0;
    kinds_ = 0;
  }

  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  // No page from here on is touched.
  [[nodiscard]] std::size_t high() const noexcept { return high_; }
  [[nodiscard]] bool test(std::size_t page) const noexcept {
    return (words_[page / 64] >> (page % 64)) & 1;
  }

  // Touched pages of [begin, end).
  [[nodiscard]] std::size_t touched(std::size_t begin, std::size_t end) const noexcept {
    std::size_t count = 0;
    for_each_word(begin, std::min(end, high_), [&](std::size_t word, std::uint64_t mask) {
      count += static_cast<std::size_t>(std::popcount(words_[word] & mask));
    });
    return count;
  }
  [[nodiscard]] std::size_t untouched(std::size_t begin, std::size_t end) const noexcept {
    return end - begin - touched(begin, end);
  }
  [[nodiscard]] bool all_touched(std::size_t begin, std::size_t end) const noexcept {
    return untouched(begin, end) == 0;
  }
  // Widens [*begin, *end) to all pages that become resident with a touch of those pages.
  void widen(std::size_t* begin, std::size_t* end) const noexcept {
    if (huge_ == 1) return;
    const std::size_t low = *begin & ~(huge_ - 1);
    const std::size_t high = (*end + huge_ - 1) & ~(huge_ - 1);
    if (comes_whole(low)) *begin = low;
    if (comes_whole(high - huge_)) *end = high;
  }
  [[nodiscard]] std::size_t pages_per_huge_page() const noexcept { return huge_; }
  [[nodiscard]] bool is_split(std::size_t page) const noexcept { return get(split_, page / huge_); }
  [[nodiscard]] bool is_plain(std::size_t page) const noexcept {
    return joins_ && !get(whole_, page / huge_);
  }
  [[nodiscard]] bool comes_singly(std::size_t page) const noexcept {
    return is_split(page) || is_plain(page);
  }
  void set_plain(std::size_t page, bool plain) noexcept {
    const std::size_t huge = page / huge_;
    if (!joins_ || get(whole_, huge) != plain) return;
    const auto meets = [&](std::size_t other) {
      if (get(whole_, other) == plain) {
        ++kinds_;
      } else {
        --kinds_;
      }
    };
    if (huge > 0) meets(huge - 1);
    if (huge + 1 < pages_ / huge_) meets(huge + 1);
    put(whole_, huge, !plain);
  }
  // The number of neighbouring huge pages, from the first to the last, that differ in being plain.
  [[nodiscard]] std::size_t kinds() const noexcept { return kinds_; }
  void set_split(std::size_t page, bool split) noexcept { put(split_, page / huge_, split); }
  // Whether move() filled the huge page of `page` since its last release; moved() counts these.
  [[nodiscard]] bool is_moved(std::size_t page) const noexcept { return get(moved_, page / huge_); }
  [[nodiscard]] std::size_t moved() const noexcept { return moved_count_; }

  // Whether any huge page of [begin, end) is unsure. Both bounds are multiples of a huge page.
  [[nodiscard]] bool any_unsure(std::size_t begin, std::size_t end) const noexcept {
    bool any = false;
    for_each_word(begin / huge_, end / huge_, [&](std::size_t word, std::uint64_t mask) {
      any |= (unsure_[word] & mask) != 0;
    });
    return any;
  }
  [[nodiscard]] bool is_unsure(std::size_t page) const noexcept {
    return get(unsure_, page / huge_);
  }
  // Records that all pages of the huge page at `page` were examined: all but forgotten ones are
  // resident.
  void set_sure(std::size_t page) noexcept { put(unsure_, page / huge_, false); }

  void touch(std::size_t begin, std::size_t end) noexcept {
    count_ += untouched(begin, end);
    for_each_word(begin / huge_, (end + huge_ - 1) / huge_,
                  [&](std::size_t word, std::uint64_t mask) { unsure_[word] |= mask; });
    if (end > high_) high_ = end;
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) { words_[word] |= mask; });
  }
  // Records that the pages were released, at once.
  void clear(std::size_t begin, std::size_t end) noexcept {
    count_ -= touched(begin, end);
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) { words_[word] &= ~mask; });
    lower_high(begin, end);
    if (begin % huge_ != 0) split(begin);
    if (end % huge_ != 0) split(end - 1);
    if (!rejoin_ || huge_ == 1) return;
    for (std::size_t huge = (begin + huge_ - 1) / huge_; huge < end / huge_; ++huge) renew(huge);
  }
  // Records that the pages never became resident.
  void forget(std::size_t begin, std::size_t end) noexcept {
    count_ -= touched(begin, end);
    for_each_word(begin, end, [&](std::size_t word, std::uint64_t mask) { words_[word] &= ~mask; });
    lower_high(begin, end);
  }
  // Records that the touched huge page at `from_page` of `from` was moved to the untouched one at
  // `page` of this segment. `from` can be the same segment. Both numbers begin a huge page.
  void move(TouchedPages& from, std::size_t from_page, std::size_t page) noexcept {
    const bool was_split = from.is_split(from_page);
    const bool was_plain = from.is_plain(from_page);
    const bool was_unsure = from.is_unsure(from_page);
    from.clear(from_page, from_page + huge_);
    from.renew(from_page / huge_);
    touch(page, page + huge_);
    put(split_, page / huge_, was_split);
    put(unsure_, page / huge_, was_unsure);
    set_plain(page, was_plain);
    put(moved_, page / huge_, true);
    ++moved_count_;
  }
  // Records that the whole segment was released, or is new.
  void reset() noexcept {
    clear(0, (high_ + huge_ - 1) & ~(huge_ - 1));
    for (std::size_t i = 0; huge_ != 1 && i < words_for(pages_ / huge_); ++i) {
      split_[i] = moved_[i] = unsure_[i] = whole_[i] = 0;
    }
    moved_count_ = 0;
    kinds_ = 0;
  }

  // The highest touched page of [begin, end), kNone if all are untouched.
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

  // Pages [begin, begin + length).
  struct Stretch {
    std::size_t begin;
    std::size_t length;
  };
  // The longest stretch of touched pages in [begin, end), the lowest on a tie.
  [[nodiscard]] Stretch longest_touched(std::size_t begin, std::size_t end) const noexcept {
    Stretch best{begin, 0};
    end = std::min(end, high_);
    while (begin < end) {
      begin = next(begin, end, true);
      const std::size_t stop = next(begin, end, false);
      if (stop - begin > best.length) best = {begin, stop - begin};
      begin = stop;
    }
    return best;
  }

  // The window of `length` pages in [begin, end) with the fewest untouched pages, the lowest on a
  // tie, and that number. [begin, end) holds at least one window.
  struct Window {
    std::size_t begin;
    std::size_t untouched;
  };
  [[nodiscard]] Window best_window(std::size_t begin, std::size_t end,
                                   std::size_t length) const noexcept {
    // Only a window with a touched page can be better than the first.
    const std::size_t beyond = std::min(end, high_);
    const std::size_t first = next(begin, beyond, true);
    if (first >= beyond) return {begin, length};
    const std::size_t low = std::min(std::max(first + 1, begin + length) - length, end - length);
    const std::size_t stop = std::min(end, beyond + length);
    std::size_t now = untouched(low, low + length);
    Window best{low, now};
    for (std::size_t page = low + length; page < stop && best.untouched > 0; ++page) {
      now += static_cast<std::size_t>(test(page - length)) - static_cast<std::size_t>(test(page));
      if (now < best.untouched) best = {page + 1 - length, now};
    }
    return best;
  }

 private:
  static constexpr std::size_t kArrays = 5;
  static constexpr std::size_t words_for(std::size_t bits) noexcept { return (bits + 63) / 64; }

  [[nodiscard]] bool comes_whole(std::size_t first) const noexcept {
    return !comes_singly(first) && untouched(first, first + huge_) == huge_;
  }
  // The first page of [page, end) that is touched (`touched`) or untouched (else); else `end`.
  [[nodiscard]] std::size_t next(std::size_t page, std::size_t end, bool touched) const noexcept {
    while (page < end) {
      const std::size_t word = page / 64;
      const std::uint64_t bits =
          (touched ? words_[word] : ~words_[word]) & (~std::uint64_t{0} << (page % 64));
      if (bits != 0) {
        return std::min(end, word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
      }
      page = (word + 1) * 64;
    }
    return end;
  }
  // Lowers high_ now that pages [begin, end) are untouched.
  void lower_high(std::size_t begin, std::size_t end) noexcept {
    if (end < high_ || begin >= high_) return;
    const std::size_t last = last_touched(0, begin);
    high_ = last == kNone ? 0 : last + 1;
  }
  void split(std::size_t page) noexcept { put(split_, page / huge_, true); }
  void renew(std::size_t huge) noexcept {
    put(split_, huge, false);
    if (get(moved_, huge)) --moved_count_;
    put(moved_, huge, false);
  }
  static bool get(const std::uint64_t* words, std::size_t bit) noexcept {
    return ((words[bit / 64] >> (bit % 64)) & 1) != 0;
  }
  static void put(std::uint64_t* words, std::size_t bit, bool value) noexcept {
    const std::uint64_t mask = std::uint64_t{1} << (bit % 64);
    words[bit / 64] = value ? words[bit / 64] | mask : words[bit / 64] & ~mask;
  }

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
  std::uint64_t* split_ = nullptr;   // one bit per huge page
  std::uint64_t* moved_ = nullptr;   // one bit per huge page
  std::uint64_t* unsure_ = nullptr;  // one bit per huge page
  std::uint64_t* whole_ = nullptr;   // one bit per huge page: not plain
  std::size_t pages_ = 0;
  std::size_t huge_ = 1;  // pages in a huge page
  bool rejoin_ = false;
  bool joins_ = false;
  std::size_t count_ = 0;
  std::size_t moved_count_ = 0;
  std::size_t kinds_ = 0;
  std::size_t high_ = 0;
};

}  // namespace pleat::allocator

// Sizes of blocks of which much is never written, as of the workspaces that libraries size for the
// worst case. On pages that others have touched such a block keeps resident what nobody needs. So
// it gets fresh ones, and what it has written goes back when it is freed, as with malloc(). One
// size says little of its owner: a block of it that is written after all ends that. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace pleat::allocator {

class SparseSizes {
 public:
  // Of the last block of that size the pages that never came; 0 unless the size is sparse.
  [[nodiscard]] std::size_t unwritten(std::size_t granules) const noexcept {
    if (count_ == 0) return 0;
    const auto found = find(granules);
    return found != sizes_.end() ? found->unwritten : 0;
  }
  // A block of that size (> 0) on `pages` pages is freed, of which `unwritten` never came.
  void note(std::size_t granules, std::size_t pages, std::size_t unwritten) noexcept {
    const auto found = find(granules);
    if (found != sizes_.end()) {
      const bool ends = 8 * unwritten < pages;
      sizes_[static_cast<std::size_t>(found - sizes_.begin())] =
          ends ? Size{} : Size{granules, unwritten};
      count_ -= ends ? 1 : 0;
    } else if (unwritten != 0 && 4 * unwritten >= pages) {
      Size& place = sizes_[next_++ % sizes_.size()];
      count_ += place.granules == 0 ? 1 : 0;
      place = {granules, unwritten};
    }
  }

 private:
  struct Size {
    std::size_t granules = 0;  // 0: none
    std::size_t unwritten = 0;
  };
  using Sizes = std::array<Size, 16>;
  [[nodiscard]] Sizes::const_iterator find(std::size_t granules) const noexcept {
    return std::find_if(sizes_.begin(), sizes_.end(),
                        [&](const Size& size) { return size.granules == granules; });
  }

  Sizes sizes_{};
  std::size_t count_ = 0;
  std::size_t next_ = 0;
};

}  // namespace pleat::allocator

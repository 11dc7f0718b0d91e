// DensityBySize remembers how densely blocks of each size were written when freed. Not thread-safe.
//
// Blocks of a *sparse* size leave many pages unwritten. Workspaces that libraries size for the
// worst case are an example. On touched pages such a block would keep unused memory resident. So it
// gets fresh pages, and its pages are released when it is freed, as with malloc(). Different owners
// can request the same size: one densely written block makes the size no longer sparse.
//
// A block of a *dense* size was written nearly everywhere, so the next one can get huge pages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace pleat::allocator {

class DensityBySize {
 public:
  // The highest number of consecutive frees of a sparse size whose pages are not examined.
  static constexpr std::size_t kMostSkipped = 16;

  // Pages that the last block of that size left unwritten; 0 unless the size is sparse.
  [[nodiscard]] std::size_t unwritten(std::size_t granules) const noexcept {
    if (sparse_count_ == 0) return 0;
    const auto found = find(granules);
    return found != sparse_.end() ? found->unwritten : 0;
  }
  [[nodiscard]] bool is_dense(std::size_t granules) const noexcept {
    return dense_[slot(granules)] == granules;
  }
  // Whether the pages of a block of that size must be examined when it is freed. The longer a size
  // has been sparse, the rarer the examinations.
  [[nodiscard]] bool is_look_due(std::size_t granules) noexcept {
    if (sparse_count_ == 0) return true;
    const auto found = find(granules);
    if (found == sparse_.end()) return true;
    Size& size = sparse_[static_cast<std::size_t>(found - sparse_.begin())];
    if (size.left != 0) {
      --size.left;
      return false;
    }
    size.skips = std::min(std::max<std::size_t>(2 * size.skips, 1), kMostSkipped);
    size.left = size.skips;
    return true;
  }
  // Records that of the `pages` pages of a block of `granules` (> 0), `unwritten` were never
  // touched.
  void note(std::size_t granules, std::size_t pages, std::size_t unwritten) noexcept {
    const bool dense = 8 * unwritten < pages;
    const bool sparse = 4 * unwritten >= pages;
    std::size_t& known = dense_[slot(granules)];
    if (dense) {
      known = granules;
    } else if (sparse && known == granules) {
      known = 0;
    }
    const auto found = find(granules);
    if (found != sparse_.end()) {
      Size& size = sparse_[static_cast<std::size_t>(found - sparse_.begin())];
      if (dense) {
        size = {};
        --sparse_count_;
      } else {
        size.unwritten = unwritten;
      }
    } else if (sparse) {
      Size& place = sparse_[next_++ % sparse_.size()];
      sparse_count_ += place.granules == 0 ? 1 : 0;
      place = {granules, unwritten};
    }
  }

 private:
  struct Size {
    std::size_t granules = 0;  // 0: empty entry
    std::size_t unwritten = 0;
    std::size_t skips = 0;  // frees to skip after the next examination
    std::size_t left = 0;   // frees still to skip before the next examination
  };
  using Sizes = std::array<Size, 16>;
  static constexpr std::size_t kDense = 256;
  [[nodiscard]] static std::size_t slot(std::size_t granules) noexcept {
    return (granules * 0x9E3779B97F4A7C15u) >> 56;
  }
  [[nodiscard]] Sizes::const_iterator find(std::size_t granules) const noexcept {
    return std::find_if(sparse_.begin(), sparse_.end(),
                        [&](const Size& size) { return size.granules == granules; });
  }

  Sizes sparse_{};
  std::array<std::size_t, kDense> dense_{};  // 0: empty entry
  std::size_t sparse_count_ = 0;
  std::size_t next_ = 0;
};

}  // namespace pleat::allocator

// LiveWindow is the highest number of live bytes in the current epoch and the three before it. The
// pool derives from it the bytes that can stay resident. So it must rise at once and fall within a
// few epochs when a job needs less. Between the steps of a slow job it must not fall; hence
// lengthen(). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pleat::allocator {

class LiveWindow {
 public:
  static constexpr int kEpochs = 4;
  static constexpr std::uint64_t kMaxLengthening = 16;

  explicit LiveWindow(std::uint64_t epoch_ns) noexcept
      : base_epoch_ns_(epoch_ns), epoch_ns_(epoch_ns) {}

  [[nodiscard]] std::size_t high() const noexcept { return high_; }
  [[nodiscard]] std::uint64_t epoch_ns() const noexcept { return epoch_ns_; }
  [[nodiscard]] std::uint64_t longest_ns() const noexcept {
    return base_epoch_ns_ * kMaxLengthening * kEpochs;
  }

  void raise(std::size_t live) noexcept {
    if (live > newest_) {
      newest_ = live;
      if (live > high_) high_ = live;
    }
  }

  // Begins the epochs that are due at `now_ns`; true if one began. `live`: bytes live now.
  bool advance(std::uint64_t now_ns, std::size_t live) noexcept {
    if (started_ns_ == 0) started_ns_ = now_ns;
    const std::uint64_t passed = (now_ns - started_ns_) / epoch_ns_;
    if (passed == 0) return false;
    for (std::uint64_t i = 0; i < passed && i < kEpochs; ++i) {
      older_[2] = older_[1];
      older_[1] = older_[0];
      older_[0] = newest_;
      newest_ = live;
    }
    started_ns_ += passed * epoch_ns_;
    high_ = newest_;
    for (const std::size_t high : older_) high_ = high > high_ ? high : high_;
    return true;
  }

  // Doubles the length of an epoch, up to kMaxLengthening times the first length.
  void lengthen() noexcept {
    if (epoch_ns_ < base_epoch_ns_ * kMaxLengthening) epoch_ns_ *= 2;
  }

  // Discards the past; `live` bytes are live now.
  void restart(std::size_t live) noexcept {
    epoch_ns_ = base_epoch_ns_;
    newest_ = high_ = live;
    for (std::size_t& high : older_) high = live;
  }

 private:
  std::uint64_t base_epoch_ns_;
  std::uint64_t epoch_ns_;
  std::uint64_t started_ns_ = 0;
  std::size_t high_ = 0;
  std::size_t newest_ = 0;
  std::size_t older_[kEpochs - 1] = {};
};

}  // namespace pleat::allocator

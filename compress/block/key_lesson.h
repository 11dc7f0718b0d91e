// The findings about earlier values of a key. Values that are not examined before they are coded
// get the form that the outcomes of the last ones suggest. Torch-free.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pleat::compress::block {

struct KeyLesson {
  // So many more payloads of the key must be as they were predicted to be. Then a payload that
  // cannot be refused needs no verdict before its source is given back. After a surprise it takes
  // many: a key may have payloads of several kinds in turn.
  static constexpr std::uint32_t kNew = 1, kSurprising = 64;
  std::uint32_t probation = kNew;
  [[nodiscard]] bool sure() const noexcept { return probation == 0; }
  void note_outcome(bool good) noexcept {
    if (!good) {
      probation = kSurprising;
    } else if (probation != 0) {
      --probation;
    }
  }
  // Lossy values: at least so many bits, whatever was asked for. Fewer again after so many payloads
  // in a row whose steps were narrow.
  static constexpr std::uint32_t kNarrow = 64;
  std::uint8_t least_bits = 0;
  std::uint32_t narrow = 0;
  // Lossy values: noise may carry some across a bound, so their sides stand beside them. Not once
  // it could not have in so many payloads in a row; many more of them if it ever had.
  static constexpr std::uint32_t kQuiet = 8, kQuietAgain = 1024;
  std::uint32_t quiet = 0;
  bool ever_left = false;
  [[nodiscard]] bool keeps_sides() const noexcept {
    return quiet < (ever_left ? kQuietAgain : kQuiet);
  }
  // Integers: bits of each.
  std::uint8_t width = 8;
  // Exact floats: in groups of at most two values each, else in frames. Groups are tried where
  // frames do not pay, and once after so many payloads in frames; 0: they have been.
  bool in_groups = false;
  std::uint32_t frames_before_groups = 1;
  static constexpr std::uint32_t kFramesAgain = 16;  // after groups that were good
  // Exact floats: the largest share of their bytes that frames took. It fades, as those below.
  double frames = 0;
  // Room beyond that share, as a part of it: twice as much after a miss, less after each hit.
  float margin = 1.0f / 16;
  // More is not worth having: a restore holds the payload next to the values, and values that are
  // held raw are adopted.
  static constexpr float kMostOfFrames = 7.0f / 8;
  [[nodiscard]] float room_of_frames() const noexcept {
    const float room = static_cast<float>(frames) * (1 + margin);
    return room == 0 ? kMostOfFrames : std::min(room, kMostOfFrames);
  }
  void note_frames(bool fit, double share) noexcept {
    if (frames != 0) margin = std::clamp(margin * (fit ? 0.5f : 2.0f), 1.0f / 128, 1.0f / 4);
    note_share(frames, share);
  }
  // The largest shares of elements that had to come back exact as lines, and as near zero. They
  // fade slowly: the payloads of a key may be of several kinds in turn.
  double lines = 0, near_zero = 0;
  // After a refusal so many blocks are held raw before the next one is tried: twice as many each
  // time.
  std::uint32_t pause = 0, refusals = 0;

  // Of `elements` elements so many were seen.
  static void note_share(double& share, std::uint64_t seen, std::uint64_t elements) noexcept {
    note_share(share,
               elements == 0 ? 0 : static_cast<double>(seen) / static_cast<double>(elements));
  }
  static void note_share(double& share, double now) noexcept {
    constexpr double kFades = 0.99;
    share = std::max(now, share * kFades);
  }

  void refuse() noexcept {
    constexpr std::uint32_t kMostDoublings = 8;
    pause = std::uint32_t{1} << std::min(refusals, kMostDoublings);
    ++refusals;
  }
};

}  // namespace pleat::compress::block

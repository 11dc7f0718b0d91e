// Operations of a lane on the words of a frame. The lane turns the sign to the lowest bit and back,
// takes minima and finds zeros. It also converts a run of eight differences to and from their bytes
// in each bit plane (docs/payload_format.md, "Framed"). No tile is needed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <type_traits>

#include "compress/device/lane_core.h"

namespace pleat::compress {
namespace {

// ---- words, as they lie in registers: one, or two halves ----

PLEAT_HD inline uint32_t lesser_word(uint32_t a, uint32_t b) { return a < b ? a : b; }
PLEAT_HD inline uint32_t greater_word(uint32_t a, uint32_t b) { return a > b ? a : b; }

// `turn`: the sign becomes the lowest bit. `with_below`: the least of the given value and a
// register's words minus one (a zero word minus one is the largest number). `with_word`: the
// largest of the given value and the words. Both give their result in the bits from kLowest.
// (Halves are compared as whole registers, whatever lies beside them: only sm_90 and later take
// minima of two 16-bit integers at a time.) Zeros collects which of a lane's elements are zero: bit
// run * 8 + j.
struct WholeWords {
  PLEAT_HD static uint32_t turn(uint32_t x) { return x << 1 | x >> 31; }
  PLEAT_HD static uint32_t turn_back(uint32_t r) { return r >> 1 | r << 31; }
  static constexpr unsigned kLowest = 0;
  PLEAT_HD static uint32_t with_below(uint32_t least, uint32_t r) {
    return lesser_word(least, r - 1);
  }
  PLEAT_HD static uint32_t with_word(uint32_t most, uint32_t r) { return greater_word(most, r); }
  PLEAT_HD static uint32_t add(uint32_t a, uint32_t b) { return a + b; }
  struct Zeros {
    uint32_t bits = 0;
    PLEAT_HD void add(unsigned number, uint32_t r) { bits |= (r == 0 ? 1u : 0u) << number; }
    PLEAT_HD uint32_t mask() const { return bits; }
  };
};
struct HalfWords {
  static constexpr uint32_t kTops = 0x8000'8000u;
  PLEAT_HD static uint32_t turn(uint32_t x) {
    return (x << 1 & 0xFFFE'FFFEu) | (x >> 15 & 0x0001'0001u);
  }
  PLEAT_HD static uint32_t turn_back(uint32_t r) {
    return (r >> 1 & 0x7FFF'7FFFu) | (r << 15 & kTops);
  }
  PLEAT_HD static uint32_t below(uint32_t r) { return ((r | kTops) - 0x0001'0001u) ^ (~r & kTops); }
  static constexpr unsigned kLowest = 16;
  PLEAT_HD static uint32_t with_below(uint32_t least, uint32_t r) {
    constexpr uint32_t kOne = 1u << kLowest;
    return lesser_word(lesser_word(least, r - kOne), (r << kLowest) - kOne);
  }
  PLEAT_HD static uint32_t with_word(uint32_t most, uint32_t r) {
    return greater_word(greater_word(most, r), r << kLowest);
  }
  PLEAT_HD static uint32_t add(uint32_t a, uint32_t b) {
    return ((a & ~kTops) + (b & ~kTops)) ^ ((a ^ b) & kTops);
  }
  struct Zeros {
    uint32_t halves[2] = {0, 0};  // two runs each: bits of even elements below, of odd ones above
    PLEAT_HD void add(unsigned number, uint32_t r) {
      halves[number / 8] |= (below(r) & ~r & kTops) >> (15 - number % 8 * 2);
    }
    PLEAT_HD static uint32_t in_order(uint32_t half) {
      return (half & 0x5555u) | (half >> 15 & 0xAAAAu);
    }
    PLEAT_HD uint32_t mask() const { return in_order(halves[0]) | in_order(halves[1]) << 16; }
  };
};
template <class T>
using Turned = std::conditional_t<Packed<T>::kPerRegister == 1, WholeWords, HalfWords>;

// Keeps elements [0, n) of a lane's run, and sets the others to 0.
template <class T>
PLEAT_HD inline void keep_first(uint32_t* words, unsigned n) {
  PLEAT_UNROLL
  for (unsigned r = 0; r < Lane<T>::kRegistersPerRun; ++r) {
    const unsigned first = r * Packed<T>::kPerRegister;
    if (first >= n)
      words[r] = 0;
    else if (Packed<T>::kPerRegister == 2 && first + 1 == n)
      words[r] &= 0xFFFFu;
  }
}
// How many of the first `count` elements of a frame lie in a lane's run.
template <class L>
PLEAT_HD inline unsigned elements_of_run(const L& lane, unsigned run, unsigned count) {
  const unsigned first = lane.element(run);
  return first >= count ? 0 : count - first < kRunLength ? count - first : kRunLength;
}

// ---- planes ----

// Byte `at` of each of a run's eight words: those of elements 0..3, then of 4..7.
template <class T>
PLEAT_HD inline RunCodes bytes_of_run(const uint32_t* words, unsigned at) {
  if constexpr (Packed<T>::kPerRegister == 2) {
    const unsigned selector = at == 0 ? 0x6420 : 0x7531;
    return {pick_bytes(words[0], words[1], selector), pick_bytes(words[2], words[3], selector)};
  } else {
    const unsigned pair = at | (at + 4) << 4;
    return {pick_bytes(pick_bytes(words[0], words[1], pair), pick_bytes(words[2], words[3], pair),
                       0x5410),
            pick_bytes(pick_bytes(words[4], words[5], pair), pick_bytes(words[6], words[7], pair),
                       0x5410)};
  }
}

// A plane of p bits begins where the planes of more bits end, and holds the bits above theirs; both
// follow from the higher bits of the width. The planes of 4, 2 and 1 bits come from one byte of the
// words.
PLEAT_HD constexpr unsigned above(unsigned width, unsigned p) { return width & ~(2 * p - 1); }

// Writes the differences of a run to its place in each plane of a frame of `runs` runs.
template <class T>
PLEAT_HD inline void store_run(const uint32_t* words, unsigned width, unsigned runs, unsigned run,
                               uint8_t* planes) {
  if constexpr (Packed<T>::kPerRegister == 1) {
    if (width == 32) {
      store16(planes + run * 32, words);
      store16(planes + run * 32 + 16, words + 4);
      return;
    }
    if ((width & 16) != 0) {
      uint32_t low[4];
      PLEAT_UNROLL
      for (unsigned r = 0; r < 4; ++r) low[r] = pick_bytes(words[2 * r], words[2 * r + 1], 0x5410);
      store16(planes + run * 16, low);
    }
  } else if ((width & 16) != 0) {
    store16(planes + run * 16, words);
  }
  const auto place = [&](unsigned p) { return planes + runs * above(width, p) + run * p; };
  if ((width & 8) != 0) {
    const RunCodes bytes = bytes_of_run<T>(words, above(width, 8) / 8);
    *reinterpret_cast<Stored64*>(place(8)) = uint64_t{bytes.second} << 32 | bytes.first;
  }
  if ((width & 7) == 0) return;
  const RunCodes bytes = bytes_of_run<T>(words, above(width, 4) / 8);
  if ((width & 4) != 0)
    *reinterpret_cast<Stored32*>(place(4)) =
        pick_bytes(squeeze_nibbles(bytes.first), squeeze_nibbles(bytes.second), 0x5410);
  if ((width & 2) != 0) {
    const unsigned shift = width & 4;
    *reinterpret_cast<Stored16*>(place(2)) =
        static_cast<uint16_t>(squeeze<2>(bytes.first >> shift & 0x0303'0303u) |
                              squeeze<2>(bytes.second >> shift & 0x0303'0303u) << 8);
  }
  if ((width & 1) != 0) {
    const unsigned shift = width & 6;
    *place(1) = static_cast<uint8_t>((squeeze<1>(bytes.first >> shift & 0x0101'0101u) & 0xF) |
                                     squeeze<1>(bytes.second >> shift & 0x0101'0101u) << 4);
  }
}
template <class T>
PLEAT_HD inline void load_run(uint32_t* words, unsigned width, unsigned runs, unsigned run,
                              const uint8_t* planes) {
  if constexpr (Packed<T>::kPerRegister == 1) {
    if (width == 32) {
      load16(planes + run * 32, words);
      load16(planes + run * 32 + 16, words + 4);
      return;
    }
  } else if (width == 16) {
    load16(planes + run * 16, words);
    return;
  }
  const auto place = [&](unsigned p) { return planes + runs * above(width, p) + run * p; };
  RunCodes eight{0, 0}, fewer{0, 0};  // bits of the plane of 8, and of the planes of fewer
  if ((width & 8) != 0) {
    const uint64_t bytes = *reinterpret_cast<const Stored64*>(place(8));
    eight = {static_cast<uint32_t>(bytes), static_cast<uint32_t>(bytes >> 32)};
  }
  if ((width & 4) != 0) {
    const uint32_t nibbles = *reinterpret_cast<const Stored32*>(place(4));
    fewer = {spread_nibbles(nibbles), spread_nibbles(nibbles >> 16)};
  }
  if ((width & 2) != 0) {
    const uint32_t pairs = *reinterpret_cast<const Stored16*>(place(2));
    fewer.first |= spread<2>(pairs & 0xFF) << (width & 4);
    fewer.second |= spread<2>(pairs >> 8) << (width & 4);
  }
  if ((width & 1) != 0) {
    const uint32_t bits = *place(1);
    fewer.first |= spread<1>(bits & 0xF) << (width & 6);
    fewer.second |= spread<1>(bits >> 4) << (width & 6);
  }
  if constexpr (Packed<T>::kPerRegister == 2) {
    const bool two = (width & 8) != 0;
    const RunCodes low = two ? eight : fewer;
    const RunCodes upper = two ? fewer : RunCodes{0, 0};
    words[0] = pick_bytes(low.first, upper.first, 0x5140);
    words[1] = pick_bytes(low.first, upper.first, 0x7362);
    words[2] = pick_bytes(low.second, upper.second, 0x5140);
    words[3] = pick_bytes(low.second, upper.second, 0x7362);
  } else {
    uint32_t low[4] = {0, 0, 0, 0};
    if ((width & 16) != 0) load16(planes + run * 16, low);
    PLEAT_UNROLL
    for (unsigned j = 0; j < kRunLength; ++j) {
      const auto byte = [&](const RunCodes& bytes) {
        return pick_bytes(j < 4 ? bytes.first : bytes.second, 0, 0x4440 | j % 4);
      };
      words[j] = (j % 2 == 0 ? low[j / 2] & 0xFFFFu : low[j / 2] >> 16) |
                 byte(eight) << above(width, 8) | byte(fewer) << above(width, 4);
    }
  }
}

}  // namespace
}  // namespace pleat::compress

// Packs the sides of floats, and restores elements of these sides. Each thread packs runs of eight
// neighbouring elements, whose codes are one or two whole bytes, and restores runs of 16 bytes, so
// threads do not interact and those of a warp write without gaps. The kernels and a test on the CPU
// run the same code, as with lane_core.h.
#pragma once

#include "compress/device/block_core.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kSideRun = 8;
template <class T>
inline constexpr unsigned kRestoredSides = 16 / sizeof(typename T::Word);  // a run on the way back

// Job::width of an encoder: the bits of a side, and the facts about the sides that job.bounds does
// not hold.
PLEAT_HD constexpr uint32_t side_width(const Sides& sides) {
  return (sides.kind == Sides::Kind::kThree ? 2u : 1u) | static_cast<uint32_t>(sides.kind) << 8 |
         (sides.nan_inside ? 1u : 0u) << 16;
}
PLEAT_HD inline Sides sides_of_job(const cuda::Job& job) {
  return {static_cast<Sides::Kind>(job.width >> 8 & 0xFF), (job.width >> 16 & 1) != 0,
          job.bounds[0], job.bounds[1]};
}

PLEAT_HD constexpr uint64_t side_bytes(uint64_t elements, unsigned width) {
  return (elements * width + 7) / 8;
}

template <class T>
PLEAT_HD inline void pack_side_run(const SideTest& test, const typename T::Word* source,
                                   uint64_t elements, uint64_t run, uint8_t* codes) {
  constexpr unsigned kEach = Packed<T>::kPerRegister;
  const uint64_t left = elements - run * kSideRun;
  uint32_t words[kSideRun / kEach];
  load_run<T, kSideRun>(source + run * kSideRun, left,
                        reinterpret_cast<uintptr_t>(source) % 16 == 0, words);
  const unsigned width = test.three ? 2 : 1;
  uint32_t packed = 0;
  PLEAT_UNROLL
  for (unsigned e = 0; e < kSideRun; ++e) {
    const uint32_t side = side_of(test, Packed<T>::value(words[e / kEach], e % kEach));
    packed |= (e < left ? side : 0) << (e * width);
  }
  uint8_t* const to = codes + run * width;
  to[0] = static_cast<uint8_t>(packed);
  // A last run may end before its second byte.
  if (width == 2 && left > 4) to[1] = static_cast<uint8_t>(packed >> 8);
}

// The sides of the elements of a run on the way back, as packed bits.
template <class T>
PLEAT_HD inline uint32_t side_codes(const cuda::Job& job, uint64_t run) {
  const uint8_t* const codes = static_cast<const uint8_t*>(job.source) + 64;
  const uint64_t first = run * kRestoredSides<T>, bit = first * job.width;
  uint32_t packed = codes[bit / 8] >> (bit % 8);
  if (kRestoredSides<T> * job.width > 8 && job.elements - first > 4)
    packed |= uint32_t{codes[bit / 8 + 1]} << 8;
  return packed;
}

// `packed`: side_codes() of the run. False if some code is no side.
template <class T>
PLEAT_HD inline bool unpack_side_run(const SideWords& words, bool three, uint32_t packed,
                                     uint64_t elements, uint64_t run, typename T::Word* target) {
  using Word = typename T::Word;
  constexpr unsigned kEach = Packed<T>::kPerRegister, kRun = kRestoredSides<T>;
  const uint64_t left = elements - run * kRun;
  const unsigned width = three ? 2 : 1;
  uint32_t value[kRun];
  bool good = true;
  PLEAT_UNROLL
  for (unsigned e = 0; e < kRun; ++e) {
    const unsigned side = packed >> (e * width) & (three ? 3u : 1u);
    value[e] = side == 0 ? words.value[0] : side == 1 ? words.value[1] : words.value[2];
    good &= side != 3 || e >= left;
  }
  Word* const to = target + run * kRun;
  if (left >= kRun && reinterpret_cast<uintptr_t>(target) % 16 == 0) {
    uint32_t out[4];
    PLEAT_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      out[w] = kEach == 1 ? value[w] : (value[w * kEach] & 0xFFFFu) | value[w * kEach + 1] << 16;
    store16(to, out);
    return good;
  }
  for (unsigned e = 0; e < kRun && e < left; ++e) to[e] = static_cast<Word>(value[e]);
  return good;
}

// Moves the elements of a run to the sides that the codes say. Nearly all are there. `packed`:
// side_codes() of the run. False if some code is no side.
template <class T>
PLEAT_HD inline bool move_side_run(const SideMoves& moves, uint32_t packed, uint64_t elements,
                                   uint64_t run, typename T::Word* target) {
  using Word = typename T::Word;
  constexpr unsigned kEach = Packed<T>::kPerRegister, kRun = kRestoredSides<T>;
  const uint64_t left = elements - run * kRun;
  const unsigned width = moves.test.three ? 2 : 1;
  Word* const at = target + run * kRun;
  uint32_t words[4];
  load_run<T, kRun>(at, left, reinterpret_cast<uintptr_t>(target) % 16 == 0, words);
  bool good = true;
  PLEAT_UNROLL
  for (unsigned e = 0; e < kRun; ++e) {
    const unsigned side = packed >> (e * width) & (width == 2 ? 3u : 1u);
    const Word word = static_cast<Word>(Packed<T>::pattern(words[e / kEach], e % kEach));
    const Word moved = moved_to_side<T>(moves, side, word);
    good &= side != 3 || e >= left;
    if (moved != word && e < left) at[e] = moved;
  }
  return good;
}

// The work of the last block of a job.
template <class T, class Block>
PLEAT_HD inline void finish_sides(Block& block, const cuda::Job& job) {
  Header header = packed_header(job, PayloadKind::kSides, T::kType);
  header.bits = static_cast<uint8_t>(job.width & 0xFF);
  header.payload_bytes = 64 + side_bytes(job.elements, header.bits);
  side_values<T>(sides_of_job(job)).words.write(&header);
  finish_packed(block, job, header, false);
}

// True if the payload is what the job expects, of `width` bits a side: the sizes agree, so no read
// lies outside the payload.
template <class T>
PLEAT_HD inline bool sides_fit(const Header& header, uint64_t elements, unsigned width,
                               uint64_t capacity) {
  const SideWords words = SideWords::of(header);
  unsigned wrong = header.magic ^ kMagic;
  wrong |= header.version ^ unsigned { kFormatVersion };
  wrong |= header.kind ^ static_cast<unsigned>(PayloadKind::kSides);
  wrong |= (header.type ^ T::kType) | (header.bits ^ width) | header.flags | header.reserved;
  wrong |= header.escapes | (width == 1 ? words.value[2] : 0);
  if (sizeof(typename T::Word) == 2)
    wrong |= (words.value[0] | words.value[1] | words.value[2] | words.first | words.last) >> 16;
  uint64_t wrong_sizes = header.third_value >> 32;
  wrong_sizes |= header.elements ^ elements;
  wrong_sizes |= header.payload_bytes ^ (64 + side_bytes(elements, width));
  return (wrong | (wrong_sizes != 0 ? 1u : 0u) | (width != 1 && width != 2 ? 1u : 0u) |
          (header.payload_bytes > capacity ? 1u : 0u)) == 0;
}
// The same of sides that stand beside values: two of them have one bound.
template <class T>
PLEAT_HD inline bool sides_fit_beside(const Header& header, uint64_t elements, unsigned width,
                                      uint64_t capacity) {
  const SideTest test = side_test<T>(SideWords::of(header), width == 2);
  return sides_fit<T>(header, elements, width, capacity) &&
         (width == 2 || !is_low_bound(test.first) || !is_high_bound(test.last));
}

}  // namespace
}  // namespace pleat::compress

// Packs and unpacks sides, 32 elements at a time. Included through kernels_simd.h. Anonymous: see
// kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/kernels.h"
#include "compress/planes_simd.h"

namespace pleat::compress {
namespace {

constexpr size_t kSideRun = 32;

// Bit i of `bits` becomes bit 2 i.
inline uint64_t spread_bits(uint32_t bits) {
  uint64_t v = bits;
  v = (v | v << 16) & 0x0000'FFFF'0000'FFFFull;
  v = (v | v << 8) & 0x00FF'00FF'00FF'00FFull;
  v = (v | v << 4) & 0x0F0F'0F0F'0F0F'0F0Full;
  v = (v | v << 2) & 0x3333'3333'3333'3333ull;
  return (v | v << 1) & 0x5555'5555'5555'5555ull;
}
// The way back; odd bits are dropped.
inline uint32_t gather_bits(uint64_t v) {
  v &= 0x5555'5555'5555'5555ull;
  v = (v | v >> 1) & 0x3333'3333'3333'3333ull;
  v = (v | v >> 2) & 0x0F0F'0F0F'0F0F'0F0Full;
  v = (v | v >> 4) & 0x00FF'00FF'00FF'00FFull;
  v = (v | v >> 8) & 0x0000'FFFF'0000'FFFFull;
  return static_cast<uint32_t>(v | v >> 16);
}

// Calls mask(v) for the vectors of a run and puts their bits together.
template <class T, class F>
inline uint32_t mask_of_run(const typename T::Word* words, F mask) {
  uint32_t bits = 0;
#pragma GCC unroll 4
  for (size_t i = 0; i < kSideRun; i += Simd::kLanes)
    bits |= static_cast<uint32_t>(mask(Simd::load(T{}, words + i))) << i;
  return bits;
}

template <class T>
void pack_sides(const void* source, size_t elements, const SideTest& test, uint8_t* codes) {
  const auto* const words = static_cast<const typename T::Word*>(source);
  const Simd::F first = Simd::splat(test.first), last = Simd::splat(test.last);
  size_t e = 0;
  // Of three sides, and with NaN inside, elements that compare false are inside.
  const auto below = [&](Simd::F v) { return Simd::below(v, first); };
  const auto above = [&](Simd::F v) { return Simd::above(v, last); };
  const auto within = [&](Simd::F v) { return Simd::within(v, first, last); };
  if (test.three) {
    for (; e + kSideRun <= elements; e += kSideRun) {
      Simd::prefetch(reinterpret_cast<const char*>(words + e) + kPrefetchBytes);
      const uint32_t beyond = mask_of_run<T>(words + e, above);
      const uint32_t middle = ~(beyond | mask_of_run<T>(words + e, below));
      const uint64_t packed = spread_bits(middle) | spread_bits(beyond) << 1;
      memcpy(codes + e / 4, &packed, sizeof packed);
    }
  } else if (test.nan_inside) {
    for (; e + kSideRun <= elements; e += kSideRun) {
      Simd::prefetch(reinterpret_cast<const char*>(words + e) + kPrefetchBytes);
      const uint32_t packed =
          ~(mask_of_run<T>(words + e, below) | mask_of_run<T>(words + e, above));
      memcpy(codes + e / 8, &packed, sizeof packed);
    }
  } else {
    for (; e + kSideRun <= elements; e += kSideRun) {
      Simd::prefetch(reinterpret_cast<const char*>(words + e) + kPrefetchBytes);
      const uint32_t packed = mask_of_run<T>(words + e, within);
      memcpy(codes + e / 8, &packed, sizeof packed);
    }
  }
  if (e < elements)
    kScalarKernels.pack_sides[T::kType](words + e, elements - e, test,
                                        codes + e / (test.three ? 4 : 8));
}

template <class T, bool kThree, bool kStream>
bool unpack_runs(const uint8_t* codes, size_t elements, const uint32_t* values,
                 typename T::Word* target) {
  using Word = typename T::Word;
  constexpr size_t kWords = Simd::kWordsPerVector<Word>;
  const I zero = Simd::splat_word(static_cast<Word>(values[0]));
  const I one = Simd::splat_word(static_cast<Word>(values[1]));
  const I two = Simd::splat_word(static_cast<Word>(values[kThree ? 2 : 0]));
  uint32_t wrong = 0;
  for (size_t e = 0; e < elements; e += kSideRun) {
    uint32_t first = 0, second = 0;
    if constexpr (kThree) {
      uint64_t packed;
      memcpy(&packed, codes + e / 4, sizeof packed);
      first = gather_bits(packed);
      second = gather_bits(packed >> 1);
      wrong |= first & second;
    } else {
      memcpy(&first, codes + e / 8, sizeof first);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < kSideRun; i += kWords) {
      I v = Simd::choose(Word{}, first >> i, zero, one);
      if constexpr (kThree) v = Simd::choose(Word{}, second >> i, v, two);
      Simd::write<kStream>(target + e + i, v);
    }
  }
  if constexpr (kStream) Simd::fence();
  return wrong == 0;
}

template <class T>
bool unpack_sides(const uint8_t* codes, size_t elements, bool three, const uint32_t* values,
                  void* target, bool stream) {
  auto* const words = static_cast<typename T::Word*>(target);
  const size_t whole = elements / kSideRun * kSideRun;
  const bool good = three ? (stream ? unpack_runs<T, true, true>(codes, whole, values, words)
                                    : unpack_runs<T, true, false>(codes, whole, values, words))
                          : (stream ? unpack_runs<T, false, true>(codes, whole, values, words)
                                    : unpack_runs<T, false, false>(codes, whole, values, words));
  return good && (whole == elements || kScalarKernels.unpack_sides[T::kType](
                                           codes + whole / (three ? 4 : 8), elements - whole, three,
                                           values, words + whole, stream));
}

template <class T>
bool move_to_sides(const uint8_t* codes, size_t elements, const SideMoves& moves, void* target) {
  using Word = typename T::Word;
  constexpr size_t kWords = Simd::kWordsPerVector<Word>;
  auto* const words = static_cast<Word*>(target);
  const SideTest& test = moves.test;
  const Simd::F first = Simd::splat(test.first), last = Simd::splat(test.last);
  const I to_first = Simd::splat_word(static_cast<Word>(moves.first));
  const I to_last = Simd::splat_word(static_cast<Word>(moves.last));
  const I to_below = Simd::splat_word(static_cast<Word>(moves.below));
  const I to_above = Simd::splat_word(static_cast<Word>(moves.above));
  const uint32_t below_moves = moves.has_below ? ~0u : 0, above_moves = moves.has_above ? ~0u : 0;
  uint32_t wrong = 0;
  size_t e = 0;
  for (; e + kSideRun <= elements; e += kSideRun) {
    const uint32_t low =
        mask_of_run<T>(words + e, [&](Simd::F v) { return Simd::below(v, first); });
    const uint32_t high =
        mask_of_run<T>(words + e, [&](Simd::F v) { return Simd::above(v, last); });
    const uint32_t inside =
        mask_of_run<T>(words + e, [&](Simd::F v) { return Simd::within(v, first, last); });
    uint32_t one = 0, two = 0, from_above = 0;  // elements of side 1 and 2; beyond two bounds
    if (test.three) {
      uint64_t packed;
      memcpy(&packed, codes + e / 4, sizeof packed);
      one = gather_bits(packed);
      two = gather_bits(packed >> 1);
      wrong |= one & two;
      from_above = high;
    } else {
      memcpy(&one, codes + e / 8, sizeof one);
    }
    const uint32_t zero = ~(one | two);
    const uint32_t raise = one & low, lower = one & high;
    const uint32_t sink = zero & (inside | from_above) & below_moves;
    const uint32_t lift = two & (inside | low) & above_moves;
    if ((raise | lower | sink | lift) == 0) continue;
#pragma GCC unroll 4
    for (size_t i = 0; i < kSideRun; i += kWords) {
      I v = Simd::load_bytes(words + e + i);
      v = Simd::choose(Word{}, raise >> i, v, to_first);
      v = Simd::choose(Word{}, lower >> i, v, to_last);
      v = Simd::choose(Word{}, sink >> i, v, to_below);
      v = Simd::choose(Word{}, lift >> i, v, to_above);
      Simd::store_bytes(words + e + i, v);
    }
  }
  return wrong == 0 &&
         (e == elements || kScalarKernels.move_to_sides[T::kType](codes + e / (test.three ? 4 : 8),
                                                                  elements - e, moves, words + e));
}

}  // namespace
}  // namespace pleat::compress

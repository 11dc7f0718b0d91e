// Packs and unpacks sides, one element after the other. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/kernels.h"
#include "compress/planes_scalar.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

template <class T>
void pack_sides(const void* source, size_t elements, const SideTest& test, uint8_t* codes) {
  const auto* const words = static_cast<const typename T::Word*>(source);
  const size_t width = test.three ? 2 : 1;
  memset(codes, 0, (elements * width + 7) / 8);
  for (size_t e = 0; e < elements; ++e)
    codes[e * width / 8] |=
        static_cast<uint8_t>(side_of(test, T::to_float(words[e])) << (e * width % 8));
}
template <class T>
bool unpack_sides(const uint8_t* codes, size_t elements, bool three, const uint32_t* values,
                  void* target, bool /*stream*/) {
  auto* const words = static_cast<typename T::Word*>(target);
  const unsigned width = three ? 2 : 1;
  for (size_t e = 0; e < elements; ++e) {
    const unsigned side = Planes::at(codes, width, e);
    if (side == 3) return false;
    words[e] = static_cast<typename T::Word>(values[side]);
  }
  return true;
}

template <class T>
bool move_to_sides(const uint8_t* codes, size_t elements, const SideMoves& moves, void* target) {
  using Word = typename T::Word;
  Word* const words = static_cast<Word*>(target);
  const unsigned width = moves.test.three ? 2 : 1;
  for (size_t e = 0; e < elements; ++e) {
    const unsigned side = Planes::at(codes, width, e);
    if (side == 3) return false;
    words[e] = moved_to_side<T>(moves, side, words[e]);
  }
  return true;
}

}  // namespace
}  // namespace pleat::compress

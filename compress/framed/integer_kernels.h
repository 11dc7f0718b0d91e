// Packs integers in plain loops that each instruction set's compiler flags vectorise. All
// arithmetic is modulo 2^64, so no difference can overflow. Anonymous, for the reason given in
// kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/kernels.h"

namespace pleat::compress {
namespace {

// A payload may lie anywhere in memory. (A template argument would lose an attribute of a typedef.)
template <class Word>
struct __attribute__((packed, may_alias)) Unaligned {
  Word value;
};

template <class Integer>
void integer_range(const void* source, size_t elements, int64_t* minimum, int64_t* maximum) {
  const Integer* const values = static_cast<const Integer*>(source);
  Integer low = values[0], high = values[0];
  for (size_t e = 0; e < elements; ++e) {
    low = values[e] < low ? values[e] : low;
    high = values[e] > high ? values[e] : high;
  }
  *minimum = low;
  *maximum = high;
}

template <class Integer, class Narrow>
void narrow(const Integer* source, size_t elements, int64_t minimum, Unaligned<Narrow>* codes) {
  const auto base = static_cast<uint64_t>(minimum);
  for (size_t e = 0; e < elements; ++e)
    codes[e].value = static_cast<Narrow>(static_cast<uint64_t>(source[e]) - base);
}
template <class Integer, class Narrow>
void widen(const Unaligned<Narrow>* codes, size_t elements, int64_t minimum, Integer* target) {
  const auto base = static_cast<uint64_t>(minimum);
  for (size_t e = 0; e < elements; ++e)
    target[e] = static_cast<Integer>(static_cast<uint64_t>(codes[e].value) + base);
}

template <class Integer, unsigned kWidth>
void pack_bits(const Integer* source, size_t elements, int64_t minimum, uint8_t* codes) {
  constexpr unsigned kPerByte = 8 / kWidth;
  constexpr size_t kTile = 512;
  uint8_t bytes[kTile];
  while (elements != 0) {
    const size_t count = elements < kTile ? elements : kTile;
    narrow(source, count, minimum, reinterpret_cast<Unaligned<uint8_t>*>(bytes));
    for (size_t e = count; e % kPerByte != 0; ++e) bytes[e] = 0;
    const size_t packed = (count + kPerByte - 1) / kPerByte;
    for (size_t b = 0; b < packed; ++b) {
      unsigned byte = 0;
      for (unsigned i = 0; i < kPerByte; ++i)
        byte |= unsigned{bytes[b * kPerByte + i]} << (i * kWidth);
      codes[b] = static_cast<uint8_t>(byte);
    }
    source += count;
    elements -= count;
    codes += packed;
  }
}
template <class Integer, unsigned kWidth>
void unpack_bits(const uint8_t* codes, size_t elements, int64_t minimum, Integer* target) {
  constexpr unsigned kPerByte = 8 / kWidth;
  constexpr size_t kTile = 512;
  uint8_t bytes[kTile];
  while (elements != 0) {
    const size_t count = elements < kTile ? elements : kTile;
    const size_t packed = (count + kPerByte - 1) / kPerByte;
    for (size_t b = 0; b < packed; ++b)
      for (unsigned i = 0; i < kPerByte; ++i)
        bytes[b * kPerByte + i] =
            static_cast<uint8_t>((codes[b] >> (i * kWidth)) & ((1u << kWidth) - 1));
    widen(reinterpret_cast<const Unaligned<uint8_t>*>(bytes), count, minimum, target);
    target += count;
    elements -= count;
    codes += packed;
  }
}

template <class Integer>
void pack_integers(const void* source, size_t elements, int64_t minimum, unsigned width,
                   uint8_t* codes) {
  const Integer* const values = static_cast<const Integer*>(source);
  switch (width) {
    case 1:
      return pack_bits<Integer, 1>(values, elements, minimum, codes);
    case 2:
      return pack_bits<Integer, 2>(values, elements, minimum, codes);
    case 4:
      return pack_bits<Integer, 4>(values, elements, minimum, codes);
    case 8:
      return narrow(values, elements, minimum, reinterpret_cast<Unaligned<uint8_t>*>(codes));
    case 16:
      return narrow(values, elements, minimum, reinterpret_cast<Unaligned<uint16_t>*>(codes));
    default:
      return narrow(values, elements, minimum, reinterpret_cast<Unaligned<uint32_t>*>(codes));
  }
}
template <class Integer>
void unpack_integers(const uint8_t* codes, size_t elements, int64_t minimum, unsigned width,
                     void* target, bool /*stream*/) {
  Integer* const values = static_cast<Integer*>(target);
  switch (width) {
    case 1:
      return unpack_bits<Integer, 1>(codes, elements, minimum, values);
    case 2:
      return unpack_bits<Integer, 2>(codes, elements, minimum, values);
    case 4:
      return unpack_bits<Integer, 4>(codes, elements, minimum, values);
    case 8:
      return widen(reinterpret_cast<const Unaligned<uint8_t>*>(codes), elements, minimum, values);
    case 16:
      return widen(reinterpret_cast<const Unaligned<uint16_t>*>(codes), elements, minimum, values);
    default:
      return widen(reinterpret_cast<const Unaligned<uint32_t>*>(codes), elements, minimum, values);
  }
}

}  // namespace
}  // namespace pleat::compress

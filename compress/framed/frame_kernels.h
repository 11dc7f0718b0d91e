// Frames of reference: a short run of words is stored as differences from its minimum, in as many
// bits as the largest difference needs. Integers come in frames of 1024. Floats come in frames of
// 256; their sign is rotated to the lowest bit so that near exponents give near numbers, and zeros
// may be left to a bitmap. Plain loops that each instruction set's compiler flags vectorise;
// integer instructions only. Anonymous, for the reason given in kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/framed/frame_entry.h"
#include "compress/framed/integer_kernels.h"

namespace pleat::compress {
namespace {

inline unsigned bit_length(uint64_t value) {
  return value == 0 ? 0 : 64 - static_cast<unsigned>(__builtin_clzll(value));
}

// ---- integers ----

template <class Integer, class Word>
void measure_integers(const void* source, size_t elements, void* entries) {
  for (size_t from = 0; from < elements; from += kIntegerFrame) {
    const size_t count = elements - from < kIntegerFrame ? elements - from : kIntegerFrame;
    int64_t low = 0, high = 0;
    integer_range<Integer>(static_cast<const Integer*>(source) + from, count, &low, &high);
    const unsigned needed = bit_length(static_cast<uint64_t>(high) - static_cast<uint64_t>(low));
    unsigned width = needed == 0 ? 0 : 1;
    while (width < needed) width *= 2;
    FrameEntry<Word> entry{};
    entry.base = width == 8 * sizeof(Word) ? 0 : static_cast<Word>(low);
    entry.width = static_cast<uint8_t>(width);
    store_entry(entries, from / kIntegerFrame, entry);
  }
}

template <class Integer, class Word>
void pack_integer_frames(const void* source, size_t elements, const void* entries, uint8_t* codes) {
  for (size_t from = 0; from < elements; from += kIntegerFrame) {
    const size_t count = elements - from < kIntegerFrame ? elements - from : kIntegerFrame;
    const Integer* const values = static_cast<const Integer*>(source) + from;
    const auto entry = load_entry<Word>(entries, from / kIntegerFrame);
    const size_t bytes = frame_codes(count, entry.width);
    const size_t used = (count * entry.width + 7) / 8;
    if (entry.width == 8 * sizeof(Word))
      memcpy(codes, values, used);
    else if (entry.width != 0)
      pack_integers<Integer>(values, count, static_cast<Integer>(entry.base), entry.width, codes);
    memset(codes + used, 0, bytes - used);
    codes += bytes;
  }
}

template <class Integer, class Word>
void unpack_integer_frames(const uint8_t* codes, size_t elements, const void* entries,
                           void* target) {
  for (size_t from = 0; from < elements; from += kIntegerFrame) {
    const size_t count = elements - from < kIntegerFrame ? elements - from : kIntegerFrame;
    Integer* const values = static_cast<Integer*>(target) + from;
    const auto entry = load_entry<Word>(entries, from / kIntegerFrame);
    const auto base = static_cast<Integer>(entry.base);
    if (entry.width == 8 * sizeof(Word))
      memcpy(values, codes, count * sizeof(Word));
    else if (entry.width != 0)
      unpack_integers<Integer>(codes, count, base, entry.width, values, false);
    else
      for (size_t e = 0; e < count; ++e) values[e] = base;
    codes += frame_codes(count, entry.width);
  }
}

// ---- floats, as words ----

template <class Word>
constexpr unsigned kWordBits = 8 * sizeof(Word);

template <class Word>
inline Word sign_to_lowest(Word word) {
  return static_cast<Word>(word << 1 | word >> (kWordBits<Word> - 1));
}
template <class Word>
inline Word sign_to_highest(Word word) {
  return static_cast<Word>(word >> 1 | word << (kWordBits<Word> - 1));
}

template <class Word>
void measure_float_frame(const Word* words, size_t count, FrameEntry<Word>* entry) {
  Word below_others = static_cast<Word>(~Word{0}), high = 0;
  Word zeros = 0;  // as wide as the rest, for the vectoriser
  for (size_t e = 0; e < count; ++e) {
    const Word word = sign_to_lowest(words[e]);
    const auto below = static_cast<Word>(word - 1);  // the largest number where `word` is zero
    below_others = below < below_others ? below : below_others;
    high = word > high ? word : high;
    zeros = static_cast<Word>(zeros + static_cast<Word>(word == 0));
  }
  const auto low_of_others = static_cast<Word>(below_others + 1);
  const Word low = zeros != 0 ? Word{0} : low_of_others;
  *entry = {};
  const unsigned width = bit_length(static_cast<Word>(high - low));
  entry->width = static_cast<uint8_t>(width);
  entry->base = width == kWordBits<Word> ? 0 : low;
  if (zeros == 0 || zeros == count) return;
  const unsigned others = bit_length(static_cast<Word>(high - low_of_others));
  if (kFrameBitmap + frame_codes(count - zeros, others) >= frame_codes(count, width)) return;
  entry->base = others == kWordBits<Word> ? 0 : low_of_others;
  entry->width = static_cast<uint8_t>(others | kFrameWithoutZeros);
  entry->others = static_cast<uint8_t>(count - zeros);
}

template <class Word>
void measure_floats(const void* source, size_t elements, void* entries) {
  for (size_t from = 0; from < elements; from += kFloatFrame) {
    const size_t count = elements - from < kFloatFrame ? elements - from : kFloatFrame;
    FrameEntry<Word> entry;
    measure_float_frame(static_cast<const Word*>(source) + from, count, &entry);
    store_entry(entries, from / kFloatFrame, entry);
  }
}

constexpr size_t whole_chunks(size_t count) { return (count + 63) / 64 * 64; }

// Stores differences in planes of 16, 8, 4, 2 and 1 bits. Planes::pack and unpack take bytes below
// 2^bits in element order, 64 at a time. `differences` holds whole chunks; the first `count`,
// rounded up to 8, are stored.
template <class Planes, class Word>
void pack_planes(const Word* differences, size_t count, unsigned width, uint8_t* codes) {
  const size_t stored = (count + 7) / 8 * 8, chunks = whole_chunks(count);
  uint8_t bytes[kFloatFrame], plane[kFloatFrame];
  unsigned shift = 0;
  if ((width & 16) != 0) {
    for (size_t e = 0; e < stored; ++e) {
      const auto low = static_cast<uint16_t>(differences[e]);
      memcpy(codes + 2 * e, &low, 2);
    }
    codes += 2 * stored;
    shift = 16;
  }
  for (unsigned bits = 8; bits != 0; bits /= 2) {
    if ((width & bits) == 0) continue;
    const auto mask = static_cast<uint8_t>((1u << bits) - 1);
    for (size_t e = 0; e < chunks; ++e)
      bytes[e] = static_cast<uint8_t>(differences[e] >> shift) & mask;
    if (stored == chunks) {
      Planes::pack(bits, bytes, chunks, codes);
    } else {
      Planes::pack(bits, bytes, chunks, plane);
      memcpy(codes, plane, stored * bits / 8);
    }
    codes += stored * bits / 8;
    shift += bits;
  }
}
template <class Planes, class Word>
void unpack_planes(const uint8_t* codes, size_t count, unsigned width, Word* differences) {
  const size_t stored = (count + 7) / 8 * 8, chunks = whole_chunks(count);
  uint8_t bytes[kFloatFrame], plane[kFloatFrame] = {};
  unsigned shift = 0;
  if ((width & 16) != 0) {
    for (size_t e = 0; e < stored; ++e) {
      uint16_t low;
      memcpy(&low, codes + 2 * e, 2);
      differences[e] = low;
    }
    for (size_t e = stored; e < chunks; ++e) differences[e] = 0;
    codes += 2 * stored;
    shift = 16;
  } else {
    for (size_t e = 0; e < chunks; ++e) differences[e] = 0;
  }
  for (unsigned bits = 8; bits != 0; bits /= 2) {
    if ((width & bits) == 0) continue;
    if (stored == chunks) {
      Planes::unpack(bits, codes, chunks, bytes);
    } else {
      memcpy(plane, codes, stored * bits / 8);
      Planes::unpack(bits, plane, chunks, bytes);
    }
    for (size_t e = 0; e < chunks; ++e)
      differences[e] = static_cast<Word>(differences[e] | static_cast<Word>(bytes[e]) << shift);
    codes += stored * bits / 8;
    shift += bits;
  }
}

template <class Planes, class Word>
void pack_float_frames(const void* source, size_t elements, const void* entries, uint8_t* codes) {
  for (size_t from = 0; from < elements; from += kFloatFrame) {
    const size_t count = elements - from < kFloatFrame ? elements - from : kFloatFrame;
    const Word* const words = static_cast<const Word*>(source) + from;
    const auto entry = load_entry<Word>(entries, from / kFloatFrame);
    const unsigned width = entry.width & ~kFrameWithoutZeros;
    Word differences[kFloatFrame + 1];
    size_t kept = count;
    if ((entry.width & kFrameWithoutZeros) != 0) {
      uint8_t bitmap[kFloatFrame] = {};
      kept = 0;
      for (size_t e = 0; e < count; ++e) {
        differences[kept] = static_cast<Word>(sign_to_lowest(words[e]) - entry.base);
        bitmap[e] = words[e] != 0 ? 1 : 0;
        kept += bitmap[e];
      }
      Planes::pack(1, bitmap, kFloatFrame, codes);
      codes += kFrameBitmap;
    } else {
      for (size_t e = 0; e < count; ++e)
        differences[e] = static_cast<Word>(sign_to_lowest(words[e]) - entry.base);
    }
    const size_t bytes = frame_codes(kept, width);
    for (size_t e = kept; e < whole_chunks(kept); ++e) differences[e] = 0;
    if (width == kWordBits<Word>)
      memcpy(codes, differences, bytes);
    else
      pack_planes<Planes>(differences, kept, width, codes);
    codes += bytes;
  }
}

template <class Planes, class Word>
void unpack_float_frames(const uint8_t* codes, size_t elements, const void* entries, void* target) {
  for (size_t from = 0; from < elements; from += kFloatFrame) {
    const size_t count = elements - from < kFloatFrame ? elements - from : kFloatFrame;
    Word* const words = static_cast<Word*>(target) + from;
    const auto entry = load_entry<Word>(entries, from / kFloatFrame);
    const unsigned width = entry.width & ~kFrameWithoutZeros;
    const bool without_zeros = (entry.width & kFrameWithoutZeros) != 0;
    const size_t kept = without_zeros ? entry.others : count;
    const size_t bytes = frame_codes(kept, width);
    Word differences[kFloatFrame + 1];
    const uint8_t* const planes = without_zeros ? codes + kFrameBitmap : codes;
    if (width == kWordBits<Word>)
      memcpy(differences, planes, bytes);
    else
      unpack_planes<Planes>(planes, kept, width, differences);
    if (without_zeros) {
      uint8_t bitmap[kFloatFrame];
      Planes::unpack(1, codes, kFloatFrame, bitmap);
      // A damaged bitmap may have more bits than there are words.
      for (size_t e = kept; e < kFloatFrame + 1; ++e) differences[e] = 0;
      size_t next = 0;
      for (size_t e = 0; e < count; ++e) {
        const Word word = sign_to_highest(static_cast<Word>(differences[next] + entry.base));
        words[e] = bitmap[e] != 0 ? word : Word{0};
        next += bitmap[e];
      }
    } else {
      for (size_t e = 0; e < count; ++e)
        words[e] = sign_to_highest(static_cast<Word>(differences[e] + entry.base));
    }
    codes = planes + bytes;
  }
}

}  // namespace
}  // namespace pleat::compress

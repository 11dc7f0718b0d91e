// Booleans to bits and integers to the narrowest width, by threads that each take runs of
// neighbouring elements whose codes are whole bytes. No tile is needed: threads do not meet. As in
// group_core.h, the kernels and a test on the CPU run the same code.
//
// A device cannot choose the width from the data without the host waiting for it. So minimum and
// width are predicted (from the last step, or from what the numbers index), every element is
// checked, and on a miss the verdict says so and the caller keeps the source.
#pragma once

#include "compress/cuda/group_core.h"
#include "compress/cuda/jobs.h"
#include "compress/format.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kBooleanRun = 32;  // elements: 4 bytes of bits
inline constexpr unsigned kIntegerRun = 8;   // elements: `width` bytes

// Bytes that `elements` take at `width` bits.
PLEAT_HD constexpr uint64_t packed_size(uint64_t elements, unsigned width) {
  return elements / 8 * width + (elements % 8 * width + 7) / 8;
}

// Run number `run` of a span of bytes. False: not all were 0 or 1.
PLEAT_HD inline bool pack_boolean_run(const uint8_t* source, uint64_t elements, uint64_t run,
                                      uint8_t* bits) {
  const uint8_t* const from = source + run * kBooleanRun;
  const uint64_t left = elements - run * kBooleanRun;
  uint32_t words[8];
  if (left >= kBooleanRun && reinterpret_cast<uintptr_t>(source) % 16 == 0) {
    load16(from, words);
    load16(from + 16, words + 4);
  } else {
    PLEAT_UNROLL
    for (unsigned w = 0; w < 8; ++w) {
      words[w] = 0;
      for (unsigned b = 0; b < 4; ++b)
        words[w] |= 4 * w + b < left ? uint32_t{from[4 * w + b]} << (8 * b) : 0;
    }
  }
  uint32_t packed = 0, seen = 0;
  PLEAT_UNROLL
  for (unsigned w = 0; w < 8; ++w) {
    seen |= words[w];
    packed |= (squeeze<1>(words[w] & 0x0101'0101u) & 0xF) << (4 * w);
  }
  uint8_t* const to = bits + run * (kBooleanRun / 8);
  if (left >= kBooleanRun) {
    *reinterpret_cast<Stored32*>(to) = packed;
  } else {
    for (unsigned b = 0; b < (left + 7) / 8; ++b) to[b] = static_cast<uint8_t>(packed >> (8 * b));
  }
  return (seen & ~0x0101'0101u) == 0;
}

PLEAT_HD inline void unpack_boolean_run(const uint8_t* bits, uint64_t elements, uint64_t run,
                                        uint8_t* target) {
  const uint8_t* const from = bits + run * (kBooleanRun / 8);
  uint8_t* const to = target + run * kBooleanRun;
  const uint64_t left = elements - run * kBooleanRun;
  if (left >= kBooleanRun && reinterpret_cast<uintptr_t>(target) % 16 == 0) {
    const uint32_t packed = *reinterpret_cast<const Stored32*>(from);
    uint32_t words[8];
    PLEAT_UNROLL
    for (unsigned w = 0; w < 8; ++w) words[w] = spread<1>(packed >> (4 * w) & 0xF);
    store16(to, words);
    store16(to + 16, words + 4);
    return;
  }
  for (unsigned e = 0; e < kBooleanRun && e < left; ++e) to[e] = from[e / 8] >> (e % 8) & 1;
}

// Eight integers, sign-extended; those beyond the span's end are `minimum`. Payload and span need
// only the alignment of their elements.
template <class Integer>
PLEAT_HD inline void load_integers(const Integer* from, uint64_t left, bool aligned,
                                   int64_t minimum, int64_t* values) {
  if (left >= kIntegerRun && aligned) {
    uint32_t words[kIntegerRun * sizeof(Integer) / 4];
    PLEAT_UNROLL
    for (unsigned w = 0; w < sizeof words / 4; w += 4)
      load16(reinterpret_cast<const uint8_t*>(from) + 4 * w, words + w);
    PLEAT_UNROLL
    for (unsigned j = 0; j < kIntegerRun; ++j) {
      if constexpr (sizeof(Integer) == 8)
        values[j] = static_cast<int64_t>(uint64_t{words[2 * j + 1]} << 32 | words[2 * j]);
      else
        values[j] = static_cast<int32_t>(words[j]);
    }
    return;
  }
  PLEAT_UNROLL
  for (unsigned j = 0; j < kIntegerRun; ++j) values[j] = j < left ? int64_t{from[j]} : minimum;
}

// False: some element is not in [minimum, minimum + 2^width).
template <class Integer, unsigned kWidth>
PLEAT_HD inline bool pack_integer_run(const Integer* source, uint64_t elements, uint64_t run,
                                      int64_t minimum, uint8_t* codes) {
  const uint64_t left = elements - run * kIntegerRun;
  int64_t values[kIntegerRun];
  load_integers(source + run * kIntegerRun, left, reinterpret_cast<uintptr_t>(source) % 16 == 0,
                minimum, values);
  constexpr unsigned kWords = kWidth < 4 ? 1 : kWidth / 4;
  uint32_t words[kWords] = {};
  uint64_t beyond = 0;
  PLEAT_UNROLL
  for (unsigned j = 0; j < kIntegerRun; ++j) {
    const uint64_t code = static_cast<uint64_t>(values[j]) - static_cast<uint64_t>(minimum);
    beyond |= code >> kWidth;
    words[j * kWidth / 32] |= static_cast<uint32_t>(code) << (j * kWidth % 32);
  }
  uint8_t* const to = codes + run * kWidth;
  if (left >= kIntegerRun) {
    if constexpr (kWidth == 1) {
      *to = static_cast<uint8_t>(words[0]);
    } else if constexpr (kWidth == 2) {
      *reinterpret_cast<Stored16*>(to) = static_cast<uint16_t>(words[0]);
    } else if constexpr (kWidth < 16) {
      PLEAT_UNROLL
      for (unsigned w = 0; w < kWords; ++w) reinterpret_cast<Stored32*>(to)[w] = words[w];
    } else {
      PLEAT_UNROLL
      for (unsigned w = 0; w < kWords; w += 4) store16(to + 4 * w, words + w);
    }
  } else {
    const unsigned bytes = static_cast<unsigned>(packed_size(left, kWidth));
    PLEAT_UNROLL
    for (unsigned b = 0; b < kWidth; ++b)
      if (b < bytes) to[b] = static_cast<uint8_t>(words[b / 4] >> (8 * (b % 4)));
  }
  return beyond == 0;
}

template <class Integer, unsigned kWidth>
PLEAT_HD inline void unpack_integer_run(const uint8_t* codes, uint64_t elements, uint64_t run,
                                        int64_t minimum, Integer* target) {
  const uint8_t* const from = codes + run * kWidth;
  const uint64_t left = elements - run * kIntegerRun;
  constexpr unsigned kWords = kWidth < 4 ? 1 : kWidth / 4;
  uint32_t words[kWords] = {};
  const unsigned bytes =
      left >= kIntegerRun ? kWidth : static_cast<unsigned>(packed_size(left, kWidth));
  if constexpr (kWidth >= 16) {
    if (bytes == kWidth) {
      PLEAT_UNROLL
      for (unsigned w = 0; w < kWords; w += 4) load16(from + 4 * w, words + w);
    }
  }
  if (kWidth < 16 || bytes != kWidth) {
    PLEAT_UNROLL
    for (unsigned b = 0; b < kWidth; ++b)
      if (b < bytes) words[b / 4] |= uint32_t{from[b]} << (8 * (b % 4));
  }
  constexpr uint32_t kMask = kWidth == 32 ? ~0u : (1u << (kWidth % 32)) - 1;
  PLEAT_UNROLL
  for (unsigned j = 0; j < kIntegerRun; ++j) {
    const uint32_t code = words[j * kWidth / 32] >> (j * kWidth % 32) & kMask;
    if (j < left)
      target[run * kIntegerRun + j] = static_cast<Integer>(static_cast<uint64_t>(minimum) + code);
  }
}

// The width as a constant: f.template operator()<kWidth>(). False: the format has no such width.
template <class F>
PLEAT_HD inline bool with_width(unsigned width, F f) {
  switch (width) {
    case 1:
      f.template operator()<1>();
      return true;
    case 2:
      f.template operator()<2>();
      return true;
    case 4:
      f.template operator()<4>();
      return true;
    case 8:
      f.template operator()<8>();
      return true;
    case 16:
      f.template operator()<16>();
      return true;
    case 32:
      f.template operator()<32>();
      return true;
    default:
      return false;
  }
}

// What the last block does. `type` as ElementType has it.
template <class Block>
PLEAT_HD inline void finish_packed(Block& block, const cuda::Job& job, PayloadKind kind,
                                   uint8_t type, bool missed) {
  block.once([&] {
    Header header;
    header.kind = static_cast<uint8_t>(kind);
    header.type = type;
    header.elements = job.elements;
    header.nonce = job.nonce;
    if (kind == PayloadKind::kInteger) {
      header.width = static_cast<uint8_t>(job.width);
      header.value = static_cast<uint64_t>(job.minimum);
    }
    header.payload_bytes =
        64 + packed_size(job.elements, kind == PayloadKind::kInteger ? job.width : 1);
    if (missed) header.magic = 0;
    *static_cast<Header*>(job.target) = header;
    job.verdict->escapes = 0;
    job.verdict->payload_bytes = missed ? 0 : header.payload_bytes;
  });
  block.publish(job.verdict, missed ? cuda::Outcome::kKeepRaw : cuda::Outcome::kDone);
}

PLEAT_HD inline bool packed_payload_fits(const Header& header, uint64_t elements, PayloadKind kind,
                                         uint8_t type) {
  const bool integer = kind == PayloadKind::kInteger;
  unsigned wrong = header.magic ^ kMagic;
  wrong |= header.version ^ unsigned { kFormatVersion };
  wrong |= header.kind ^ static_cast<unsigned>(kind);
  wrong |= static_cast<unsigned>(header.type ^ type) | header.bits | header.flags | header.reserved;
  uint64_t wrong_sizes = header.reserved_tail;
  wrong_sizes |= header.elements ^ elements;
  wrong_sizes |= header.payload_bytes ^ (64 + packed_size(elements, integer ? header.width : 1));
  return (wrong | (wrong_sizes != 0 ? 1u : 0u)) == 0;
}

}  // namespace
}  // namespace pleat::compress

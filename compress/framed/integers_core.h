// Packs integers to a narrow width. Each thread takes runs of neighbouring elements whose codes are
// whole bytes, so threads do not interact and no tile is needed. The kernels and a test on the CPU
// run the same code, as with lane_core.h.
//
// A device cannot choose the width from the data without the host waiting for it. So minimum and
// width are predicted (from the last step, or from what the numbers index), and every element is
// checked. On a miss the verdict says so and says what would have sufficed, and the caller keeps
// the source.
#pragma once

#include "compress/device/block_core.h"
#include "compress/framed/frame_entry.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kIntegerRun = 8;  // elements: `width` bytes
// A run of integers on the way back: pairs, so that the threads of a warp write without gaps.
inline constexpr unsigned kRestoredIntegers = 2;

// FramedLayout (framed.h) for device code; tests hold the two together.
template <class Word, unsigned kFrame>
struct FrameTable {
  using Entry = FrameEntry<Word>;
  uint64_t frames;
  uint64_t entries_end;
  uint64_t codes_offset;

  PLEAT_HD explicit FrameTable(uint64_t elements)
      : frames((elements + (kFrame - 1)) / kFrame),
        entries_end(64 + frames * sizeof(Entry)),
        codes_offset(round_up_64(entries_end)) {}
};

// Integers: all frames have the same width, so codes lie as in a flat array.
template <class Integer>
struct UniformFrames : FrameTable<std::make_unsigned_t<Integer>, kIntegerFrame> {
  using FrameTable<std::make_unsigned_t<Integer>, kIntegerFrame>::FrameTable;
  PLEAT_HD static uint64_t code_bytes(uint64_t elements, unsigned width) {
    return (elements + 7) / 8 * width;
  }
};

// Loads eight integers, sign-extended; those beyond the end of the span are `minimum`.
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

// Returns 0 if the form holds all elements of the run, else the bits that the worst one needs: of
// its distance above `minimum`; 64 if it is below.
template <class Integer, unsigned kWidth>
PLEAT_HD inline unsigned pack_integer_run(const Integer* source, uint64_t elements, uint64_t run,
                                          int64_t minimum, uint8_t* codes) {
  const uint64_t left = elements - run * kIntegerRun;
  int64_t values[kIntegerRun];
  load_integers(source + run * kIntegerRun, left, reinterpret_cast<uintptr_t>(source) % 16 == 0,
                minimum, values);
  constexpr unsigned kWords = kWidth < 4 ? 1 : kWidth / 4;
  uint32_t words[kWords] = {};
  uint64_t all = 0;
  PLEAT_UNROLL
  for (unsigned j = 0; j < kIntegerRun; ++j) {
    const uint64_t code = static_cast<uint64_t>(values[j]) - static_cast<uint64_t>(minimum);
    all |= code;
    words[j * kWidth / 32] |= static_cast<uint32_t>(code) << (j * kWidth % 32);
  }
  uint8_t* const to = codes + run * kWidth;
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
  return all >> kWidth == 0 ? 0 : bits_needed(all);
}

// Calls f.template operator()<kWidth>() for the width. False if the format has no such width.
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

// `needed`: the largest value that a run returned.
template <class Integer, class Block>
PLEAT_HD inline void finish_integers(Block& block, const cuda::Job& job, unsigned needed) {
  using Frames = UniformFrames<Integer>;
  using Entry = typename Frames::Entry;
  const Frames layout(job.elements);
  uint8_t* const payload = static_cast<uint8_t*>(job.target);
  block.each(layout.frames, [&](uint64_t frame) {
    Entry entry{};
    entry.base = static_cast<decltype(entry.base)>(job.minimum);
    entry.width = static_cast<uint8_t>(job.width);
    reinterpret_cast<Entry*>(payload + 64)[frame] = entry;
  });
  block.each(layout.codes_offset - layout.entries_end,
             [&](uint64_t i) { payload[layout.entries_end + i] = 0; });
  Header header = packed_header(job, PayloadKind::kFramed, sizeof(Integer) == 8 ? 4 : 5);
  header.code_bytes = Frames::code_bytes(job.elements, job.width);
  header.payload_bytes = layout.codes_offset + header.code_bytes;
  unsigned width = 1;
  while (width < needed) width *= 2;
  finish_packed(block, job, header, needed != 0,
                width > 32 ? 0 : layout.codes_offset + Frames::code_bytes(job.elements, width));
}

template <class Integer>
PLEAT_HD inline bool integers_fit(const Header& header, uint64_t elements, unsigned width) {
  const UniformFrames<Integer> layout(elements);
  const uint64_t codes = layout.code_bytes(elements, width);
  const bool is_width = width != 0 && width <= 32 && (width & (width - 1)) == 0;
  return is_width && header_fits(header, elements, PayloadKind::kFramed,
                                 sizeof(Integer) == 8 ? 4 : 5, layout.codes_offset + codes, codes);
}

// Packs or unpacks one run of a job.
template <class Integer>
PLEAT_HD inline unsigned encode_integer_run(const cuda::Job& job, uint64_t run) {
  const UniformFrames<Integer> layout(job.elements);
  unsigned needed = 64;
  with_width(job.width, [&]<unsigned kWidth>() {
    needed = pack_integer_run<Integer, kWidth>(
        static_cast<const Integer*>(job.source), job.elements, run, job.minimum,
        static_cast<uint8_t*>(job.target) + layout.codes_offset);
  });
  return needed;
}
// The codes of a run on the way back. They are padded to whole encoded runs.
template <class Integer>
PLEAT_HD inline uint64_t integer_codes(const cuda::Job& job, uint64_t run) {
  const UniformFrames<Integer> layout(job.elements);
  const uint64_t bit = run * kRestoredIntegers * job.width;
  const uint8_t* const from =
      static_cast<const uint8_t*>(job.source) + layout.codes_offset + bit / 8;
  const auto* const words = reinterpret_cast<const Stored32*>(from);
  if (job.width == 32) return words[0] | uint64_t{words[1]} << 32;
  if (job.width == 16) return words[0];
  if (job.width == 8) return *reinterpret_cast<const Stored16*>(from);
  return *from >> (bit % 8);
}
// `packed`: integer_codes() of the run. False if its frame has another width.
template <class Integer>
PLEAT_HD inline bool decode_integer_run(const cuda::Job& job, uint64_t run, uint64_t packed) {
  using Frames = UniformFrames<Integer>;
  const unsigned width = job.width;
  const auto& entry = reinterpret_cast<const typename Frames::Entry*>(
      static_cast<const uint8_t*>(job.source) + 64)[run / (kIntegerFrame / kRestoredIntegers)];
  if (entry.width != width) return false;
  const uint64_t mask = (uint64_t{1} << width) - 1, base = entry.base;
  const uint64_t first = base + (packed & mask), second = base + (packed >> width & mask);
  Integer* const to = static_cast<Integer*>(job.target) + run * kRestoredIntegers;
  const bool both = job.elements - run * kRestoredIntegers >= kRestoredIntegers;
  if constexpr (sizeof(Integer) == 8) {
    if (both && reinterpret_cast<uintptr_t>(job.target) % 16 == 0) {
      const uint32_t words[4] = {static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32),
                                 static_cast<uint32_t>(second),
                                 static_cast<uint32_t>(second >> 32)};
      store16(to, words);
      return true;
    }
  }
  to[0] = static_cast<Integer>(first);
  if (both) to[1] = static_cast<Integer>(second);
  return true;
}

}  // namespace
}  // namespace pleat::compress

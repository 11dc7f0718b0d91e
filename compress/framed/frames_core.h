// Measures, packs and restores one frame of 256 lossless floats (docs/payload_format.md, "Framed")
// by a tile of eight lanes (lane_core.h). Uses integer instructions only, so NaNs keep their bits.
// A Tile here has three more functions:
//
// - tile.combine(f, g): g over all lanes of f(lane), given to all; all tiles of a warp together.
// - tile.add_up_alone(f, take): the sum of f(lane) over all lanes, given to all; calls
//   take(lane, sum over the lanes before it). For code that only some tiles of a warp reach.
// - tile.sync_alone(): after it, lanes of the tile can read and overwrite what its lanes have
//   written.
//
// The codes of a frame may begin at any byte of the payload. So a frame is packed into, or restored
// from, its own slot of shared memory, where all its planes are aligned to the runs of their
// elements. frame_chain.h finds where frames begin.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/framed/frame_entry.h"
#include "compress/framed/frame_planes.h"

namespace pleat::compress {
namespace {

static_assert(kFloatFrame == kGroupSize, "a frame is what a tile holds");

// The number of set bits of each byte.
PLEAT_HD inline uint32_t count_by_bytes(uint32_t x) {
  x -= x >> 1 & 0x5555'5555u;
  x = (x & 0x3333'3333u) + (x >> 2 & 0x3333'3333u);
  return (x + (x >> 4)) & 0x0F0F'0F0Fu;
}
// The four bytes from byte `shift` (0..3) of two words on.
PLEAT_HD inline uint32_t straddling(uint32_t low, uint32_t high, unsigned shift) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, 8 * shift);
#else
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (8 * shift));
#endif
}

// ---- a frame ----

template <class T>
struct FrameLane : Lane<T> {
  uint32_t kept;    // bit run * 8 + j: the element is not zero
  uint32_t before;  // byte `run`: how many elements of the frame before that run are kept
};

// The contents of an entry. `kept` elements have codes: all `count`, unless zeros are left out.
template <class T>
struct Frame {
  static constexpr unsigned kWordBits = 8 * sizeof(typename T::Word);
  static constexpr unsigned kMostBytes = kFrameBitmap + kGroupSize * sizeof(typename T::Word);
  uint32_t base;
  unsigned width;
  unsigned count;
  unsigned kept;
  bool without_zeros;

  PLEAT_HD unsigned runs() const { return (kept + kRunLength - 1) / kRunLength; }
  PLEAT_HD unsigned planes_at() const {
    return without_zeros ? static_cast<unsigned>(kFrameBitmap) : 0;
  }
  PLEAT_HD unsigned bytes() const { return planes_at() + runs() * width; }
  PLEAT_HD uint32_t repeated_base() const {
    return Packed<T>::kPerRegister == 1 ? base : base | base << 16;
  }
};

// A FrameEntry in one word. `entries` are aligned to their size.
template <class T>
PLEAT_HD inline void write_entry(const Frame<T>& frame, void* entries, uint64_t number) {
  const unsigned marks = frame.width | (frame.without_zeros ? kFrameWithoutZeros : 0);
  const unsigned others = frame.without_zeros ? frame.kept : 0;
  if constexpr (sizeof(typename T::Word) == 4)
    static_cast<Stored64*>(entries)[number] = uint64_t{marks | others << 8} << 32 | frame.base;
  else
    static_cast<Stored32*>(entries)[number] = marks << 16 | others << 24 | frame.base;
}
// Reads an entry. False if no encoder writes such an entry; the frame is then empty.
template <class T>
PLEAT_HD inline bool read_entry(const void* entries, uint64_t number, unsigned count,
                                Frame<T>* frame) {
  unsigned marks;
  if constexpr (sizeof(typename T::Word) == 4) {
    const uint64_t entry = static_cast<const Stored64*>(entries)[number];
    frame->base = static_cast<uint32_t>(entry);
    marks = static_cast<unsigned>(entry >> 32);
  } else {
    const uint32_t entry = static_cast<const Stored32*>(entries)[number];
    frame->base = entry & 0xFFFFu;
    marks = entry >> 16;
  }
  const unsigned others = marks >> 8 & 0xFF;
  frame->width = marks & 0xFF & ~kFrameWithoutZeros;
  frame->without_zeros = (marks & kFrameWithoutZeros) != 0;
  frame->count = count;
  frame->kept = frame->without_zeros ? others : count;
  if (frame->width <= Frame<T>::kWordBits && (!frame->without_zeros || others < count)) return true;
  *frame = {0, 0, count, count, false};
  return false;
}

// The smaller of both forms, as measure_float_frame() (frame_kernels.h) chooses it.
//   least, most  of the words that are not zero, if there are any
template <class T>
PLEAT_HD inline Frame<T> choose_frame(uint32_t least, uint32_t most, unsigned count,
                                      unsigned kept) {
  const uint32_t low = kept != count ? 0 : least;
  const unsigned width = bits_needed(most - low);
  const Frame<T> whole{width == Frame<T>::kWordBits ? 0 : low, width, count, count, false};
  if (kept == 0 || kept == count) return whole;
  const unsigned others = bits_needed(most - least);
  const Frame<T> without{others == Frame<T>::kWordBits ? 0 : least, others, count, kept, true};
  return without.bytes() < whole.bytes() ? without : whole;
}

// Finds which elements are kept, in lanes in natural order, and how many are kept before each run.
// Returns how many are kept in all.
template <class Tile>
PLEAT_HD inline unsigned rank_kept(Tile& tile) {
  const uint32_t all = tile.add_up_alone([](auto& lane) { return count_by_bytes(lane.kept); },
                                         [](auto& lane, uint32_t before) { lane.before = before; });
  tile.each([&](auto& lane) { lane.before += all * 0x0101'0100u; });
  const uint32_t pairs = (all & 0x00FF'00FFu) + (all >> 8 & 0x00FF'00FFu);
  return (pairs & 0xFFFFu) + (pairs >> 16);
}

// Loads a frame's elements, leaves them turned in the lanes and finds the frame's form. All tiles
// of a warp together.
template <class T, class Tile>
PLEAT_HD inline Frame<T> measure_frame(Tile& tile, const typename T::Word* source,
                                       unsigned elements, bool aligned) {
  using Words = Turned<T>;
  constexpr unsigned kRegisters = Lane<T>::kRegisters;
  tile.each([&](auto& lane) {
    load_lane<T>(source, elements, aligned, lane);
    typename Words::Zeros zeros;
    PLEAT_UNROLL
    for (unsigned r = 0; r < kRegisters; ++r) {
      lane.words[r] = Words::turn(lane.words[r]);
      zeros.add(r, lane.words[r]);
    }
    lane.kept = ~zeros.mask();
    if (elements == kGroupSize) return;
    for (unsigned run = 0; run < kRuns; ++run)  // padding counts as zeros
      lane.kept &= ~((0xFFu << elements_of_run(lane, run, elements) & 0xFFu) << (8 * run));
  });
  const uint32_t below = tile.combine(
      [](auto& lane) { return fold_words<T>(lane, ~uint32_t{0}, Words::with_below); }, lesser_word);
  const uint32_t most = tile.combine(
      [](auto& lane) { return fold_words<T>(lane, 0, Words::with_word); }, greater_word);
  const unsigned kept = rank_kept(tile);
  const uint32_t least = static_cast<typename T::Word>((below >> Words::kLowest) + 1);
  return choose_frame<T>(least, most >> Words::kLowest, elements, kept);
}

// ---- a frame's slot ----

template <class Word>
struct StoredAs;
template <>
struct StoredAs<uint16_t> {
  using Type = Stored16;
};
template <>
struct StoredAs<uint32_t> {
  using Type = Stored32;
};

// Packs what measure_frame() left in the lanes into the frame's slot, which is 16-byte aligned.
template <class T, class Tile>
PLEAT_HD inline void pack_frame(Tile& tile, const Frame<T>& frame, uint8_t* slot) {
  using Word = typename T::Word;
  if (frame.without_zeros) {  // the kept elements move together, through the slot
    tile.each([&](auto& lane) {
      auto* const words = reinterpret_cast<typename StoredAs<Word>::Type*>(slot);
      PLEAT_UNROLL
      for (unsigned run = 0; run < kRuns; ++run) {
        unsigned rank = lane.before >> (8 * run) & 0xFF;
        PLEAT_UNROLL
        for (unsigned j = 0; j < kRunLength; ++j)
          if ((lane.kept >> (8 * run + j) & 1) != 0)
            words[rank++] = static_cast<Word>(lane.pattern(run, j));
      }
    });
    tile.sync_alone();
    tile.each([&](auto& lane) {
      load_lane<T>(reinterpret_cast<const Word*>(slot), kGroupSize, true, lane);
    });
    tile.sync_alone();
    tile.each([&](auto& lane) {
      PLEAT_UNROLL
      for (unsigned run = 0; run < kRuns; ++run)
        slot[run * kTileLanes + lane.index] = static_cast<uint8_t>(lane.kept >> (8 * run));
    });
  }
  tile.each([&](auto& lane) {
    PLEAT_UNROLL
    for (unsigned run = 0; run < kRuns; ++run) {
      const unsigned n = elements_of_run(lane, run, frame.kept);
      if (n == 0) continue;
      uint32_t* const words = lane.words + run * Lane<T>::kRegistersPerRun;
      // Only halves that are cleared are less than the base, so no borrow occurs.
      PLEAT_UNROLL
      for (unsigned r = 0; r < Lane<T>::kRegistersPerRun; ++r) words[r] -= frame.repeated_base();
      if (n != kRunLength) keep_first<T>(words, n);
      store_run<T>(words, frame.width, frame.runs(), run * kTileLanes + lane.index,
                   slot + frame.planes_at());
    }
  });
}

// Restores the elements into the lanes, from a slot with any bytes in it. Always all elements of a
// whole frame; the base where a damaged bitmap has more bits than there are words, as on the CPU.
template <class T, class Tile>
PLEAT_HD inline void unpack_frame(Tile& tile, const Frame<T>& frame, uint8_t* slot) {
  using Word = typename T::Word;
  tile.each([&](auto& lane) {
    lane.kept = 0;
    PLEAT_UNROLL
    for (unsigned run = 0; run < kRuns; ++run) {
      if (frame.without_zeros)
        lane.kept |= uint32_t{slot[run * kTileLanes + lane.index]} << (8 * run);
      uint32_t* const words = lane.words + run * Lane<T>::kRegistersPerRun;
      const unsigned n = elements_of_run(lane, run, frame.kept);
      if (n != 0)
        load_run<T>(words, frame.width, frame.runs(), run * kTileLanes + lane.index,
                    slot + frame.planes_at());
      if (n != kRunLength) keep_first<T>(words, n);
      PLEAT_UNROLL
      for (unsigned r = 0; r < Lane<T>::kRegistersPerRun; ++r)
        words[r] = Turned<T>::add(words[r], frame.repeated_base());
    }
  });
  if (frame.without_zeros) {
    (void)rank_kept(tile);
    tile.sync_alone();
    tile.each(
        [&](auto& lane) { store_lane<T>(lane, reinterpret_cast<Word*>(slot), kGroupSize, true); });
    tile.sync_alone();
    tile.each([&](auto& lane) {
      const auto* const words = reinterpret_cast<const typename StoredAs<Word>::Type*>(slot);
      PLEAT_UNROLL
      for (unsigned run = 0; run < kRuns; ++run) {
        unsigned rank = lane.before >> (8 * run) & 0xFF;
        PLEAT_UNROLL
        for (unsigned j = 0; j < kRunLength; ++j) {
          uint32_t word = 0;
          if ((lane.kept >> (8 * run + j) & 1) != 0) word = words[rank++];
          uint32_t& whole =
              lane.words[run * Lane<T>::kRegistersPerRun + j / Packed<T>::kPerRegister];
          whole = j % Packed<T>::kPerRegister == 0 ? word : whole | word << 16;
        }
      }
    });
  }
  tile.each([](auto& lane) {
    PLEAT_UNROLL
    for (unsigned r = 0; r < Lane<T>::kRegisters; ++r)
      lane.words[r] = Turned<T>::turn_back(lane.words[r]);
  });
}

// Copies the first `bytes` bytes of a slot to any place, and back. No other byte is written. Reads
// whole words of the payload, but none with bytes before its aligned head or behind its `end`.
template <class Tile>
PLEAT_HD inline void write_slot(Tile& tile, const uint8_t* slot, unsigned bytes, uint8_t* to) {
  const auto odd = static_cast<unsigned>(-reinterpret_cast<uintptr_t>(to) % 4);
  const unsigned head = odd < bytes ? odd : bytes, words = (bytes - head) / 4;
  tile.each([&](auto& lane) {
    const unsigned tail = bytes - head - 4 * words;
    const unsigned n = lane.index % 4;
    if (n < (lane.index < 4 ? head : tail)) {
      const unsigned at = lane.index < 4 ? n : bytes - tail + n;
      to[at] = slot[at];
    }
    const auto* const from = reinterpret_cast<const Stored32*>(slot);
    auto* const into = reinterpret_cast<Stored32*>(to + head);
    for (unsigned w = lane.index; w < words; w += kTileLanes)
      into[w] = straddling(from[w], from[w + 1], head);
  });
}
PLEAT_HD inline uint32_t load_before(const Stored32* from, const uint8_t* end) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  if (bytes + 4 <= end) return *from;
  uint32_t word = 0;
  for (unsigned b = 0; bytes + b < end; ++b) word |= uint32_t{bytes[b]} << (8 * b);
  return word;
}
template <class Tile>
PLEAT_HD inline void read_slot(Tile& tile, const uint8_t* from, unsigned bytes, const uint8_t* end,
                               uint8_t* slot) {
  const auto odd = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from) % 4);
  tile.each([&](auto& lane) {
    const auto* const words = reinterpret_cast<const Stored32*>(from - odd);
    for (unsigned w = lane.index; w < (bytes + 3) / 4; w += kTileLanes)
      reinterpret_cast<Stored32*>(slot)[w] = straddling(
          load_before(words + w, end), odd != 0 ? load_before(words + w + 1, end) : 0, odd);
  });
}

}  // namespace
}  // namespace pleat::compress

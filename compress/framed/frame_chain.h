// Finds in one pass where the frames of a span begin (frames_core.h), to encode and to decode, and
// ends such a span. A frame has the size that its elements need, so a tile's codes begin at the sum
// of the sizes of all tiles before it. Blocks take tiles in ascending order, by ticket. The block
// that has a tile
//   1. finds the sizes of the tile's frames and publishes their sum, the tile's own bytes;
//   2. looks back: adds up what the tiles before have published, window by window, until it meets a
//      tile that has published the sum of all bytes up to its end; then publishes that sum for its
//      own tile;
//   3. reads or writes the codes.
// (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016.)
//
// Why no block waits for ever: only step 2 waits, and only for step 1 of tiles with lower tickets.
// Blocks that are already running have taken those tiles, and step 1 waits for nothing.
//
// Tickets and published words are zero before a launch, and each launch leaves them zero. The last
// block of a job clears the words, after all look-backs; the block that draws the launch's last
// ticket clears the ticket.
#pragma once

#include "compress/framed/frames_core.h"
#include "compress/framed/integers_core.h"

namespace pleat::compress {
namespace {

// At the head of a job's scratch memory; a word per tile follows.
struct FrameChain {
  cuda::Counters counters;
  uint32_t ticket;  // of the launch; that of its first job counts
  uint32_t reserved[7];
};
static_assert(sizeof(FrameChain) == 64);
PLEAT_HD inline FrameChain* chain_of(const cuda::Job& job) {
  return reinterpret_cast<FrameChain*>(job.counters);
}
PLEAT_HD inline volatile uint64_t* words_of(const cuda::Job& job) {
  return reinterpret_cast<volatile uint64_t*>(chain_of(job) + 1);
}
PLEAT_HD constexpr uint64_t frame_scratch_bytes(uint64_t elements) {
  return sizeof(FrameChain) + cuda::tiles_of(elements) * sizeof(uint64_t);
}
// Every block of a launch draws one ticket more than it gets tiles. True if no block draws after
// this ticket.
PLEAT_HD inline bool is_last_ticket(uint32_t ticket, uint32_t tiles, uint32_t blocks) {
  return ticket == tiles + blocks - 1;
}

// A published word is complete in itself, so it needs no order with other writes. 0: not published
// yet.
inline constexpr uint64_t kOwnBytes = uint64_t{1} << 62;
inline constexpr uint64_t kBytesToEnd = uint64_t{1} << 63;  // of all tiles up to this one's end
PLEAT_HD constexpr uint64_t bytes_in(uint64_t word) { return word & (kOwnBytes - 1); }

// Step 2, by a warp:
// - warp.read(f): every lane < 32 keeps f(lane).
// - warp.ballot(f): bit `lane` is f(what it kept).
// - warp.sum(f): the sum over all lanes of f(lane, what it kept), given to all.
struct LookBack {
  uint64_t tile;       // the tiles before it are still to be added
  uint64_t bytes = 0;  // of the tiles from it on

  PLEAT_HD bool done() const { return tile == 0; }
  // Adds the 32 tiles before. False, with nothing added, if a tile that is needed has published
  // nothing yet.
  template <class Warp>
  PLEAT_HD bool advance(Warp& warp, const volatile uint64_t* words) {
    warp.read([&](unsigned lane) {
      return lane < tile ? words[tile - 1 - lane] : kBytesToEnd;  // nothing before tile 0
    });
    const uint32_t missing = warp.ballot([](uint64_t word) { return word == 0; });
    const uint32_t ends = warp.ballot([](uint64_t word) { return (word & kBytesToEnd) != 0; });
    const uint32_t used = ends == 0 ? ~0u : ends ^ (ends - 1);  // up to the nearest end
    if ((missing & used) != 0) return false;
    bytes += warp.sum([&](unsigned lane, uint64_t word) {
      return (used >> lane & 1) != 0 ? bytes_in(word) : uint64_t{0};
    });
    tile = ends != 0 ? 0 : tile - 32;
    return true;
  }
};

template <class T>
struct FloatFrames : FrameTable<typename T::Word, kFloatFrame> {
  uint64_t raw_bytes;

  PLEAT_HD explicit FloatFrames(uint64_t elements)
      : FrameTable<typename T::Word, kFloatFrame>(elements),
        raw_bytes(64 + elements * sizeof(typename T::Word)) {}
};

// The state that a block keeps for the tile it works on.
template <class T>
struct alignas(16) FrameStage {
  uint8_t slots[cuda::kGroupsPerTile][Frame<T>::kMostBytes];
  uint32_t bytes[cuda::kGroupsPerTile];  // of each frame
  uint64_t before;                       // bytes of all tiles before
};

// The bytes of the tile's first `places` frames; all tiles of a warp together.
template <class T, class Tile>
PLEAT_HD inline uint32_t bytes_of_frames(Tile& tile, const FrameStage<T>& stage, unsigned places) {
  return tile.combine(
      [&](auto& lane) {
        uint32_t bytes = 0;
        PLEAT_UNROLL
        for (unsigned k = 0; k < cuda::kGroupsPerTile; k += kTileLanes)
          bytes += k + lane.index < places ? stage.bytes[k + lane.index] : 0;
        return bytes;
      },
      [](uint32_t a, uint32_t b) { return a + b; });
}

// ---- encode ----

// The values that do not change within a job.
template <class T>
struct FrameEncoder {
  const cuda::Job& job;
  FloatFrames<T> table;
  uint64_t most;  // bytes that the payload may have

  PLEAT_HD explicit FrameEncoder(const cuda::Job& job)
      : job(job),
        table(job.elements),
        most(job.capacity < table.raw_bytes ? job.capacity : table.raw_bytes - 1) {}

  // Step 1 for the frame at `place` of a tile: writes its entry, and its size to the stage.
  template <class Tile>
  PLEAT_HD Frame<T> measure(Tile& tile, const GroupOfTile& at, unsigned place,
                            FrameStage<T>& stage) const {
    const auto* const source = static_cast<const typename T::Word*>(job.source);
    const Frame<T> frame = measure_frame<T>(tile, source + at.group * kGroupSize, at.elements,
                                            reinterpret_cast<uintptr_t>(source) % 16 == 0);
    tile.each([&](auto& lane) {
      if (lane.index != 0) return;
      stage.bytes[place] = at.own ? frame.bytes() : 0;
      if (at.own) write_entry(frame, static_cast<uint8_t*>(job.target) + 64, at.group);
    });
    return frame;
  }
  // Step 3: writes the packed frame to its place, unless it lies beyond the capacity.
  template <class Tile>
  PLEAT_HD void write(Tile& tile, const FrameStage<T>& stage, unsigned place,
                      uint32_t before) const {
    const uint64_t at = table.codes_offset + stage.before + before;
    if (at + stage.bytes[place] > most) return;
    write_slot(tile, stage.slots[place], stage.bytes[place],
               static_cast<uint8_t*>(job.target) + at);
  }
};

// Called by the block that ends last. Returns the code bytes of all tiles.
template <class Block>
PLEAT_HD inline uint64_t clear_chain(Block& block, const cuda::Job& job) {
  const uint64_t tiles = cuda::tiles_of(job.elements);
  const uint64_t bytes = bytes_in(words_of(job)[tiles - 1]);
  block.sync();
  block.each(tiles, [&](uint64_t tile) { words_of(job)[tile] = 0; });
  return bytes;
}

template <class T, class Block>
PLEAT_HD inline void finish_frames(Block& block, const cuda::Job& job) {
  const FrameEncoder<T> encoder(job);
  const FloatFrames<T>& table = encoder.table;
  uint8_t* const payload = static_cast<uint8_t*>(job.target);
  const uint64_t code_bytes = clear_chain(block, job);
  block.each(table.codes_offset - table.entries_end,
             [&](uint64_t i) { payload[table.entries_end + i] = 0; });
  Header header = packed_header(job, PayloadKind::kFramed, T::kType);
  header.code_bytes = code_bytes;
  header.payload_bytes = table.codes_offset + code_bytes;
  const bool fits = header.payload_bytes <= encoder.most;
  block.once([&] {
    if (!fits) header.magic = 0;
    write_header(header, payload);
    job.verdict->escapes = 0;
    job.verdict->payload_bytes = header.payload_bytes;
  });
  block.publish(job.verdict, fits ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
}

// ---- decode ----

template <class T>
struct FrameDecoder {
  const cuda::Job& job;
  FloatFrames<T> table;
  uint64_t code_bytes;
  bool readable;

  // The checks are those of the CPU: read_header() (codec.cpp), decode_framed().
  PLEAT_HD FrameDecoder(const cuda::Job& job, const Header& header)
      : job(job), table(job.elements), code_bytes(header.code_bytes) {
    unsigned wrong = header.magic ^ kMagic;
    wrong |= header.version ^ unsigned { kFormatVersion };
    wrong |= header.kind ^ static_cast<unsigned>(PayloadKind::kFramed);
    wrong |= header.type ^ T::kType;
    wrong |= header.bits ^ supported_bits(header.bits);
    wrong |= header.reserved;
    const uint64_t wrong_sizes = header.third_value | (header.elements ^ job.elements);
    readable = wrong == 0 && wrong_sizes == 0 && header.payload_bytes <= job.capacity &&
               header.payload_bytes >= table.codes_offset &&
               header.payload_bytes - table.codes_offset == code_bytes;
  }
  PLEAT_HD const uint8_t* payload() const { return static_cast<const uint8_t*>(job.source); }

  // Step 1. False if the frame is damaged.
  template <class Tile>
  PLEAT_HD bool read(Tile& tile, const GroupOfTile& at, unsigned place, FrameStage<T>& stage,
                     Frame<T>* frame) const {
    const bool intact = read_entry(payload() + 64, at.group, at.elements, frame);
    tile.each([&](auto& lane) {
      if (lane.index == 0) stage.bytes[place] = at.own ? frame->bytes() : 0;
    });
    return intact;
  }
  // Step 3. A damaged frame can lie beyond the codes. No byte is read there, and the sum of all
  // sizes shows the damage.
  template <class Tile>
  PLEAT_HD void restore(Tile& tile, const GroupOfTile& at, const Frame<T>& frame, unsigned place,
                        FrameStage<T>& stage, uint32_t before) const {
    if (!at.own) return;
    const uint8_t* const codes = payload() + table.codes_offset;
    read_slot(tile, codes + stage.before + before, frame.bytes(), codes + code_bytes,
              stage.slots[place]);
    tile.sync_alone();
    unpack_frame(tile, frame, stage.slots[place]);
    auto* const target = static_cast<typename T::Word*>(job.target);
    tile.each([&](auto& lane) {
      store_lane<T>(lane, target + at.group * kGroupSize, at.elements,
                    reinterpret_cast<uintptr_t>(target) % 16 == 0);
    });
  }
};

template <class T, class Block>
PLEAT_HD inline void finish_restored(Block& block, const FrameDecoder<T>& decoder, bool damaged) {
  const uint64_t code_bytes = clear_chain(block, decoder.job);
  const bool whole = decoder.readable && !damaged && code_bytes == decoder.code_bytes;
  block.publish(decoder.job.verdict, whole ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt);
}

}  // namespace
}  // namespace pleat::compress

// Encodes over the head of the source: the payload's tile t is written where source tiles lie that
// other blocks may not have read yet. Written against a Tile and a Block, as encode_core.h
// and span_core.h are.
//
// Blocks take tiles in ascending order, by ticket. The block that has a tile
//   1. reads all of it, stages its metadata and codes, and keeps the bytes of escaped groups aside;
//   2. sets the tile's flag;
//   3. waits for the flags of all source tiles that its place overlaps, and writes there.
//
// Why nothing is overwritten unread: only step 3 writes, after every source tile under the place
// has been read, and places of different tiles are disjoint. Why no block waits for ever: step 1
// waits for nothing, so all tiles up to the last ticket are read sooner or later, and step 3 only
// waits for tiles <= t. This holds if the end of t's codes lies at or below the end of source tile
// t:
//
//   codes_offset + (t + 1) C <= (t + 1) S      C code bytes, S > C source bytes of a tile
//
// that is from t + 1 = codes_offset / (S - C) on. The metadata push the places of earlier tiles
// beyond their source (one tile in 110 of a float32 span at 4 bits). Step 3 writes such a tile to a
// bounce buffer instead; it moves to its place when all tiles have been read. The metadata of tile
// t, with the header a fraction of S, always end within source tile t.
//
// A group's bytes are lost once codes are written over them, so the number of escaped groups must
// be known before. A first kernel reads the source and counts them (survey_group()). The second
// does nothing if they are too many or the payload would not fit. The second gives the verdict,
// when all its blocks have ended; until then the scratch memory is in use.
#pragma once

#include "compress/grouped/span_core.h"
#include "compress/rotated/transform_core.h"

namespace pleat::compress {
namespace {

// Lies at the head of a job's scratch memory; a flag per tile follows. The survey sets both to
// zero, but for the groups it has counted.
struct InPlaceState {
  uint32_t ticket;
  uint32_t aside;  // escaped groups kept aside so far
  uint32_t escapes;
  uint32_t reserved[13];
};
static_assert(sizeof(InPlaceState) == 64);
PLEAT_HD inline InPlaceState* state_of(const cuda::Job& job) {
  return static_cast<InPlaceState*>(job.scratch);
}
PLEAT_HD inline uint32_t* flags_of(const cuda::Job& job) {
  return reinterpret_cast<uint32_t*>(state_of(job) + 1);
}

// The metadata and codes of a tile: at its place, in the bounce buffer, or staged.
template <class Pointer>
struct TileBytes {
  Pointer metadata;
  Pointer codes;
};

// Where everything lies, and which tiles a tile has to wait for.
template <class F>
struct InPlaceLayout : DeviceLayout<F> {
  using Base = DeviceLayout<F>;
  static constexpr uint64_t kSource = cuda::kGroupsPerTile * Base::kGroupBytes;  // of a tile
  static constexpr uint64_t kMetadata = cuda::kGroupsPerTile * Base::kMetadataBytes;
  static constexpr uint64_t kCodes = cuda::kGroupsPerTile * Base::kSlotBytes;
  static_assert(!F::kTransformed && F::kBits != 0, "the survey knows no others");
  static_assert(kCodes < kSource && 64 + kMetadata <= kSource);
  uint64_t tiles;
  uint64_t bounced;  // tiles 0 .. bounced - 1 have room in the bounce buffer

  PLEAT_HD explicit InPlaceLayout(uint64_t elements)
      : Base(elements), tiles(cuda::tiles_of(elements)) {
    const uint64_t share = this->codes_offset / (kSource - kCodes) + 1;
    bounced = share < tiles ? share : tiles;
  }
  PLEAT_HD uint64_t groups_of(uint64_t tile) const {
    const uint64_t left = this->groups - tile * cuda::kGroupsPerTile;
    return left < cuda::kGroupsPerTile ? left : cuda::kGroupsPerTile;
  }
  PLEAT_HD bool refuses(uint64_t escapes, uint64_t elements) const {
    return escapes > this->escape_limit() || this->end_of_codes() + escapes * Base::kGroupBytes >
                                                 elements * sizeof(typename F::Source::Word);
  }
  PLEAT_HD uint64_t metadata_at(uint64_t tile) const { return 64 + tile * kMetadata; }
  PLEAT_HD uint64_t codes_at(uint64_t tile) const { return this->codes_offset + tile * kCodes; }
  // The last source tile that the payload's bytes below `end` overlap.
  PLEAT_HD uint64_t last_under(uint64_t end) const {
    const uint64_t tile = (end - 1) / kSource;
    return tile < tiles ? tile : tiles - 1;
  }
  PLEAT_HD bool bounces(uint64_t tile) const {
    return last_under(codes_at(tile) + groups_of(tile) * Base::kSlotBytes) > tile;
  }
  // The source tiles under a tile's place, all of them <= tile unless it bounces.
  template <class Function>
  PLEAT_HD void each_under(uint64_t tile, Function f) const {
    const uint64_t n = groups_of(tile);
    const uint64_t metadata_end = metadata_at(tile) + n * Base::kMetadataBytes;
    for (uint64_t k = metadata_at(tile) / kSource; k <= last_under(metadata_end); ++k) f(k);
    const uint64_t codes_end = codes_at(tile) + n * Base::kSlotBytes;
    for (uint64_t k = codes_at(tile) / kSource; k <= last_under(codes_end); ++k) f(k);
  }

  // Scratch memory holds, in this order: state, a flag per tile, the bounce buffer, escaped groups.
  PLEAT_HD uint64_t bounce_at(uint64_t tile) const {
    return sizeof(InPlaceState) + round_up_64(tiles * sizeof(uint32_t)) +
           tile * (kMetadata + kCodes);
  }
  PLEAT_HD uint64_t escapes_at() const { return bounce_at(bounced); }
  PLEAT_HD uint64_t scratch_bytes() const {
    return escapes_at() + this->escape_limit() * Base::kGroupBytes;
  }

  PLEAT_HD TileBytes<uint8_t*> place_of(const cuda::Job& job, uint64_t tile) const {
    auto* const payload = static_cast<uint8_t*>(job.target);
    return {payload + metadata_at(tile), payload + codes_at(tile)};
  }
  PLEAT_HD TileBytes<uint8_t*> bounce_of(const cuda::Job& job, uint64_t tile) const {
    uint8_t* const bounce = static_cast<uint8_t*>(job.scratch) + bounce_at(tile);
    return {bounce, bounce + kMetadata};
  }
  // Offsets and lengths are multiples of four bytes.
  template <class Block, class Pointer>
  PLEAT_HD void copy_tile(Block& block, uint64_t tile, const TileBytes<uint8_t*>& to,
                          const TileBytes<Pointer>& from) const {
    copy_words(block, to.metadata, from.metadata, groups_of(tile) * Base::kMetadataBytes);
    copy_words(block, to.codes, from.codes, groups_of(tile) * Base::kSlotBytes);
  }
};

// ---- the survey ----

// Whether encode_group() would make this group an escaped one; all tiles of a warp together.
template <class T, class Tile>
PLEAT_HD inline bool survey_group(Tile& tile, const typename T::Word* source, unsigned elements,
                                  bool aligned, unsigned bits) {
  if (bits >= kFewestWideBits) return false;
  tile.each([&](auto& lane) { load_lane<T>(source, elements, aligned, lane); });
  const Extremes extremes = find_extremes<T>(tile);
  const bool searched = !plainly_other(tile, extremes);
  Quantiser quantiser{0, 0, 0};
  Metadata<T> words;
  const float largest_code = static_cast<float>((1u << bits) - 1);
  if (plan_group<T>(extremes.minimum, extremes.maximum, largest_code, &quantiser, &words))
    return false;
  return !searched || find_patterns(tile).kind == GroupKind::kRegular;
}

// ---- a tile ----

// Metadata and codes of a tile before they are written.
template <class F>
struct alignas(64) Staged {
  Metadata<typename F::Coded> metadata[cuda::kGroupsPerTile];
  alignas(64) uint8_t codes[InPlaceLayout<F>::kCodes];
};

// Step 1 for the group at `place` of a tile. An escaped group gets its number from next_number();
// its bytes go to the scratch memory by that number, and the number into its slot.
template <class F, class Tile, class NextNumber>
PLEAT_HD inline GroupKind stage_group(Tile& tile, const cuda::Job& job, uint64_t number_of_tile,
                                      unsigned place, Staged<F>& staged, NextNumber next_number) {
  using Word = typename F::Source::Word;
  const InPlaceLayout<F> layout(job.elements);
  const GroupOfTile at(job.elements, number_of_tile, place);
  const Word* const source = static_cast<const Word*>(job.source) + at.group * kGroupSize;
  uint8_t* const slot = staged.codes + place * F::kSlotBytes;
  const GroupKind kind = encode_form<F>(tile, source, at.elements, true, at.group, job.nonce,
                                        &staged.metadata[place], slot, no_parts(), false);
  if (kind == GroupKind::kEscaped && at.own) {
    const uint32_t number =
        tile.pick_alone([](auto& lane) { return lane.index == 0; },
                        [&](auto& lane) { return lane.index == 0 ? next_number() : 0u; });
    if (number >= layout.escape_limit()) return kind;  // the source has changed since the survey
    Word* const kept = reinterpret_cast<Word*>(static_cast<uint8_t*>(job.scratch) +
                                               layout.escapes_at() + number * layout.kGroupBytes);
    tile.each([&](auto& lane) {
      for (unsigned e = lane.index; e < kGroupSize; e += kTileLanes)
        kept[e] = e < at.elements ? source[e] : Word{0};
      if (lane.index == 0) *reinterpret_cast<Stored32*>(slot) = number;  // the lane that cleared it
    });
  }
  return at.own ? kind : GroupKind::kConstant;
}

// The write of step 3.
template <class F, class Block>
PLEAT_HD inline void write_staged(Block& block, const cuda::Job& job, uint64_t tile,
                                  const Staged<F>& staged) {
  const InPlaceLayout<F> layout(job.elements);
  layout.copy_tile(block, tile,
                   layout.bounces(tile) ? layout.bounce_of(job, tile) : layout.place_of(job, tile),
                   TileBytes<const void*>{staged.metadata, staged.codes});
}

// ---- the end ----

// The escaped groups that were kept aside, found by the numbers in their slots.
template <class F>
struct GroupsAside {
  using Word = typename F::Source::Word;
  const uint8_t* groups;

  PLEAT_HD uint64_t number(uint64_t, const uint8_t* slot) const {
    return *reinterpret_cast<const Stored64*>(slot);
  }
  PLEAT_HD const Word* words(uint64_t number) const {
    return reinterpret_cast<const Word*>(groups + number * DeviceLayout<F>::kGroupBytes);
  }
  PLEAT_HD unsigned elements(uint64_t) const { return kGroupSize; }
};

// Called by the block that ends last: moves bounced tiles to their place, then does as
// finish_span(); or leaves the source as it is.
template <class F, class Block>
PLEAT_HD inline void finish_in_place(Block& block, const cuda::Job& job, uint32_t escapes,
                                     bool lossy) {
  const InPlaceLayout<F> layout(job.elements);
  if (layout.refuses(escapes, job.elements)) {
    block.once([&] {
      job.verdict->escapes = escapes;
      job.verdict->payload_bytes = 0;
    });
    block.publish(job.verdict, cuda::Outcome::kKeepRaw);
    return;
  }
  for (uint64_t tile = 0; tile < layout.bounced; ++tile)
    if (layout.bounces(tile))
      layout.copy_tile(block, tile, layout.place_of(job, tile), layout.bounce_of(job, tile));
  block.sync();
  cuda::Counters counted{};
  counted.escapes = escapes;
  counted.lossy = lossy ? 1 : 0;
  finish_span<F>(block, job, counted,
                 GroupsAside<F>{static_cast<const uint8_t*>(job.scratch) + layout.escapes_at()});
}

}  // namespace
}  // namespace pleat::compress

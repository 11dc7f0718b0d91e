// Encoding over the head of the source: the payload's tile t is written where source tiles lie that
// others may not have read yet. Written against a Tile and a Block, as encode_core.h and
// span_core.h.
//
// Tiles are taken in ascending order, by ticket. Whoever has one
//   1. reads it whole, stages its metadata and codes, and keeps the bytes of escaped groups aside;
//   2. says so in the tile's flag;
//   3. waits for the flags of all source tiles that its place overlaps, and writes there.
//
// Why nothing is overwritten unread: bytes are only written in step 3, after every tile they lie in
// has been read, and places of different tiles are disjoint. Why nobody waits for ever: step 1
// waits for nothing, so all tiles up to the last ticket are read sooner or later, and step 3 only
// waits for tiles <= t. That is so where the end of t's codes lies at or below the end of source
// tile t:
//
//   codes_offset + (t + 1) C <= (t + 1) S      C code bytes, S > C source bytes of a tile
//
// that is from t + 1 = codes_offset / (S - C) on. The tiles before, whose place the metadata has
// pushed beyond them (one in 110 of a float32 span at 4 bits), are not written in step 3 but to a
// bounce buffer, and to their place when all tiles have been read. A tile's metadata, with the
// header a fraction of S, always ends within source tile t.
//
// A group's bytes are gone once its codes are written, so how many groups escape must be known
// before: a first kernel reads the source and counts (survey_group()), and the second does nothing
// where they are too many, or the payload would not fit.
#pragma once

#include "compress/cuda/span_core.h"
#include "compress/cuda/transform_core.h"

namespace pleat::compress {
namespace {

// At the head of a job's scratch memory. Set by the survey.
struct InPlaceState {
  uint32_t ticket;
  uint32_t aside;    // escaped groups kept aside so far
  uint32_t escapes;  // as the survey counted them
  uint32_t refused;
  uint32_t reserved[12];
};
static_assert(sizeof(InPlaceState) == 64);

PLEAT_HD constexpr uint64_t round_up_64(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Where things are in the scratch memory, and which tiles a tile has to wait for.
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
  PLEAT_HD uint64_t metadata_at(uint64_t tile) const { return 64 + tile * kMetadata; }
  PLEAT_HD uint64_t codes_at(uint64_t tile) const { return this->codes_offset + tile * kCodes; }
  // The last source tile that [.., end) of the payload overlaps.
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

  // Scratch: state, a flag per tile, the bounce buffer, escaped groups.
  PLEAT_HD uint64_t flags_at() const { return sizeof(InPlaceState); }
  PLEAT_HD uint64_t bounce_at() const { return flags_at() + round_up_64(tiles * sizeof(uint32_t)); }
  PLEAT_HD uint64_t escapes_at() const { return bounce_at() + bounced * (kMetadata + kCodes); }
  PLEAT_HD uint64_t scratch_bytes() const {
    return escapes_at() + this->escape_limit() * Base::kGroupBytes;
  }
};

// ---- the survey ----

// Whether encode_group() would make this group an escaped one; all tiles of a warp together.
template <class T, class Tile>
PLEAT_HD inline bool survey_group(Tile& tile, const typename T::Word* source, unsigned elements,
                                  bool aligned, float largest_code) {
  tile.each([&](auto& lane) { load_lane<T>(source, elements, aligned, lane); });
  const Extremes extremes = find_extremes<T>(tile);
  const bool searched = !plainly_other(tile, extremes);
  Quantiser quantiser{0, 0, 0};
  Metadata<T> words;
  if (plan_group<T>(extremes.minimum, extremes.maximum, largest_code, &quantiser, &words))
    return false;
  return !searched || find_patterns(tile).kind == GroupKind::kRegular;
}

// By one thread, when every group has been looked at. Nobody is told yet: the second kernel reads
// the state, so the scratch memory is in use until that has ended.
template <class T>
PLEAT_HD inline void finish_survey(const cuda::Job& job, uint64_t escapes) {
  const uint64_t groups = (job.elements + (kGroupSize - 1)) / kGroupSize;
  const uint64_t share = groups / 64;
  const uint64_t bytes = 64 + round_up_64(groups * sizeof(Metadata<T>)) + groups * 32 * job.width +
                         escapes * (kGroupSize * sizeof(typename T::Word));
  InPlaceState state{};
  state.escapes = static_cast<uint32_t>(escapes);
  state.refused =
      escapes > (share == 0 ? 1 : share) || bytes > job.elements * sizeof(typename T::Word) ? 1 : 0;
  *static_cast<InPlaceState*>(job.scratch) = state;
}

// ---- a tile ----

// Metadata and codes of a tile before they are written.
template <class F>
struct alignas(64) Staged {
  Metadata<typename F::Coded> metadata[cuda::kGroupsPerTile];
  alignas(64) uint8_t codes[InPlaceLayout<F>::kCodes];
};

// Step 1 for the group at `place` of a tile; `next_number()` gives numbers of escaped groups, which
// go to the scratch memory by number and have it in their slot. Beyond the span's last group that
// one is staged again, so that warps stay whole; it is written nowhere.
template <class F, class Tile, class NextNumber>
PLEAT_HD inline GroupKind stage_group(Tile& tile, const cuda::Job& job, uint64_t number_of_tile,
                                      unsigned place, Staged<F>& staged, NextNumber next_number) {
  using Word = typename F::Source::Word;
  const InPlaceLayout<F> layout(job.elements);
  uint64_t group = number_of_tile * cuda::kGroupsPerTile + place;
  const bool own = group < layout.groups;
  if (!own) group = layout.groups - 1;
  const Word* const source = static_cast<const Word*>(job.source) + group * kGroupSize;
  const uint64_t left = job.elements - group * kGroupSize;
  const unsigned elements = left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize;
  uint8_t* const slot = staged.codes + place * F::kSlotBytes;
  const GroupKind kind =
      encode_form<F>(tile, source, elements, true, group, job.nonce, &staged.metadata[place], slot);
  if (kind == GroupKind::kEscaped && own) {
    const uint32_t number =
        tile.pick_alone([](auto& lane) { return lane.index == 0; },
                        [&](auto& lane) { return lane.index == 0 ? next_number() : 0u; });
    if (number >= layout.escape_limit()) return kind;  // the source has changed since the survey
    Word* const kept = reinterpret_cast<Word*>(static_cast<uint8_t*>(job.scratch) +
                                               layout.escapes_at() + number * layout.kGroupBytes);
    tile.each([&](auto& lane) {
      for (unsigned e = lane.index; e < kGroupSize; e += kTileLanes)
        kept[e] = e < elements ? source[e] : Word{0};
      if (lane.index == 0) *reinterpret_cast<Stored32*>(slot) = number;  // who cleared it
    });
  }
  return own ? kind : GroupKind::kConstant;
}

// Step 3's write. Offsets and lengths are multiples of four bytes.
template <class F, class Block>
PLEAT_HD inline void write_staged(Block& block, const cuda::Job& job, uint64_t tile,
                                  const Staged<F>& staged) {
  const InPlaceLayout<F> layout(job.elements);
  uint8_t* metadata = static_cast<uint8_t*>(job.target) + layout.metadata_at(tile);
  uint8_t* codes = static_cast<uint8_t*>(job.target) + layout.codes_at(tile);
  if (layout.bounces(tile)) {
    metadata = static_cast<uint8_t*>(job.scratch) + layout.bounce_at() +
               tile * (layout.kMetadata + layout.kCodes);
    codes = metadata + layout.kMetadata;
  }
  const uint64_t groups = layout.groups_of(tile);
  copy_words(block, metadata, staged.metadata, groups * layout.kMetadataBytes);
  copy_words(block, codes, staged.codes, groups * layout.kSlotBytes);
}

// ---- the end ----

// Escaped groups that were kept aside, by the numbers in their slots.
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

// By the block that ends last: bounced tiles go to their place, then as finish_span(); or the
// source is kept as it is.
template <class F, class Block>
PLEAT_HD inline void finish_in_place(Block& block, const cuda::Job& job, const InPlaceState& state,
                                     bool lossy) {
  if (state.refused != 0) {
    block.once([&] {
      job.verdict->escapes = state.escapes;
      job.verdict->payload_bytes = 0;
    });
    block.publish(job.verdict, cuda::Outcome::kKeepRaw);
    return;
  }
  const InPlaceLayout<F> layout(job.elements);
  uint8_t* const payload = static_cast<uint8_t*>(job.target);
  const uint8_t* const scratch = static_cast<const uint8_t*>(job.scratch);
  for (uint64_t tile = 0; tile < layout.bounced; ++tile) {
    if (!layout.bounces(tile)) continue;
    const uint8_t* const from =
        scratch + layout.bounce_at() + tile * (layout.kMetadata + layout.kCodes);
    const uint64_t groups = layout.groups_of(tile);
    copy_words(block, payload + layout.metadata_at(tile), from, groups * layout.kMetadataBytes);
    copy_words(block, payload + layout.codes_at(tile), from + layout.kMetadata,
               groups * layout.kSlotBytes);
  }
  block.sync();
  finish_span<F>(block, job, state.escapes, lossy, GroupsAside<F>{scratch + layout.escapes_at()});
}

}  // namespace
}  // namespace pleat::compress

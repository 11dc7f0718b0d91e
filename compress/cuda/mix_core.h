// Adds to the elements of a span the noise that the codec could have made: compress/block/disturb.h
// on a device, with the same arithmetic. Eight lanes hold a group, as in encode_core.h.
//
// It takes five launches: encode; spread; encode what was spread; decode; mix. Spreading is for
// groups that are restored without dither. Once restored, such a group is where codes are, and the
// codec would give it back as it is.
//
// A job is a LineJob, whose section has the elements that are encoded, and, from the next multiple
// of 64 bytes on, the decoded ones.
#pragma once

#include <math.h>

#include "compress/exponents/exponents.h"
#include "compress/lines/lines_core.h"
#include "compress/near_zero/near_zero_core.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

// ---- a job ----

// LineJob::look of a mix: the number of sides, 0 where they are not kept, and a bit.
inline constexpr uint8_t kMixNearZero = 4;
PLEAT_HD constexpr uint8_t mix_look(const Sides& beside, bool near_zero) {
  return static_cast<uint8_t>((beside.kind == Sides::Kind::kNone    ? 0
                               : beside.kind == Sides::Kind::kThree ? 3
                                                                    : 2) |
                              (near_zero ? kMixNearZero : 0));
}

template <class T>
PLEAT_HD inline typename T::Word* coded_of(const cuda::LineJob& job) {
  return static_cast<typename T::Word*>(job.section);
}
PLEAT_HD constexpr uint64_t coded_bytes(uint64_t elements, unsigned item) {
  return round_up_64(elements * item);
}
template <class T>
PLEAT_HD inline const typename T::Word* decoded_of(const cuda::LineJob& job) {
  constexpr unsigned kItem = sizeof(typename T::Word);
  return coded_of<T>(job) + coded_bytes(job.elements, kItem) / kItem;
}

// True if the last encode was not refused.
PLEAT_HD inline bool has_codes(const cuda::LineJob& job) {
  const Header& header = *static_cast<const Header*>(job.codes);
  return header.magic == kMagic && header.elements == job.elements;
}

// How a group of the payload is restored. A group is not treated as quantised if its step is 0, or
// wider than is allowed.
template <class T>
struct MixedGroup {
  bool quantised = false;
  bool rotated = false;  // neither zeros nor signs are kept
  Dequantiser how{};     // not of a rotated group

  PLEAT_HD MixedGroup(const cuda::LineJob& job, uint64_t group) {
    if (job.transformed != 0)
      read<Float32>(job, group);
    else
      read<T>(job, group);
  }

 private:
  template <class Coded>
  PLEAT_HD void read(const cuda::LineJob& job, uint64_t group) {
    const auto words = reinterpret_cast<const Metadata<Coded>*>(
        static_cast<const uint8_t*>(job.codes) + 64)[group];
    if (!is_quantised<Coded>(words)) return;
    rotated = job.transformed != 0 && kind_of<Coded>(words) == GroupKind::kRegular;
    if (!rotated) how = read_lossy_group<Coded>(words, job.bits);
    quantised = rotated || magnitude(how.step) <= job.widest_step;
  }
};

// The powers of two of a group's elements, as the last encode has written them.
class MixedFactors {
 public:
  PLEAT_HD MixedFactors(const cuda::LineJob& job, uint64_t group)
      : exponents_{job.row, job.channels, job.inner}, first_(group * kGroupSize) {
    if (!exponents_.any()) return;
    parts_ = job.parts + parts_before(exponents_, group);
    table_ = job.parts + table_offset(exponents_, job.elements);
    second_ = job.row - static_cast<uint32_t>(first_ % job.row);
  }
  PLEAT_HD float operator()(unsigned e) const {
    if (parts_ == nullptr) return 1;
    const int part = parts_[e < second_ ? 0 : 1 + (e - second_) / exponents_.row];
    if (part == kZeroPart) return 1;
    const uint32_t channels = exponents_.channels;
    const int entry = channels == 0 ? 0 : table_[(first_ + e) / exponents_.inner % channels];
    return power_of_two(exponent_of_element(part, entry));
  }

 private:
  Exponents exponents_;
  uint64_t first_;
  const int8_t* parts_ = nullptr;
  const int8_t* table_ = nullptr;
  uint32_t second_ = 0;  // element at which the second part begins
};

// Elements that no noise is added to.
template <class T>
PLEAT_HD inline bool is_exempt(const cuda::LineJob& job, uint32_t word, float value,
                               bool rotated = false) {
  return (value == 0.0f && !rotated) || !is_finite_value(value) ||
         ((job.look & kMixNearZero) != 0 && word < kMinusOne<T>);
}

// visit(e) for the lane's elements of a group: every eighth, read one at a time. That is slower
// than runs in registers, and hardly any code: mixing happens in one of many steps.
template <class L, class Visit>
PLEAT_HD inline void each_element(const L& lane, unsigned elements, Visit visit) {
  PLEAT_ROLL
  for (unsigned e = lane.index; e < elements; e += kTileLanes) visit(e);
}

// ---- spread ----

// Of Philox; the codec makes less than 18 calls a group.
inline constexpr uint32_t kSpreadCall = 64;

// How far the elements of a group lie from its anchor.
struct Distances {
  static constexpr unsigned kFew = 16;
  static constexpr float kPart = 1 << 20;  // of rounding
  float farthest;
  uint32_t beyond, rounding;  // elements at least a step away, and what rounds them
  // Of the different ones, ascending.
  unsigned size;  // kFew + 1: or more
  float least, second, third;
  uint32_t at_least, at_second, at_third;  // elements

  PLEAT_HD void add(float distance, uint32_t elements) {
    if (size == 0) least = distance, at_least = elements;
    if (size == 1) second = distance, at_second = elements;
    if (size == 2) third = distance, at_third = elements;
    ++size;
  }
  PLEAT_HD bool were_rounded() const {
    const bool on_grid =
        beyond >= 8 && static_cast<float>(rounding) * 12 < static_cast<float>(beyond) * kPart;
    return is_finite_value(farthest) && (size <= kFew || on_grid);
  }
  PLEAT_HD float lowest_spread() const {
    if (size < 2 || size > kFew || least != 0.0f) return 0;
    const bool near = size > 2 && third < 2.5f * second;
    const float past = near ? static_cast<float>(at_third) / 2 : 0.0f;
    const float above = static_cast<float>(at_second) - past;
    const float up = above > 0.0f ? above : 0.0f;
    const float mean = 2 * up / (static_cast<float>(at_least) + up);
    return second * (mean < 1.0f ? mean : 1.0f);
  }
};

// A group that may be spread.
template <class T>
struct SpreadGroup {
  const cuda::LineJob& job;
  const typename T::Word* words;
  Dequantiser how;
  MixedFactors factors;
  unsigned elements;

  // visit(e, distance) for the lane's elements that are not exempt.
  template <class L, class Visit>
  PLEAT_HD void each_distance(const L& lane, Visit visit) const {
    each_element(lane, elements, [&](unsigned e) {
      const float value = T::to_float(words[e]);
      if (!is_exempt<T>(job, words[e], value)) visit(e, magnitude(value * factors(e) - how.anchor));
    });
  }
};

template <class T, class Tile>
PLEAT_HD inline Distances find_distances(Tile& tile, const SpreadGroup<T>& group) {
  const float step = magnitude(group.how.step);
  const auto sum = [&](auto part) {
    return tile.add_up_alone(
        [&](auto& lane) {
          uint32_t all = 0;
          group.each_distance(lane, [&](unsigned, float distance) { all += part(distance); });
          return all;
        },
        [](auto&, uint32_t) {});
  };
  Distances found{};
  found.farthest = -tile.least_alone([&](auto& lane) {
    float least = 0;
    group.each_distance(
        lane, [&](unsigned, float distance) { least = -distance < least ? -distance : least; });
    return least;
  });
  if (!is_finite_value(found.farthest)) return found;
  found.beyond = sum([&](float distance) { return distance >= step ? 1u : 0u; });
  found.rounding = sum([&](float distance) {
    const float steps = distance / step, f = steps - floorf(steps);
    return steps >= 1 ? static_cast<uint32_t>(f * (1 - f) * Distances::kPart) : 0u;
  });
  float before = -1;
  while (found.size <= Distances::kFew) {
    const float next = tile.least_alone([&](auto& lane) {
      float least = float_of(0x7F80'0000u);
      group.each_distance(lane, [&](unsigned, float distance) {
        least = distance > before && distance < least ? distance : least;
      });
      return least;
    });
    if (!is_finite_value(next)) break;
    before = next;
    const auto there = [&](float distance) { return distance == next ? 1u : 0u; };
    found.add(next, found.size < 3 ? sum(there) : 0);
  }
  return found;
}

// Undoes plain rounding at random. The first element at the anchor stays there.
template <class T, class Tile>
PLEAT_HD inline void spread_distances(Tile& tile, const SpreadGroup<T>& group,
                                      const Distances& distances, const GroupOfTile& at,
                                      typename T::Word* coded) {
  using Word = typename T::Word;
  const Dequantiser& how = group.how;
  const uint64_t nonce = static_cast<const Header*>(group.job.codes)->nonce;
  const float half = magnitude(how.step) / 2, lowest = distances.lowest_spread();
  const float first = tile.least_alone([&](auto& lane) {
    float least = kGroupSize;
    group.each_distance(lane, [&](unsigned e, float distance) {
      const float place = static_cast<float>(e);
      least = distance == 0.0f && place < least ? place : least;
    });
    return least;
  });
  if (!at.own) return;
  tile.each([&](auto& lane) {
    group.each_distance(lane, [&](unsigned e, float distance) {
      const PhiloxWords random = noise_words(nonce, at.group, kSpreadCall + e / 16);
      const unsigned byte = random.word[e % 16 / 4] >> (8 * (e % 4)) & 0xFFu;
      const float part = (static_cast<float>(byte) + 0.5f) / 256;
      float moved = static_cast<float>(e) == first ? 0.0f : part * lowest;
      if (distance != 0.0f) {
        float room = distance < half ? distance : half;
        const float left = distances.farthest - distance;
        room = left < room ? left : room;
        moved = distance + (2 * part - 1) * room;
      }
      const float there = how.anchor + (how.step < 0.0f ? -moved : moved);
      coded[e] = static_cast<Word>(T::from_float(there / group.factors(e)));
    });
  });
}

// Writes what is to be encoded in place of a group, which may be the group itself. Lanes beyond the
// last group look at that one again and write nothing.
template <class T, class Tile>
PLEAT_HD inline void spread_group(Tile& tile, const cuda::LineJob& job, const GroupOfTile& at) {
  using Word = typename T::Word;
  const Word* const group = static_cast<const Word*>(job.source) + at.group * kGroupSize;
  Word* const coded = coded_of<T>(job) + at.group * kGroupSize;
  if (at.own)
    tile.each([&](auto& lane) {
      each_element(lane, at.elements, [&](unsigned e) { coded[e] = group[e]; });
    });
  if (!has_codes(job)) return;
  const MixedGroup<T> mixed(job, at.group);
  if (!mixed.quantised || mixed.rotated || mixed.how.dither) return;
  const SpreadGroup<T> spread{job, group, mixed.how, MixedFactors(job, at.group), at.elements};
  const Distances distances = find_distances(tile, spread);
  if (distances.were_rounded()) spread_distances(tile, spread, distances, at, coded);
}

// ---- mix ----

template <class T>
struct MixRules {
  SideMoves moves{};
  float amplitude;
  bool sided;

  PLEAT_HD explicit MixRules(const cuda::LineJob& job)
      : amplitude(job.amplitude), sided((job.look & 3) != 0) {
    if (!sided) return;
    SideWords words{};
    words.first = T::from_float(job.bounds[0] + 0.0f);  // -0 becomes +0
    words.last = T::from_float(job.bounds[1] + 0.0f);
    moves = side_moves<T>(words, (job.look & 3) == 3);
  }
};

template <class T>
inline constexpr float kSmallestNormal =
    T::kType == Float16::kType ? 6.103515625e-5f : 1.17549435082228750796873653722224568e-38f;

// The new value of an element that is not exempt, of a group with elements `above` and `below`
// zero, or both if it is rotated.
//   half_noise  of halves, as the difference of two large values may overflow
template <class T>
PLEAT_HD inline typename T::Word moved_by(const MixRules<T>& rules, float half_noise, bool above,
                                          bool below, typename T::Word old) {
  constexpr float kNear = kSmallestNormal<T>, kFar = T::kLargest;
  const float value = T::to_float(old);
  const float half = value * 0.5f + rules.amplitude * half_noise;
  float moved = half > kFar * 0.5f ? kFar : half < -kFar * 0.5f ? -kFar : half * 2.0f;
  if (!(above && below)) {
    if (magnitude(value) < kNear) return old;
    if (above) moved = moved < kNear ? kNear : moved;
    if (below) moved = moved > -kNear ? -kNear : moved;
  }
  const typename T::Word word = T::from_float(moved);
  if (!rules.sided) return word;
  return moved_to_side<T>(rules.moves, side_of(rules.moves.test, value), word);
}

// A group, as spread_group(); all tiles of a warp call it together.
template <class T, class Tile>
PLEAT_HD inline void mix_group(Tile& tile, const cuda::LineJob& job, const MixRules<T>& rules,
                               const GroupOfTile& at) {
  using Word = typename T::Word;
  Word* const group = static_cast<Word*>(job.target) + at.group * kGroupSize;
  const auto has = [&](float sign) {
    return tile.any([&](auto& lane) {
      bool found = false;
      each_element(lane, at.elements,
                   [&](unsigned e) { found |= T::to_float(group[e]) * sign > 0.0f; });
      return found;
    });
  };
  const bool above = has(1), below = has(-1);
  if (!at.own) return;
  const MixedGroup<T> mixed(job, at.group);
  if (!mixed.quantised) return;
  const Word* const coded = coded_of<T>(job) + at.group * kGroupSize;
  const Word* const decoded = decoded_of<T>(job) + at.group * kGroupSize;
  tile.each([&](auto& lane) {
    each_element(lane, at.elements, [&](unsigned e) {
      if (is_exempt<T>(job, group[e], T::to_float(group[e]), mixed.rotated)) return;
      const float noise = T::to_float(decoded[e]) * 0.5f - T::to_float(coded[e]) * 0.5f;
      group[e] =
          moved_by<T>(rules, noise, above || mixed.rotated, below || mixed.rotated, group[e]);
    });
  });
}

}  // namespace
}  // namespace pleat::compress

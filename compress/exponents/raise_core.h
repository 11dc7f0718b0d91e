// Multiplies the elements of a group by their powers of two before the group is coded, by a tile of
// eight lanes (lane_core.h): compress/exponents/raiser.h for the device. Its other half is
// lower_core.h.
#pragma once

#include <stdint.h>

#include <type_traits>

#include "compress/exponents/part_core.h"
#include "compress/grouped/group_math.h"

namespace pleat::compress {
namespace {

// The tile's words beside those of parts.
inline constexpr unsigned kLargestWord = kMostParts;     // magnitude of the group
inline constexpr unsigned kWidestWord = kMostParts + 1;  // with the table's powers of two
inline constexpr unsigned kFillWord = kMostParts + 2;    // what stands for elements of zero parts

// An element as it is coded, once raise_group() has written the bytes of parts. One by one, for
// groups that are rare.
template <class T>
PLEAT_HD PLEAT_APART float coded_in_part(const typename T::Word* source, GroupParts parts,
                                         const uint32_t* words, unsigned e) {
  int exponent = parts.bytes[parts.of_element(e)];
  if (exponent == kAsItIs) return T::to_float(source[e]);
  if (exponent == kZeroPart) return float_of(words[kFillWord]);
  exponent += ChannelWalk(*parts.rows, parts.group * kGroupSize + e).entry();
  return T::to_float(raised<T>(source[e], exponent));
}
template <class T>
struct CodedElement {
  const typename T::Word* source;
  GroupParts parts;
  const uint32_t* words;  // the tile's

  PLEAT_HD float operator()(unsigned e) const {
    return parts.any() ? coded_in_part<T>(source, parts, words, e) : T::to_float(source[e]);
  }
};

// For groups that are coded as they are.
template <class Tile>
PLEAT_HD inline void write_unmoved_parts(Tile& tile, const GroupParts& parts) {
  const int8_t value = parts.rows->channels != 0 ? kAsItIs : 0;
  tile.each([&](auto& lane) {
    PLEAT_ROLL
    for (unsigned part = lane.index; part < parts.count; part += kTileLanes)
      parts.bytes[part] = value;
  });
}

template <class Tile>
PLEAT_HD inline void clear_words(Tile& tile) {
  uint32_t* const words = tile.words();
  tile.each([&](auto& lane) {
    const uint32_t zeros[4] = {0, 0, 0, 0};
    store16(words + 4 * lane.index, zeros);
    if (lane.index == 0) words[kLargestWord] = words[kWidestWord] = 0;
  });
}

// visit(part) for the lane's share of parts.
template <class L, class Visit>
PLEAT_HD inline void each_part_of_lane(const L& lane, unsigned count, Visit visit) {
  if (lane.index < count) visit(lane.index);
  if (count <= kTileLanes) return;
  PLEAT_ROLL
  for (unsigned part = kTileLanes + lane.index; part < count; part += kTileLanes) visit(part);
}

// visit(run, part, entries) for a lane's runs, of a group whose parts are whole runs.
template <bool kTable, class L, class Visit>
PLEAT_HD inline void each_run(const L& lane, const GroupParts& parts, Visit visit) {
  PLEAT_UNROLL
  for (unsigned run = 0; run < kRuns; ++run) {
    const unsigned place = run * kTileLanes + lane.index, part = parts.of_run(place);
    visit(run, part, kTable ? parts.entries_of_run(place, part) : RunEntries{});
  }
}

// For whole groups whose parts are whole runs, as is the table if there is one; all tiles of a warp
// together. False if the group needs a look at its elements: it may have one or two patterns,
// values that are not finite, a part of zeros, or too far to go at once. Its bytes and its elements
// are then as they were.
template <class T, bool kTable, class Tile>
PLEAT_HD inline bool raise_runs(Tile& tile, const GroupParts& parts, bool whole) {
  uint32_t* const words = tile.words();
  // Three patterns in one lane: nearly every group has them.
  const bool other = tile.any([](auto& lane) {
    const uint32_t first = lane.pattern(0, 0), second = lane.pattern(0, 1),
                   third = lane.pattern(0, 2);
    return first != second && second != third && first != third;
  });
  clear_words(tile);
  tile.sync();
  tile.each([&](auto& lane) {
    uint32_t largest = 0, widest = 0;
    each_run<kTable>(lane, parts, [&](unsigned run, unsigned part, const RunEntries& entries) {
      uint32_t size = lane.magnitude_of_run(run);
      largest = size > largest ? size : largest;
      if (kTable)
        size = bits_of(lane.largest_of_run(run, [&](unsigned j) { return entries.at(j); }));
      tile.raise(words + part, size);
      widest = size > widest ? size : widest;
    });
    tile.raise(words + kLargestWord, largest);
    if (kTable) tile.raise(words + kWidestWord, widest);
  });
  tile.sync();
  const uint32_t largest = words[kLargestWord], widest = kTable ? words[kWidestWord] : largest;
  const uint32_t common = (largest - widest) >> 23;
  const auto up = [&](uint32_t size) { return common + ((widest - size) >> 23); };
  bool raises = true;
  if (kTable) {
    const bool entries_are_0 = !tile.any([&](auto& lane) {
      bool found = false;
      each_run<kTable>(lane, parts, [&](unsigned, unsigned, const RunEntries& entries) {
        found |= !entries.all_are(0);
      });
      return found;
    });
    const bool moves = tile.any([&](auto& lane) {
      bool found = false;
      each_run<kTable>(lane, parts, [&](unsigned, unsigned part, const RunEntries& entries) {
        found |= !entries.all_are(-static_cast<int>(up(words[part])));
      });
      return found;
    });
    // A small channel whose elements are large for once would leave few steps to all others.
    const bool spoilt = !entries_are_0 && static_cast<int>(common) + parts.rows->base < -1;
    raises = moves && !spoilt;
  }
  const bool too_far = tile.any([&](auto& lane) {
    bool found = largest > kLargestFinite;
    each_part_of_lane(lane, parts.count, [&](unsigned part) {
      found |= words[part] == 0 || up(words[part]) > lane.kFarthest;
    });
    if (kTable)
      each_run<kTable>(lane, parts, [&](unsigned, unsigned, const RunEntries& entries) {
        found |= is_too_far<std::remove_reference_t<decltype(lane)>>(entries);
      });
    return found;
  });
  const bool fits = whole && other && !too_far;
  tile.sync();  // `moves` has been read
  tile.each([&](auto& lane) {
    each_part_of_lane(lane, parts.count, [&](unsigned part) {
      const auto exponent = static_cast<int>(up(words[part]));
      if (fits) parts.bytes[part] = static_cast<int8_t>(raises ? exponent : kAsItIs);
      words[part] = kTable ? static_cast<uint32_t>(exponent) : lane.factor(exponent);
    });
  });
  tile.sync();
  if (fits && raises)
    tile.each([&](auto& lane) {
      each_run<kTable>(lane, parts, [&](unsigned run, unsigned part, const RunEntries& entries) {
        const auto exponent = static_cast<int>(words[part]);
        if (kTable) {
          lane.multiply_each(run, [&](unsigned j) { return exponent + entries.at(j); });
          lane.template round_run<T>(run);
        } else {
          lane.multiply_run(run, words[part]);
        }
      });
    });
  tile.sync();
  return fits;
}

// A lane's elements of a group that is looked at one by one.
template <class T>
struct ElementsApart {
  unsigned count;
  typename T::Word words[kRuns * kRunLength];
  uint8_t parts[kRuns * kRunLength];
  int8_t entries[kRuns * kRunLength];

  // visit(n) for each.
  template <class Visit>
  PLEAT_HD void each(Visit visit) const {
    PLEAT_ROLL
    for (unsigned n = 0; n < count; ++n) visit(n);
  }
  // Whether any has, for has(n).
  template <class Has>
  PLEAT_HD bool any(Has has) const {
    bool found = false;
    each([&](unsigned n) { found |= has(n); });
    return found;
  }
};

template <class T>
PLEAT_HD inline int exponent_of(const uint32_t* words, const ElementsApart<T>& own, unsigned n) {
  return static_cast<int>(words[own.parts[n]]);
}

// What all parts of a group have in common, whatever the table does to the largest.
PLEAT_HD inline uint32_t common_exponent(const uint32_t* words) {
  return (words[kLargestWord] - words[kWidestWord]) >> 23;
}

// Writes the bytes of parts, and to the tile's words their exponents.
template <class T, class Tile, class Own>
PLEAT_HD inline void find_exponents(Tile& tile, const GroupParts& parts, Own& own_of) {
  uint32_t* const words = tile.words();
  clear_words(tile);
  tile.sync_alone();
  // Of a part: its size, and in the lowest bit whether some element is not zero.
  tile.each([&](auto& lane) {
    const ElementsApart<T>& own = own_of(lane);
    own.each([&](unsigned n) {
      const float value = T::to_float(own.words[n]);
      const float finite = is_finite_value(value) ? magnitude(value) : 0.0f;
      const float size = finite * power_of_two(own.entries[n]);
      tile.raise(words + own.parts[n], bits_of(size) << 1 | (value == 0.0f ? 0u : 1u));
      tile.raise(words + kLargestWord, bits_of(finite));
      tile.raise(words + kWidestWord, bits_of(size));
    });
  });
  tile.sync_alone();
  const uint32_t common = common_exponent(words), widest = words[kWidestWord];
  tile.each([&](auto& lane) {
    PLEAT_ROLL
    for (unsigned part = lane.index; part < parts.count; part += kTileLanes) {
      const uint32_t size = words[part] >> 1;
      const uint32_t up = size == 0 ? 0 : common + ((widest - size) >> 23);
      const int exponent = words[part] == 0   ? kZeroPart
                           : up < kMostOfPart ? static_cast<int>(up)
                                              : kMostOfPart;
      words[part] = static_cast<uint32_t>(exponent);
      parts.bytes[part] = static_cast<int8_t>(exponent);
    }
  });
  tile.sync_alone();
}

// Of the group's first element.
template <class T, class Tile, class Own>
PLEAT_HD inline typename T::Word first_word(Tile& tile, Own& own_of) {
  return static_cast<typename T::Word>(
      tile.pick_alone([](auto& lane) { return lane.index == 0; },
                      [&](auto& lane) { return uint32_t{own_of(lane).words[0]}; }));
}

// Whether a group is coded by its one or two patterns.
template <class T, class Tile, class Own>
PLEAT_HD inline bool keeps_patterns_apart(Tile& tile, Own& own_of) {
  using Word = typename T::Word;
  const Word first = first_word<T>(tile, own_of);
  const auto differs = [&](auto& lane) {
    const ElementsApart<T>& own = own_of(lane);
    return own.any([&](unsigned n) { return own.words[n] != first; });
  };
  Word second = first;
  if (tile.any_alone(differs))
    second = static_cast<Word>(tile.pick_alone(differs, [&](auto& lane) {
      const ElementsApart<T>& own = own_of(lane);
      Word other = first;
      own.each([&](unsigned n) { other = own.words[n] != first ? own.words[n] : other; });
      return uint32_t{other};
    }));
  return !tile.any_alone([&](auto& lane) {
    const ElementsApart<T>& own = own_of(lane);
    return own.any([&](unsigned n) {
      const Word word = own.words[n];
      return word != first && word != second;
    });
  });
}

// Gives elements of zero parts the value that has code 0 in untransformed groups.
template <class T, class Tile, class Own>
PLEAT_HD inline void fill_zero_parts(Tile& tile, Own& own_of, bool transformed, bool zeros) {
  uint32_t* const words = tile.words();
  const auto least_of = [&](float sign) {
    return tile.least_alone([&](auto& lane) {
      const ElementsApart<T>& own = own_of(lane);
      float least = float_of(0x7F80'0000u);
      own.each([&](unsigned n) {
        const float value = sign * T::to_float(own.words[n]);
        const bool counts = exponent_of(words, own, n) != kZeroPart && is_finite_value(value);
        least = counts && value < least ? value : least;
      });
      return least;
    });
  };
  const float least = least_of(1), most = -least_of(-1);
  typename T::Word fill = 0;
  if (!transformed && least <= most && !(zeros && keeps_zero_between(least, most)))
    fill = T::from_float((most <= 0.0f ? most : least) + 0.0f);  // -0 becomes +0
  tile.each([&](auto& lane) {
    if (lane.index == 0) words[kFillWord] = bits_of(T::to_float(fill));
    ElementsApart<T>& own = own_of(lane);
    own.each([&](unsigned n) {
      if (exponent_of(words, own, n) == kZeroPart) own.words[n] = fill;
    });
  });
}

// Any group.
//   zeros  of CodecSpec
template <class T, class Tile>
PLEAT_HD inline void raise_elements(Tile& tile, const typename T::Word* source, unsigned elements,
                                    const GroupParts& parts, bool transformed, bool zeros) {
  using Word = typename T::Word;
  typename Tile::template PerLane<ElementsApart<T>> own_of;
  const uint32_t* const words = tile.words();
  const bool table = parts.rows->channels != 0;
  tile.each([&](auto& lane) {
    ElementsApart<T>& own = own_of(lane);
    own.count = 0;
    each_in_parts(lane.index, parts, elements,
                  [&](unsigned n, unsigned e, unsigned part, int entry) {
                    own.words[n] = source[e];
                    own.parts[n] = static_cast<uint8_t>(part);
                    own.entries[n] = static_cast<int8_t>(entry);
                    ++own.count;
                  });
  });
  find_exponents<T>(tile, parts, own_of);
  const bool moves = tile.any_alone([&](auto& lane) {
    const ElementsApart<T>& own = own_of(lane);
    return own.any([&](unsigned n) {
      const int exponent = exponent_of(words, own, n);
      return exponent == kZeroPart || exponent + own.entries[n] != 0;
    });
  });
  // A small channel whose elements are large for once would leave few steps to all others.
  const bool spoilt = table && static_cast<int>(common_exponent(words)) + parts.rows->base < -1 &&
                      tile.any_alone([&](auto& lane) {
                        const ElementsApart<T>& own = own_of(lane);
                        return own.any([&](unsigned n) { return own.entries[n] != 0; });
                      });
  if (!moves || spoilt || keeps_patterns_apart<T>(tile, own_of)) {
    write_unmoved_parts(tile, parts);
    tile.sync_alone();
    return;
  }
  tile.each([&](auto& lane) {
    ElementsApart<T>& own = own_of(lane);
    own.each([&](unsigned n) {
      const int exponent = exponent_of(words, own, n);
      if (exponent != kZeroPart) own.words[n] = raised<T>(own.words[n], exponent + own.entries[n]);
    });
  });
  fill_zero_parts<T>(tile, own_of, transformed, zeros);
  const Word padding = first_word<T>(tile, own_of);
  tile.each([&](auto& lane) {
    ElementsApart<T>& own = own_of(lane);
    PLEAT_ROLL
    for (unsigned n = own.count; n < kRuns * kRunLength; ++n) own.words[n] = padding;
    lane.template pack<T>(own.words);
  });
  tile.sync_alone();
}

// Takes and returns the tile: references would keep the lanes of all groups in memory.
template <class T, class Tile>
PLEAT_HD PLEAT_APART Tile raise_parts(Tile tile, const typename T::Word* source, unsigned elements,
                                      GroupParts parts, bool transformed, bool zeros) {
  if (parts.by_runs) {
    const bool whole = elements == kGroupSize, table = parts.rows->channels != 0;
    if (table ? raise_runs<T, true>(tile, parts, whole) : raise_runs<T, false>(tile, parts, whole))
      return tile;
  }
  raise_elements<T>(tile, source, elements, parts, transformed, zeros);
  return tile;
}

// Writes the bytes of a group's parts, and gives the lanes its elements times their powers of two;
// all tiles of a warp together. The lanes hold the group. The tile's words are its own until the
// group is coded.
template <class T, class Tile>
PLEAT_HD inline void raise_group(Tile& tile, const typename T::Word* source, unsigned elements,
                                 const GroupParts& parts, bool transformed, bool zeros) {
  const bool one = parts.count == 1 && parts.rows->channels == 0;
  if (tile.all_of_warp(one)) return write_unmoved_parts(tile, parts);
  tile = raise_parts<T>(tile, source, elements, parts, transformed, zeros);
}

}  // namespace
}  // namespace pleat::compress

// The parts of the groups of a job, one group after the other. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/exponents.h"

namespace pleat::compress {
namespace {

constexpr uint32_t kOneBits = 127u << 23;  // of 1.0f
constexpr size_t kFillAtOnce = 16;         // elements that the last part may be filled beyond

class PartWalk {
 public:
  // Without exponents the walk has no parts, and must not be asked for any.
  PartWalk(const Exponents& exponents, uint64_t first_group)
      : exponents_(exponents),
        first_(first_group * kElementsOfGroup),
        row_(exponents.any() ? exponents.row : 1),
        step_(kElementsOfGroup % row_),
        into_(static_cast<uint32_t>(first_ % row_)) {
    if (!has_short_table()) return;
    for (size_t e = 0, channel = 0; e < exponents.channels + kElementsOfGroup; ++e) {
      repeated_[e] = exponents.table[channel];
      channel = channel + 1 == exponents.channels ? 0 : channel + 1;
    }
  }

  // All of these are about the walk's group, which has so many elements.
  [[nodiscard]] bool is_one_part(size_t elements) const { return row_ - into_ >= elements; }
  // Calls visit(begin, end) for each part. Returns how many there are.
  template <class Visit>
  size_t each_part(size_t elements, const Visit& visit) const {
    size_t count = 0, begin = 0;
    for (size_t left = row_ - into_; begin < elements; left = row_, ++count) {
      const size_t end = left < elements - begin ? begin + left : elements;
      visit(begin, end);
      begin = end;
    }
    return count;
  }
  // The entries of the channels of 256 elements: in the table, or in `room`.
  const int8_t* read_table(int8_t* room) const {
    const uint32_t channels = exponents_.channels, inner = exponents_.inner;
    size_t channel = static_cast<size_t>(first_ / inner % channels);
    if (has_short_table()) return repeated_ + channel;
    if (inner == 1) {
      if (channels - channel >= kElementsOfGroup) return exponents_.table + channel;
      memcpy(room, exponents_.table + channel, channels - channel);
      memcpy(room + (channels - channel), exponents_.table,
             kElementsOfGroup - (channels - channel));
      return room;
    }
    size_t left = inner - static_cast<size_t>(first_ % inner);
    for (size_t e = 0; e < kElementsOfGroup; left = inner) {
      const size_t count = left < kElementsOfGroup - e ? left : kElementsOfGroup - e;
      memset(room + e, exponents_.table[channel], count);
      e += count;
      channel = channel + 1 == channels ? 0 : channel + 1;
    }
    return room;
  }
  // Goes on to the next group.
  void advance() {
    first_ += kElementsOfGroup;
    const uint64_t into = uint64_t{into_} + (row_ > kElementsOfGroup ? kElementsOfGroup : step_);
    into_ = static_cast<uint32_t>(into >= row_ ? into - row_ : into);
  }

 private:
  [[nodiscard]] bool has_short_table() const {
    return exponents_.inner == 1 && exponents_.channels != 0 &&
           exponents_.channels < kElementsOfGroup;
  }

  const Exponents& exponents_;
  uint64_t first_;  // element of the span
  uint32_t row_;
  uint32_t step_;
  uint32_t into_;                          // the row of the first element
  int8_t repeated_[2 * kElementsOfGroup];  // a short table, over and over
};

// A group of 256 elements; the last ones are zeros in `room` if it is short.
template <class Word>
const Word* pad_group(const Word* words, size_t elements, Word* room) {
  if (elements == kElementsOfGroup) return words;
  memcpy(room, words, elements * sizeof *room);
  memset(room + elements, 0, (kElementsOfGroup - elements) * sizeof *room);
  return room;
}

inline uint32_t exponent_of_entry(int8_t entry) {
  return static_cast<uint32_t>(int32_t{entry}) << 23;
}
// Fills `exponents` of a group with those of its elements, times 2^23: the bits of a float change
// by so much. `part_exponent(part)` is that of a part.
template <class PartExponent>
void add_exponents(const PartWalk& walk, size_t elements, const int8_t* __restrict entries,
                   const PartExponent& part_exponent, uint32_t* __restrict exponents) {
  size_t part = 0;
  walk.each_part(elements, [&](size_t begin, size_t end) {
    const auto exponent = static_cast<uint32_t>(part_exponent(part++)) << 23;
    for (size_t e = begin; e < end; e += kFillAtOnce)
      for (size_t i = 0; i < kFillAtOnce; ++i) exponents[e + i] = exponent;
  });
  if (entries != nullptr)
    for (size_t e = 0; e < kElementsOfGroup; ++e) {
      const auto both = static_cast<int32_t>(exponents[e] + exponent_of_entry(entries[e]));
      exponents[e] = static_cast<uint32_t>(both > 0 ? both : 0);
    }
  memset(exponents + elements, 0, (kElementsOfGroup - elements) * sizeof *exponents);
}

}  // namespace
}  // namespace pleat::compress

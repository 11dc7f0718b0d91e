// Multiplies groups by their powers of two before they are coded. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/magnitudes.h"
#include "compress/exponents/part_walk.h"
#include "compress/grouped/group_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

// Whether a group is constant or two-valued. `other`: an element that differs from the first, or 0.
template <class Word>
bool has_few_patterns(const Word* words, size_t elements, size_t* other) {
  *other = 0;
  for (size_t e = 1; e < elements; ++e) {
    if (words[e] == words[0]) continue;
    if (*other == 0)
      *other = e;
    else if (words[e] != words[*other])
      return false;
  }
  return true;
}

// Multiplies the groups of a job by their powers of two, in order, and writes the bytes of parts.
template <class T, class Conversions>
class Raiser {
  using Word = typename T::Word;

 public:
  explicit Raiser(const EncodeGroups& job)
      : any_(job.exponents.any()),
        table_(job.exponents.channels != 0),
        fill_zero_(job.transformed),
        zeros_(job.zeros),
        parts_(job.parts),
        walk_(job.exponents, job.first_group) {}

  // The elements of the next group, times their powers of two: in `room`, or where they are.
  const Word* next(const Word* words, size_t elements, Word* room) {
    if (!any_) return words;
    bool moved = false;
    size_t count = 1;
    *parts_ = 0;
    if (table_ || !walk_.is_one_part(elements)) moved = raise(words, elements, room, &count);
    parts_ += count;
    walk_.advance();
    return moved ? room : words;
  }

 private:
  struct Sizes {
    uint32_t largest = 0;
    uint32_t part[kElementsOfGroup];  // bits of floats
  };

  __attribute__((noinline)) bool raise(const Word* words, size_t elements, Word* room,
                                       size_t* count) {
    Sizes sizes;
    int8_t room_of_entries[kElementsOfGroup];
    const int8_t* entries = nullptr;  // where some are not 0
    if (table_) {
      const int8_t* const all = walk_.read_table(room_of_entries);
      uint8_t any = 0;
      for (size_t e = 0; e < elements; ++e) any |= static_cast<uint8_t>(all[e]);
      if (any != 0) entries = all;
    }
    if (entries == nullptr) {
      uint32_t smallest = ~0u;
      *count = 0;
      walk_.each_part(elements, [&](size_t begin, size_t end) {
        const Word most = largest_magnitude<Conversions::kVectorBytes>(words + begin, end - begin);
        const uint32_t size = bits_of(T::to_float(most));
        sizes.part[(*count)++] = size;
        sizes.largest = size > sizes.largest ? size : sizes.largest;
        smallest = size < smallest ? size : smallest;
      });
      if (sizes.largest <= kLargestFinite && smallest != 0 &&
          (sizes.largest - smallest) >> 23 == 0) {
        memset(parts_, 0, *count);
        return false;
      }
    }
    return raise_unlike(words, elements, entries, room, &sizes, count);
  }

  // Goes on where not all parts are alike. `sizes` are the parts' if there are no entries and all
  // elements are finite.
  __attribute__((noinline)) bool raise_unlike(const Word* source, size_t elements,
                                              const int8_t* entries, Word* room, Sizes* sizes,
                                              size_t* count) {
    alignas(64) uint32_t exponents[kElementsOfGroup + kFillAtOnce];
    alignas(64) float values[kElementsOfGroup];
    Word padded[kElementsOfGroup];
    const Word* const words = pad_group(source, elements, padded);
    if (entries != nullptr || sizes->largest > kLargestFinite)
      *count = measure(words, elements, entries, values, sizes);
    // Parts of about one size get one exponent, whatever the table does to the largest.
    uint32_t widest = 0;
    for (size_t p = 0; p < *count; ++p) widest = sizes->part[p] > widest ? sizes->part[p] : widest;
    const uint32_t common = common_exponent(sizes->largest, widest, bits_of(T::kLargest));
    size_t zero_parts = 0, part = 0;
    walk_.each_part(elements, [&](size_t begin, size_t end) {
      const uint32_t size = sizes->part[part];
      const uint32_t up = size == 0 ? 0 : common + ((widest - size) >> 23);
      int8_t exponent = static_cast<int8_t>(up < kMostOfPart ? up : kMostOfPart);
      if (size == 0 && largest_magnitude<16>(words + begin, end - begin) == 0) {
        exponent = kZeroPart;
        ++zero_parts;
      }
      parts_[part++] = exponent;
    });
    add_exponents(
        walk_, elements, entries, [&](size_t p) { return parts_[p] == kZeroPart ? 0 : parts_[p]; },
        exponents);
    uint32_t moved = 0;
    for (size_t e = 0; e < kElementsOfGroup; ++e) moved |= exponents[e];
    size_t other;
    if ((moved == 0 && zero_parts == 0) || has_few_patterns(words, elements, &other)) {
      memset(parts_, 0, *count);
      return false;
    }
    if constexpr (T::kType == 0) {
      for (size_t e = 0; e < kElementsOfGroup; ++e)
        room[e] = bits_of(float_of(words[e]) * float_of(kOneBits + exponents[e]));
    } else {
      Conversions::template to_floats<T>(words, kElementsOfGroup, values);
      for (size_t e = 0; e < kElementsOfGroup; ++e) values[e] *= float_of(kOneBits + exponents[e]);
      Conversions::template from_floats<T>(values, kElementsOfGroup, room);
    }
    if (zero_parts != 0) fill_zero_parts(elements, values, room);
    return true;
  }

  // The sizes of the parts of any group. Returns how many there are.
  size_t measure(const Word* words, size_t elements, const int8_t* entries, float* values,
                 Sizes* sizes) const {
    alignas(64) uint32_t scaled[kElementsOfGroup];
    Conversions::template to_floats<T>(words, kElementsOfGroup, values);
    uint32_t largest = 0;
    for (size_t e = 0; e < kElementsOfGroup; ++e) {
      const uint32_t all = bits_of(values[e]) & 0x7FFF'FFFFu;
      scaled[e] = all & (0u - uint32_t{all <= kLargestFinite});
      largest = scaled[e] > largest ? scaled[e] : largest;
    }
    if (entries != nullptr)
      for (size_t e = 0; e < kElementsOfGroup; ++e)
        scaled[e] =
            bits_of(float_of(scaled[e]) * float_of(kOneBits + exponent_of_entry(entries[e])));
    sizes->largest = largest;
    size_t count = 0;
    walk_.each_part(elements, [&](size_t begin, size_t end) {
      sizes->part[count++] =
          largest_magnitude<Conversions::kVectorBytes>(scaled + begin, end - begin);
    });
    return count;
  }

  // Untransformed groups have code 0 in parts of zeros.
  void fill_zero_parts(size_t elements, float* values, Word* room) const {
    const auto each_zero_part = [&](const auto& visit) {
      const int8_t* part = parts_;
      walk_.each_part(elements, [&](size_t begin, size_t end) {
        if (*part++ == kZeroPart) visit(begin, end);
      });
    };
    Word fill = 0;
    if (!fill_zero_) {
      const float nan = float_of(0x7FC0'0000u);
      Conversions::template to_floats<T>(room, kElementsOfGroup, values);
      for (size_t e = elements; e < kElementsOfGroup; ++e) values[e] = nan;
      each_zero_part([&](size_t begin, size_t end) {
        for (size_t e = begin; e < end; ++e) values[e] = nan;
      });
      const FiniteRange range(values);
      const bool between = zeros_ && keeps_zero_between(range.least, range.most);
      if (range.least <= range.most && !between)
        fill = T::from_float(range.most <= 0.0f ? range.most : range.least);
    }
    each_zero_part([&](size_t begin, size_t end) {
      for (size_t e = begin; e < end; ++e) room[e] = fill;
    });
  }

  const bool any_, table_, fill_zero_, zeros_;
  int8_t* parts_;
  PartWalk walk_;
};

template <class T>
GroupKind kind_of_coded(const void* metadata, bool transformed, size_t g) {
  const auto kind = [&]<class Coded>() {
    Metadata<Coded> words;
    memcpy(&words, static_cast<const uint8_t*>(metadata) + g * sizeof words, sizeof words);
    return kind_of<Coded>(words);
  };
  return transformed ? kind.template operator()<Float32>() : kind.template operator()<T>();
}

// The own elements of escaped groups are kept. Their parts have no exponents.
template <class T>
void clear_escaped_parts(const EncodeGroups& job) {
  PartWalk walk(job.exponents, job.first_group);
  int8_t* parts = job.parts;
  for (size_t g = 0; g < job.groups || (g == job.groups && job.tail_elements != 0); ++g) {
    const size_t elements = g < job.groups ? kElementsOfGroup : job.tail_elements;
    const size_t count = walk.each_part(elements, [](size_t, size_t) {});
    if (kind_of_coded<T>(job.metadata, job.transformed, g) == GroupKind::kEscaped)
      memset(parts, 0, count);
    parts += count;
    walk.advance();
  }
}

// How many groups `encode` escapes.
template <class T>
size_t count_by_encoding(const EncodeGroups& job, void (*encode)(const EncodeGroups& job)) {
  if (job.bits >= kFewestWideBits && job.widest_step == kLargestFinite) return 0;
  Metadata<Float32> metadata;  // of any type
  uint8_t codes[kElementsOfGroup];
  int8_t parts[kElementsOfGroup];
  BlockResult result{};
  EncodeGroups one = job;
  one.metadata = &metadata;
  one.codes = codes;
  one.parts = parts;
  one.result = &result;
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  for (size_t g = 0; g < total; ++g) {
    one.source = static_cast<const typename T::Word*>(job.source) + g * kElementsOfGroup;
    one.first_group = job.first_group + g;
    one.groups = g < job.groups ? 1 : 0;
    one.tail_elements = g < job.groups ? 0 : job.tail_elements;
    encode(one);
  }
  return result.escaped_groups;
}

}  // namespace
}  // namespace pleat::compress

// Divides groups by their powers of two after they are restored. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/exponents/part_walk.h"
#include "compress/grouped/group_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

// Whether bits [begin, end) are all 0.
inline bool bits_are_zero(const uint8_t* bytes, size_t begin, size_t end) {
  unsigned any = 0;
  for (; begin < end && begin % 8 != 0; ++begin) any |= bytes[begin / 8] >> (begin % 8) & 1;
  for (; end > begin && end % 8 != 0; --end) any |= bytes[end / 8] >> ((end - 1) % 8) & 1;
  for (size_t byte = begin / 8; byte < end / 8; ++byte) any |= bytes[byte];
  return any == 0;
}
// Whether the codes of elements [begin, end) of a slot are all 0.
inline bool codes_are_zero(const uint8_t* slot, unsigned bits, size_t begin, size_t end) {
  const CodePlanes planes = planes_of(bits);
  return bits_are_zero(slot, begin * planes.low, end * planes.low) &&
         bits_are_zero(slot + planes.low_bytes(kElementsOfGroup), begin * planes.high,
                       end * planes.high);
}

// Divides restored groups of a job by their powers of two, in order.
template <class T, class Conversions>
class Lowerer {
  using Word = typename T::Word;

 public:
  explicit Lowerer(const DecodeGroups& job)
      : any_(job.exponents.any()),
        table_(job.exponents.channels != 0),
        checked_(!job.transformed && !job.compacted),
        bits_(job.bits),
        parts_(job.parts),
        walk_(job.exponents, job.first_group) {}

  // `words`: of the next group; `slot`: its codes, if they have regular slots. False where a part
  // of zeros has other codes, which is not found in compacted blocks.
  bool next(GroupKind kind, const uint8_t* slot, size_t elements, Word* words) {
    return !any_ || lower(kind, slot, elements, words);
  }

 private:
  __attribute__((noinline)) bool lower(GroupKind kind, const uint8_t* slot, size_t elements,
                                       Word* words) {
    int moved = *parts_;
    size_t count = 1;
    if (!walk_.is_one_part(elements)) {
      count = walk_.each_part(elements, [](size_t, size_t) {});
      for (size_t part = 1; part < count; ++part) moved |= parts_[part];
    }
    bool intact = true;
    if (moved != 0 && kind != GroupKind::kEscaped) {
      divide(elements, words);
      const bool checked = checked_ && kind == GroupKind::kRegular;
      const int8_t* part = parts_;
      walk_.each_part(elements, [&](size_t begin, size_t end) {
        if (*part++ != kZeroPart) return;
        memset(words + begin, 0, (end - begin) * sizeof *words);
        if (checked) intact &= codes_are_zero(slot, bits_, begin, end);
      });
    }
    parts_ += count;
    walk_.advance();
    return intact;
  }

  void divide(size_t elements, Word* words) const {
    alignas(64) uint32_t exponents[kElementsOfGroup + kFillAtOnce];
    alignas(64) float values[kElementsOfGroup];
    int8_t entries[kElementsOfGroup];
    add_exponents(
        walk_, elements, table_ ? walk_.read_table(entries) : nullptr,
        [&](size_t p) { return parts_[p] < 0 ? 0 : parts_[p]; }, exponents);
    Word padded[kElementsOfGroup];
    const bool whole = elements == kElementsOfGroup;
    Conversions::template to_floats<T>(pad_group<Word>(words, elements, padded), kElementsOfGroup,
                                       values);
    for (size_t e = 0; e < kElementsOfGroup; ++e) values[e] *= float_of(kOneBits - exponents[e]);
    Conversions::template from_floats<T>(values, kElementsOfGroup, whole ? words : padded);
    if (!whole) memcpy(words, padded, elements * sizeof *words);
  }

  const bool any_, table_, checked_;
  const unsigned bits_;
  const int8_t* parts_;
  PartWalk walk_;
};

// Whether decoding has to divide any element of a job's whole groups, or there is a shorter group.
inline bool has_lowered(const DecodeGroups& job) {
  if (job.tail_elements != 0) return true;
  const size_t count =
      static_cast<size_t>(parts_before(job.exponents, job.first_group + job.groups) -
                          parts_before(job.exponents, job.first_group));
  int any = 0;
  for (size_t part = 0; part < count; ++part) any |= job.parts[part];
  return any != 0;
}

}  // namespace
}  // namespace pleat::compress

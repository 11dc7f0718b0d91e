// Compacted blocks: each slot has the size that its group needs. A constant group has no slot, a
// two-valued group a bitmap, a zero-kept group a bitmap of its non-zero elements and the codes of
// those alone. A compacted block is made from regular slots and read back slot by slot. `Planes`
// are those of the instruction set. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/grouped/group_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

constexpr size_t kSlotElements = 256;
constexpr size_t kSlotBitmap = kSlotElements / 8;
constexpr size_t kMostSlots = 64;  // of a block

// The job of group `g` alone, as a last group of `elements` elements.
template <class T>
EncodeGroups group_of(const EncodeGroups& job, size_t g, size_t elements) {
  EncodeGroups one = job;
  one.source = static_cast<const typename T::Word*>(job.source) + g * kSlotElements;
  one.first_group = job.first_group + g;
  one.groups = 0;
  one.tail_elements = elements;
  one.metadata = static_cast<Metadata<T>*>(job.metadata) + g;
  one.codes = job.codes + g * kSlotBitmap * (job.bits == 0 ? 1 : job.bits);
  if (job.parts != nullptr)
    one.parts +=
        parts_before(job.exponents, one.first_group) - parts_before(job.exponents, job.first_group);
  return one;
}

// Where the second plane of a whole slot begins, if its codes have two.
inline size_t second_plane(unsigned bits) { return planes_of(bits).low_bytes(kSlotElements); }

// The 256 codes of a slot whose second plane begins at `high`.
template <class Planes, unsigned kBits>
void pack_planes(const uint8_t* codes, uint8_t* low, uint8_t* high) {
  constexpr CodePlanes kOf = planes_of(kBits);
  alignas(64) uint8_t part[kSlotElements];
  for (size_t e = 0; e < kSlotElements; ++e) part[e] = codes[e] & kOf.low_mask();
  Planes::pack(kOf.low, part, kSlotElements, low);
  for (size_t e = 0; e < kSlotElements; ++e) part[e] = static_cast<uint8_t>(codes[e] >> kOf.low);
  Planes::pack(kOf.high, part, kSlotElements, high);
}
template <class Planes, unsigned kBits>
void unpack_planes(const uint8_t* low, const uint8_t* high, uint8_t* codes) {
  constexpr CodePlanes kOf = planes_of(kBits);
  alignas(64) uint8_t part[kSlotElements];
  Planes::unpack(kOf.low, low, kSlotElements, codes);
  Planes::unpack(kOf.high, high, kSlotElements, part);
  for (size_t e = 0; e < kSlotElements; ++e)
    codes[e] = static_cast<uint8_t>(codes[e] | part[e] << kOf.low);
}
template <class Planes>
void pack_slot(unsigned bits, const uint8_t* codes, uint8_t* low, uint8_t* high) {
  if (planes_of(bits).high == 0) return Planes::pack(bits, codes, kSlotElements, low);
  return bits == 3 ? pack_planes<Planes, 3>(codes, low, high)
                   : pack_planes<Planes, 6>(codes, low, high);
}
template <class Planes>
void unpack_slot(unsigned bits, const uint8_t* low, const uint8_t* high, uint8_t* codes) {
  if (planes_of(bits).high == 0) return Planes::unpack(bits, low, kSlotElements, codes);
  return bits == 3 ? unpack_planes<Planes, 3>(low, high, codes)
                   : unpack_planes<Planes, 6>(low, high, codes);
}

// Moves all 256 codes, however many count, so that no branch depends on their number.
//
// Returns the bytes used at `out`. A bitmap and a whole slot are overwritten there.
template <class Planes>
size_t squeeze_slot(unsigned bits, const uint8_t* slot, uint8_t* out) {
  alignas(64) uint8_t codes[kSlotElements];
  alignas(64) uint8_t kept[kSlotElements] = {};
  unpack_slot<Planes>(bits, slot, slot + second_plane(bits), codes);
  const size_t count = Planes::squeeze(codes, kSlotElements, out, kept);
  const size_t eighths = (count + 7) / 8;
  uint8_t* const low = out + kSlotBitmap;
  pack_slot<Planes>(bits, kept, low, low + planes_of(bits).low * eighths);
  return kSlotBitmap + bits * eighths;
}

// The bytes that each bit plane of a squeezed slot takes; `from`: its bitmap.
inline size_t squeezed_eighths(const uint8_t* from) {
  size_t count = 0;
  for (size_t byte = 0; byte < kSlotBitmap; byte += 8) {
    uint64_t eight;
    memcpy(&eight, from + byte, sizeof eight);
    count += static_cast<size_t>(__builtin_popcountll(eight));
  }
  return (count + 7) / 8;
}
inline size_t squeezed_slot_bytes(unsigned bits, const uint8_t* from) {
  return kSlotBitmap + bits * squeezed_eighths(from);
}

// Makes a regular slot of a squeezed one. At most `left` bytes may be read. Returns the bytes read,
// 0 if the squeezed slot is longer.
template <class Planes>
size_t expand_slot(unsigned bits, const uint8_t* from, size_t left, uint8_t* slot) {
  if (left < kSlotBitmap) return 0;
  const CodePlanes planes = planes_of(bits);
  const size_t eighths = squeezed_eighths(from), bytes = kSlotBitmap + bits * eighths;
  if (left < bytes) return 0;
  const uint8_t *low = from + kSlotBitmap, *high = low + planes.low * eighths;
  alignas(64) uint8_t padded[2 * kSlotElements];
  if (left < kSlotBitmap * (1 + bits)) {  // reading a whole slot might reach beyond
    memset(padded, 0, sizeof padded);
    memcpy(padded, low, planes.low * eighths);
    memcpy(padded + kSlotElements, high, planes.high * eighths);
    low = padded, high = padded + kSlotElements;
  }
  alignas(64) uint8_t kept[kSlotElements + 8];
  alignas(64) uint8_t codes[kSlotElements];
  unpack_slot<Planes>(bits, low, high, kept);
  Planes::expand(from, kSlotElements, kept, codes);
  pack_slot<Planes>(bits, codes, slot, slot + second_plane(bits));
  return bytes;
}

// Rewrites the block (or less) that `job` encoded at job.codes as a compacted block, if that saves
// an eighth of its slots and 16 bytes, which is more than its offset takes. Returns the bytes of
// the block's slots; if these are the regular slots' bytes, the block was left as it was.
template <class T, class Planes>
size_t compact_block(const EncodeGroups& job) {
  const size_t slot = 32 * (job.bits == 0 ? 1 : job.bits);
  const size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const size_t regular = total * slot;
  const size_t most = regular - regular / 8 < regular - 16 ? regular - regular / 8 : regular - 16;
  const BlockResult& seen = *job.result;
  if (seen.escaped_groups != 0) return regular;  // they are numbered later, in regular slots
  // The fewest bytes it can take. Padding counts as zeros.
  size_t least = regular - seen.constant_groups * slot - seen.two_valued_groups * (slot - 32);
  if (!job.transformed) {
    const size_t padding = job.tail_elements == 0 ? 0 : kSlotElements - job.tail_elements;
    const size_t zeros = (seen.elements_at_minimum + padding) * job.bits / 8;
    least -= zeros < least ? zeros : least;
  }
  if (least > most) return regular;

  Metadata<T> metadata[kMostSlots];
  memcpy(metadata, job.metadata, total * sizeof metadata[0]);
  const auto squeezed = [&](size_t g) { return !job.transformed && is_zero_kept<T>(metadata[g]); };
  for (size_t g = 0; g < total; ++g) least += squeezed(g) ? kSlotBitmap : 0;
  if (least > most) return regular;
  alignas(64) uint8_t compacted[kMostSlots * (kSlotBitmap + kSlotElements)];
  uint8_t* out = compacted;
  for (size_t g = 0; g < total; ++g) {
    const uint8_t* const from = job.codes + g * slot;
    if (squeezed(g)) {
      out += squeeze_slot<Planes>(job.bits, from, out);
      continue;
    }
    const size_t bytes = slot_bytes_of<T>(metadata[g], slot);
    memcpy(out, from, bytes);
    out += bytes;
  }
  const size_t bytes = static_cast<size_t>(out - compacted);
  if (bytes > most) return regular;
  memcpy(job.codes, compacted, bytes);
  return bytes;
}

}  // namespace
}  // namespace pleat::compress

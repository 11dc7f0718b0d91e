// Compacted blocks: each slot has the size that its group needs. A constant group has no slot, a
// two-valued group a bitmap, a zero-kept group a bitmap of its non-zero elements and the codes of
// those alone. A compacted block is made from regular slots and read back slot by slot. `Planes`
// are those of the instruction set. Anonymous: see kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "compress/group_math.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

constexpr size_t kSlotElements = 256;
constexpr size_t kSlotBitmap = kSlotElements / 8;
constexpr size_t kMostSlots = 64;  // of a block

// The 256 codes of a slot. Codes of 3 bits are a plane of two bits and a plane of one, which begins
// at `high`; other widths are one plane.
template <class Planes>
void pack_slot(unsigned bits, const uint8_t* codes, uint8_t* low, uint8_t* high) {
  if (bits != 3) return Planes::pack(bits, codes, kSlotElements, low);
  alignas(64) uint8_t part[kSlotElements];
  for (size_t e = 0; e < kSlotElements; ++e) part[e] = codes[e] & 3;
  Planes::pack(2, part, kSlotElements, low);
  for (size_t e = 0; e < kSlotElements; ++e) part[e] = static_cast<uint8_t>(codes[e] >> 2);
  Planes::pack(1, part, kSlotElements, high);
}
template <class Planes>
void unpack_slot(unsigned bits, const uint8_t* low, const uint8_t* high, uint8_t* codes) {
  if (bits != 3) return Planes::unpack(bits, low, kSlotElements, codes);
  alignas(64) uint8_t part[kSlotElements];
  Planes::unpack(2, low, kSlotElements, codes);
  Planes::unpack(1, high, kSlotElements, part);
  for (size_t e = 0; e < kSlotElements; ++e)
    codes[e] = static_cast<uint8_t>(codes[e] | part[e] << 2);
}

// Moves all 256 codes, however many count, so that no branch depends on their number.
//
// Returns the bytes used at `out`. A bitmap and a whole slot are overwritten there.
template <class Planes>
size_t squeeze_slot(unsigned bits, const uint8_t* slot, uint8_t* out) {
  alignas(64) uint8_t codes[kSlotElements];
  alignas(64) uint8_t kept[kSlotElements] = {};
  unpack_slot<Planes>(bits, slot, slot + 64, codes);
  const size_t count = Planes::squeeze(codes, kSlotElements, out, kept);
  const size_t eighths = (count + 7) / 8;
  pack_slot<Planes>(bits, kept, out + kSlotBitmap, out + kSlotBitmap + 2 * eighths);
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
  const size_t eighths = squeezed_eighths(from), bytes = kSlotBitmap + bits * eighths;
  if (left < bytes) return 0;
  const uint8_t *low = from + kSlotBitmap, *high = low + 2 * eighths;
  alignas(64) uint8_t padded[2 * kSlotElements];
  if (left < kSlotBitmap * (1 + bits)) {  // reading a whole slot might reach beyond
    memset(padded, 0, sizeof padded);
    memcpy(padded, low, (bits == 3 ? 2 : bits) * eighths);
    memcpy(padded + kSlotElements, high, bits == 3 ? eighths : 0);
    low = padded, high = padded + kSlotElements;
  }
  alignas(64) uint8_t kept[kSlotElements + 8];
  alignas(64) uint8_t codes[kSlotElements];
  unpack_slot<Planes>(bits, low, high, kept);
  Planes::expand(from, kSlotElements, kept, codes);
  pack_slot<Planes>(bits, codes, slot, slot + 64);
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

// Which bucket and which sign an element of a sketched vector gets, on every path. Elements are
// taken in rows of 256. A row is rotated by a random number of buckets, so that the elements in one
// column of a matrix spread over all of them, and within a row no two elements meet. Each row takes
// a few hashes, not each element. Anonymous: see element_math.h.
#pragma once

#include <stdint.h>

#include "compress/host_device.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kSketchRow = 256;

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
PLEAT_HD constexpr uint64_t sketch_hash(uint64_t x) {
  x += 0x9e37'79b9'7f4a'7c15u;
  x = (x ^ (x >> 30)) * 0xbf58'476d'1ce4'e5b9u;
  x = (x ^ (x >> 27)) * 0x94d0'49bb'1331'11ebu;
  return x ^ (x >> 31);
}

inline constexpr unsigned kRowsPerPart = 512;
inline constexpr uint64_t kElementsPerPart = uint64_t{kRowsPerPart} * kSketchRow;
PLEAT_HD constexpr uint64_t parts_of_sketch(uint64_t elements) {
  return elements / kElementsPerPart + (elements % kElementsPerPart != 0 ? 1 : 0);
}

struct SketchRow {
  uint64_t start;

  //   hashed_seed  sketch_hash(seed)
  PLEAT_HD SketchRow(uint64_t hashed_seed, uint64_t number)
      : start(sketch_hash(hashed_seed ^ number)) {}
  // The element in column c goes to bucket (c + rotation) % 256.
  PLEAT_HD unsigned rotation() const {
    return static_cast<unsigned>(sketch_hash(start) % kSketchRow);
  }
  // Bit i is set if the sign of the element in column 64 w + i turns.
  PLEAT_HD uint64_t signs(unsigned w) const { return sketch_hash(start + 1 + 2 * w); }
};

}  // namespace
}  // namespace pleat::compress

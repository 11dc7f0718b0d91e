// The inner loops as a table of functions, one table per instruction set. Plain structs and
// pointers only: these headers are compiled with -mavx512f, where an inline function of the
// standard library would be emitted as AVX-512 code and could replace the copy that all others use.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/exponents/exponents.h"

namespace pleat::compress {

// The counts of one block of 64 groups. 64 bytes, so that blocks share no cache line.
struct alignas(64) BlockResult {
  uint64_t elements_at_minimum;  // zeros of zero-kept groups
  uint32_t constant_groups;
  uint32_t two_valued_groups;
  uint32_t escaped_groups;
  uint32_t lossy_groups;
  uint32_t compacted;  // 1: the block is compacted; not set by kernels
};

// Consecutive groups of floats to encode.
//   bits 0: only constant and two-valued groups are coded, every other one is marked escaped.
//   1, 2: groups with NaN or Inf or whose range overflows are escaped; from 3 on they are wide.
// Escaped groups get their mark in the metadata and a zeroed slot; the caller keeps their bytes.
struct EncodeGroups {
  const void* source;    // first element of the first group
  uint64_t first_group;  // its number in the span: part of the dither's counter
  size_t groups;         // whole groups
  size_t tail_elements;  // of a last, shorter group after them; 0: none
  unsigned bits;
  bool transformed;  // transform_kernels.h
  bool scaled;       // likewise; only with `transformed`, 1 or 2 bits
  uint64_t nonce;
  void* metadata;  // of the first group
  uint8_t* codes;  // slot of the first group; slots follow each other
  BlockResult* result;
  // A group whose step is wider than the float with these bits is escaped; all finite ones pass.
  uint32_t widest_step = 0x7F7F'FFFFu;
  bool never_wide = false;  // what would be a wide group is escaped
  bool zeros = false;       // groups of both signs keep zeros exactly; from 2 bits on
  Exponents exponents{};    // not with bits 0
  int8_t* parts = nullptr;  // with exponents: where the bytes of the parts of these groups go
};

struct DecodeGroups {
  const void* metadata;
  const uint8_t* codes;      // slot of the first group
  const uint8_t* codes_end;  // no slot may reach beyond
  const uint8_t* escapes;    // table of raw groups
  uint64_t escape_count;
  uint64_t first_group;
  size_t groups;
  size_t tail_elements;
  unsigned bits;
  bool compacted;  // slots have the size that their group needs: compacted_blocks.h
  bool squeezed;   // zero-kept groups too; only with `compacted`, 2 bits or more, not transformed
  bool transformed;
  bool scaled;
  bool stream;  // write past the caches; target is 64-byte aligned then
  uint64_t nonce;
  void* target;
  bool zeros = false;  // as EncodeGroups
  Exponents exponents{};
  const int8_t* parts = nullptr;
};

// An activation to apply in place to groups that decode() has just filled.
struct ApplyFunction {
  enum Function : uint8_t { kGelu, kGeluTanh, kSilu } function;
  const void* metadata;  // of the first group; null: the arguments carry no noise
  unsigned bits;         // the width they were coded with
  size_t groups;         // whole groups
  size_t tail_elements;
  void* data;
  bool zeros = false;       // as EncodeGroups
  float divided_by = 1.0f;  // a power of two; the restored elements were
};

// The bounds that elements are compared with, and the side of NaN: side_math.h. Of three sides NaN
// is always on the middle one.
struct SideTest {
  float first, last;
  bool nan_inside;
  bool three;
};

// How values that noise has carried across a bound get back: to the least or the largest value of
// side 1, from there to the next value below or above it. `below` is for side 0, `above` for side
// 2; of two sides there is one bound, and `below` is the next value on its other side.
struct SideMoves {
  SideTest test;
  uint32_t first, last, below, above;  // words
  bool has_below, has_above;           // there are such values
};

struct Kernels {
  // Indexed by element type: float32, bfloat16, float16.
  void (*encode[3])(const EncodeGroups& job);
  bool (*decode[3])(const DecodeGroups& job);  // false: the payload is damaged
  // Compacts in place, where it pays, a block of 64 groups (the last may have fewer) that encode()
  // wrote. Returns the bytes of its slots. Indexed by the type of the metadata.
  size_t (*compact[3])(const EncodeGroups& job);
  // Returns how many groups encode() would mark escaped. Writes nothing.
  size_t (*count_escapes[3])(const EncodeGroups& job);

  // Booleans. `elements` is a multiple of 8, except in the last part.
  bool (*are_booleans)(const uint8_t* source, size_t elements);  // every byte 0 or 1
  bool (*pack_booleans)(const uint8_t* source, size_t elements,
                        uint8_t* bits);  // false: not all bytes were booleans
  void (*unpack_booleans)(const uint8_t* bits, size_t elements, uint8_t* target, bool stream);

  // Frames of reference (frame_kernels.h), indexed by element type; none for booleans. `elements`
  // is a multiple of the frame's size, except at the end of the span. `entries` are those of the
  // frames.
  void (*measure_frames[6])(const void* source, size_t elements, void* entries);
  void (*pack_frames[6])(const void* source, size_t elements, const void* entries, uint8_t* codes);
  void (*unpack_frames[6])(const uint8_t* codes, size_t elements, const void* entries,
                           void* target);

  // Indexed by element type, as decode.
  void (*apply[3])(const ApplyFunction& job);

  // Sides, one or two bits each; indexed likewise. `elements` is a multiple of 32, except in the
  // last part. `values` holds the two or three elements to restore, in 32 bits each. false: some
  // code is no side.
  void (*pack_sides[3])(const void* source, size_t elements, const SideTest& test, uint8_t* codes);
  bool (*unpack_sides[3])(const uint8_t* codes, size_t elements, bool three, const uint32_t* values,
                          void* target, bool stream);
  // Moves elements to the sides that the codes say. NaN stays as it is.
  bool (*move_to_sides[3])(const uint8_t* codes, size_t elements, const SideMoves& moves,
                           void* target);
};

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// The table in use. set_isa() chooses among the above; tests may put in their own.
const Kernels& kernels() noexcept;
void use_kernels(const Kernels* replacement) noexcept;

// Results of at least this many bytes are written past the caches, because a plain store would
// first read the lines that it overwrites. Smaller results are read soon and then found in the
// last-level cache. The threshold is a quarter of that cache (1 to 64 MiB; 8 MiB where the cache is
// unknown). Tests may set it; 0: as found.
size_t stream_threshold() noexcept;
void set_stream_threshold(size_t bytes) noexcept;

// Shared slow path, compiled once for the baseline: one group of `elements` <= 256 floats as a wide
// one, or escaped if its step is too wide; writes metadata of float32.
void encode_wide_group(const EncodeGroups& job, const float* values, size_t elements);

}  // namespace pleat::compress

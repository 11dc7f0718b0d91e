// The input of a launch and its reports, as plain words that host and device lay out alike. One
// launch serves up to kMostJobs spans of one type, width and transform. The jobs are the kernel's
// parameter, so a launch needs neither a copy nor a wait.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "compress/exponents/exponents.h"
#include "compress/host_device.h"

namespace pleat::compress::cuda {

// How a job ended. The device writes it last, when the payload or the target is complete.
enum class Outcome : uint32_t {
  kPending = 0,  // not yet
  kDone = 1,
  kKeepRaw =
      2,  // encode: too many escaped groups (not from 3 bits on), a byte that is no boolean, an
          // integer outside the predicted range, frames beyond the capacity or no smaller than raw.
          // The source is untouched; the payload's header is invalid, unless in place
  kCorrupt =
      3,  // decode: not the payload that the job expects; the target's contents are undefined
};

// May lie in host memory that the device can write: a later poll then needs no copy.
struct Verdict {
  Outcome outcome = Outcome::kPending;
  uint32_t escapes = 0;  // groups in the escape table (also when they were too many)
  // Encode: bytes of the payload. With kKeepRaw: bytes that a better prediction has to allow for.
  // For framed floats that is the capacity; for integers, the payload with the width they need
  // above the predicted minimum; 0 if there is none.
  uint64_t payload_bytes = 0;
  // Encode of grouped floats for which DeviceTask::widest_step or DeviceTask::beside asks: groups
  // whose step is wider, groups of which an element may come back on another side, and the widest
  // step of all quantised groups, 0 if there is none. Else 0.
  uint32_t too_wide = 0;
  uint32_t leaving = 0;
  float widest = 0;
  // Lines, elements near zero: how many have to be kept, also when they are more than there is room
  // for.
  uint32_t kept = 0;
};
static_assert(sizeof(Verdict) == 32);

// Device memory that a running job uses. Zero before and after every launch, so memory cleared once
// serves a stream for ever. Each job of a launch has its own.
struct Counters {
  uint32_t parts_done;  // tiles; in place: blocks
  uint32_t escapes;
  uint32_t lossy;   // some group was quantised
  uint32_t misses;  // booleans and integers: bits needed if the form does not hold them; decode:
                    // damaged groups or frames; elements near zero: some were not counted
  uint32_t too_wide;
  uint32_t leaving;
  uint32_t widest;  // bits of a float
  uint32_t kept;    // lines, elements near zero
};
static_assert(sizeof(Counters) == 32);

struct Job {
  const void* source;  // encode: the span; decode: the payload
  void* target;        // encode: the payload, 64-byte aligned; decode: the span; to measure parts:
                       // their bytes
  Verdict* verdict;
  Counters* counters;  // framed floats: at the head of their scratch memory, see frame_chain.h
  uint64_t elements;
  uint64_t nonce;
  union {
    int64_t minimum;    // integers: predicted
    void* scratch;      // in place: see in_place_core.h
    uint64_t capacity;  // floats: bytes of the payload's memory; not used to encode groups
    float bounds[2];    // encode: of sides, or of sides beside the values (watch_core.h)
  };
  uint32_t first_tile;  // of the launch
  uint32_t width;       // bits per element: of integers, of a survey, and of sides (side_core.h);
                        // encode of quantised floats: see watch_core.h; of booleans: bits that
                        // count of a byte, 1 or 8
  // Quantised floats, not in place.
  uint32_t row;  // Exponents, 0: none; their table only to encode
  uint32_t channels;
  uint32_t inner;
  uint8_t zeros;  // 1: kFlagZeros
  uint8_t unused[3];
  const int8_t* table;

  PLEAT_HD Exponents exponents() const { return {row, channels, inner, table}; }
};
static_assert(sizeof(Job) == 88);

inline constexpr unsigned kMostJobs = 46;
struct Batch {
  uint32_t jobs;
  uint32_t tiles;  // of all jobs
  uint32_t reserved[2];
  Job job[kMostJobs];
};
static_assert(sizeof(Batch) <= 4096, "the parameter space every driver has");

// Lines of a span, kept or restored (lines_core.h), or a span that is mixed (mix_core.h).
struct LineJob {
  union {
    const void* source;  // keep
    void* target;        // restore; mixed
  };
  const void* codes;  // keep; mixed: the span's payload
  void* section;      // mixed: the elements in between
  union {
    void* scratch;    // keep, columns
    float bounds[2];  // mixed: of the sides beside the values
  };
  Verdict* verdict;
  Counters* counters;
  uint64_t elements;
  uint32_t first_tile;  // of the launch
  union {
    uint32_t length;  // elements of a row
    float amplitude;  // mixed
  };
  union {
    uint32_t most;      // lines that the section has room for
    float widest_step;  // mixed: of a group that is not left as it is
  };
  uint8_t look;  // a Look; mixed: see mix_look()
  uint8_t bits;
  uint8_t transformed;
  uint8_t scaled;  // groups may be scaled ones
  // Mixed, as Job has them; 0: none.
  uint32_t row;
  uint32_t channels;
  uint32_t inner;
  uint32_t unused;
  const int8_t* parts;  // of all groups, before the table
};
static_assert(sizeof(LineJob) == 96);

inline constexpr unsigned kMostLineJobs = 42;
struct LineBatch {
  uint32_t jobs;
  uint32_t tiles;
  uint32_t reserved[2];
  LineJob job[kMostLineJobs];
  uint64_t unused[2];
};
static_assert(sizeof(LineBatch) == sizeof(Batch),
              "a launch's parameter is as long for every kernel");

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kBlocksPerMultiprocessor = 3;   // registers must suffice for as many
inline constexpr unsigned kGroupsPerTile = kThreads / 8;  // eight lanes per group
inline constexpr unsigned kElementsPerTile = kGroupsPerTile * 256;

// The job that tile `tile` of the launch belongs to. `from`: a job at or before it.
template <class AnyBatch>
PLEAT_HD inline unsigned find_job(const AnyBatch& batch, unsigned tile, unsigned from) {
  while (from + 1 < batch.jobs && batch.job[from + 1].first_tile <= tile) ++from;
  return from;
}
template <class AnyBatch>
PLEAT_HD inline unsigned end_of_job(const AnyBatch& batch, unsigned job) {
  return job + 1 < batch.jobs ? batch.job[job + 1].first_tile : batch.tiles;
}

PLEAT_HD constexpr uint64_t tiles_of(uint64_t elements) {
  return elements / kElementsPerTile + (elements % kElementsPerTile != 0 ? 1 : 0);
}

}  // namespace pleat::compress::cuda

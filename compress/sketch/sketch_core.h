// The sum that a thread computes of a sketched vector: one bucket of one part (sketch_rows.h).
// Reads of a warp are in a row but for the rotation.
#pragma once

#include "compress/device/jobs.h"
#include "compress/element_math.h"
#include "compress/sketch/sketch_rows.h"

namespace pleat::compress {
namespace {

static_assert(cuda::kThreads == kSketchRow, "a thread has a bucket");

// A job's target are its parts, its nonce is the seed.
template <class T>
PLEAT_HD inline void sketch_bucket(const cuda::Job& job, uint64_t part, unsigned bucket) {
  const auto* const values = static_cast<const typename T::Word*>(job.source);
  const bool as_it_is = job.elements <= kSketchRow;
  const uint64_t hashed_seed = sketch_hash(job.nonce);
  double sum = 0, squares = 0;
  for (unsigned r = 0; r < kRowsPerPart; ++r) {
    const uint64_t number = part * kRowsPerPart + r;
    if (number * kSketchRow >= job.elements) break;
    const SketchRow row(hashed_seed, number);
    const unsigned column = as_it_is ? bucket : (bucket - row.rotation()) % kSketchRow;
    const uint64_t element = number * kSketchRow + column;
    if (element >= job.elements) continue;
    const double value = static_cast<double>(T::to_float(values[element]));
    const bool turns = !as_it_is && (row.signs(column / 64) >> column % 64 & 1) != 0;
    sum += turns ? -value : value;
    squares += value * value;
  }
  double* const out = static_cast<double*>(job.target) + part * 2 * kSketchRow;
  out[bucket] = sum;
  out[kSketchRow + bucket] = squares;
}

}  // namespace
}  // namespace pleat::compress

// Keeps and restores elements near zero: the runs of near_zero_core.h.
#pragma once

#include "compress/device/strides.cuh"
#include "compress/near_zero/near_zero_core.h"

namespace pleat::compress {
namespace {

template <class T>
__device__ void keep_near_zero(const Batch& batch) {
  by_tiles(
      batch,
      [](const Job& job, unsigned tile) {
        const uint64_t first = uint64_t{tile} * (cuda::kElementsPerTile / kNearZeroRun);
        for (unsigned k = 0; k < cuda::kElementsPerTile / kNearZeroRun; k += kThreads) {
          const uint64_t run = first + k + threadIdx.x;
          if (run * kNearZeroRun >= job.elements) continue;
          if (!keep_run<T>(job, run, [&](uint32_t n) { return atomicAdd(&job.counters->kept, n); }))
            atomicOr(&job.counters->misses, 1u);
        }
      },
      [](ThreadBlock& block, const Job& job, const Counters& counted) {
        finish_near_zero<T>(block, job, counted);
      });
}
template <class T>
__device__ void restore_near_zero(const Batch& batch) {
  by_tiles(
      batch,
      [](const Job& job, unsigned tile) {
        bool good = near_zero_fits<T>(job);
        const uint64_t first = uint64_t{tile} * cuda::kElementsPerTile;
        for (unsigned k = 0; good && k < cuda::kElementsPerTile; k += kThreads)
          good &= restore_near_zero<T>(job, first + k + threadIdx.x);
        if (!good) atomicOr(&job.counters->misses, 1u);
      },
      [](ThreadBlock& block, const Job& job, const Counters& counted) {
        block.publish(job.verdict, counted.misses != 0 ? Outcome::kCorrupt : Outcome::kDone);
      });
}

}  // namespace
}  // namespace pleat::compress

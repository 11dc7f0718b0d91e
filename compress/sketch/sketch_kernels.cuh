// Sketches vectors: the buckets of sketch_core.h.
#pragma once

#include "compress/device/threads.cuh"
#include "compress/sketch/sketch_core.h"

namespace pleat::compress {
namespace {

// No block waits for all parts: a job has no last block.
template <class T>
__device__ void sketch(const Batch& batch) {
  unsigned number = 0;
  for (unsigned part = blockIdx.x; part < batch.tiles; part += gridDim.x) {
    number = find_job(batch, part, number);
    const Job& job = batch.job[number];
    sketch_bucket<T>(job, part - job.first_tile, threadIdx.x);
  }
}

}  // namespace
}  // namespace pleat::compress

// The two kernels of coding in place: a survey, and the steps of in_place_core.h.
#pragma once

#include "compress/device/threads.cuh"
#include "compress/in_place/in_place_core.h"

namespace pleat::compress {
namespace {

// In place: one job per launch. The first kernel sets up the job's scratch memory and counts the
// groups that escape.
template <class T>
__device__ void survey(const Batch& batch) {
  const Job& job = batch.job[0];
  const auto* const source = static_cast<const typename T::Word*>(job.source);
  uint32_t* const flags = flags_of(job);
  unsigned tiles = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x, ++tiles) {
    if (threadIdx.x == 0) flags[tile] = 0;
    const GroupOfTile at(job.elements, tile, threadIdx.x / kTileLanes);
    ThreadTile<T> lanes;
    const bool escaped =
        survey_group<T>(lanes, source + at.group * kGroupSize, at.elements, true, job.width);
    if (escaped && at.own && threadIdx.x % kTileLanes == 0) atomicAdd(&job.counters->escapes, 1u);
  }
  Counters counted;
  if (hand_in(job, tiles, batch.tiles, &counted) && threadIdx.x == 0)
    *state_of(job) = {0, 0, counted.escapes, {}};
}

// The second kernel does the steps of in_place_core.h. It counts blocks, not tiles, because a block
// that finds no tile left reads the scratch memory, too.
template <class F>
__device__ void encode_in_place(const Batch& batch) {
  __shared__ Staged<F> staged;
  __shared__ unsigned ticket;
  const Job& job = batch.job[0];
  InPlaceState* const state = state_of(job);
  const uint32_t escapes = state->escapes;
  const InPlaceLayout<F> layout(job.elements);
  volatile uint32_t* const flags = flags_of(job);
  ThreadBlock block;
  bool lossy = false;
  while (!layout.refuses(escapes, job.elements)) {
    if (threadIdx.x == 0) ticket = atomicAdd(&state->ticket, 1u);
    __syncthreads();
    const unsigned tile = ticket;
    if (tile >= batch.tiles) break;
    ThreadTile<typename F::Coded> lanes;
    const GroupKind kind = stage_group<F>(lanes, job, tile, threadIdx.x / kTileLanes, staged,
                                          [&] { return atomicAdd(&state->aside, 1u); });
    lossy |= is_lossy(kind);
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      flags[tile] = 1;
      if (!layout.bounces(tile))
        layout.each_under(tile, [&](uint64_t k) {
          while (flags[k] == 0) __nanosleep(40);
        });
      __threadfence();
    }
    __syncthreads();
    write_staged<F>(block, job, tile, staged);
  }
  if (__syncthreads_or(lossy) && threadIdx.x == 0) atomicOr(&job.counters->lossy, 1u);
  Counters counted;
  if (hand_in(job, 1, gridDim.x, &counted))
    finish_in_place<F>(block, job, escapes, counted.lossy != 0);
}

}  // namespace
}  // namespace pleat::compress

// How the blocks of a launch stride over the tiles of its jobs, for forms without groups.
#pragma once

#include "compress/device/threads.cuh"

namespace pleat::compress {
namespace {

// A block strides over the launch's tiles.
//   part(job, tile)               a tile of a job, by the whole block
//   finish(block, job, counted)   by the last block of a job
template <class AnyBatch, class Part, class Finish>
__device__ void by_tiles(const AnyBatch& batch, Part part, Finish finish) {
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const auto& job = batch.job[number];
    const unsigned end = end_of_job(batch, number);
    unsigned tiles = 0;
    for (; tile < end; tile += gridDim.x, ++tiles) part(job, tile - job.first_tile);
    Counters counted;
    if (!hand_in(job, tiles, end - job.first_tile, &counted)) continue;
    ThreadBlock block;
    finish(block, job, counted);
  }
}

// Every thread takes its runs of a tile.
//   open(job)              once per job and thread, before the first run
//   pack(job, run)         0, or the bits that an element needs which the form does not hold
//   finish(block, job, needed)
template <unsigned kRun, class Open, class Pack, class Finish>
__device__ void pack_spans(const Batch& batch, Open open, Pack pack, Finish finish) {
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const unsigned end = end_of_job(batch, number);
    open(job);
    unsigned tiles = 0;
    unsigned needed = 0;
    for (; tile < end; tile += gridDim.x, ++tiles) {
      const uint64_t first = uint64_t{tile - job.first_tile} * (cuda::kElementsPerTile / kRun);
      for (unsigned k = 0; k < cuda::kElementsPerTile / kRun; k += kThreads) {
        const uint64_t run = first + k + threadIdx.x;
        if (run * kRun < job.elements) needed = max(needed, pack(job, run));
      }
    }
    if (needed != 0) atomicMax(&job.counters->misses, needed);
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    finish(block, job, counted.misses);
  }
}

// The way back.
//   open(job, header)      false: not the payload that the job expects
//   load(job, run)         the part of the payload that unpack() needs
//   unpack(job, run, it)   false: damaged
// A thread loads for all its runs of a tile before it unpacks the first: each would wait for memory
// otherwise.
template <unsigned kRun, class Open, class Load, class Unpack>
__device__ void unpack_spans(const Batch& batch, Open open, Load load, Unpack unpack) {
  constexpr unsigned kRuns = cuda::kElementsPerTile / kRun / kThreads;  // of a thread
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const unsigned end = end_of_job(batch, number);
    const Header header = load_header(job.source);
    bool damaged = !open(job, header);
    const bool readable = !damaged;
    unsigned tiles = 0;
    for (; tile < end; tile += gridDim.x, ++tiles) {
      if (!readable) continue;
      const uint64_t first =
          uint64_t{tile - job.first_tile} * (cuda::kElementsPerTile / kRun) + threadIdx.x;
      decltype(load(job, first)) loaded[kRuns];
      PLEAT_UNROLL
      for (unsigned k = 0; k < kRuns; ++k) {
        const uint64_t run = first + k * kThreads;
        if (run * kRun < job.elements) loaded[k] = load(job, run);
      }
      PLEAT_UNROLL
      for (unsigned k = 0; k < kRuns; ++k) {
        const uint64_t run = first + k * kThreads;
        if (run * kRun < job.elements) damaged |= !unpack(job, run, loaded[k]);
      }
    }
    if (__syncthreads_or(damaged) && threadIdx.x == 0) atomicOr(&job.counters->misses, 1u);
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    block.publish(job.verdict, counted.misses != 0 ? Outcome::kCorrupt : Outcome::kDone);
  }
}

}  // namespace
}  // namespace pleat::compress

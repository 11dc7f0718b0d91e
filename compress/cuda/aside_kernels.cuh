// The kernels of sections beside codes (lines_core.h, near_zero_core.h), of noise (mix_core.h) and
// of sketches (sketch_core.h).
#pragma once

#include "compress/cuda/mix_core.h"
#include "compress/device/threads.cuh"
#include "compress/lines/lines_core.h"
#include "compress/near_zero/near_zero_core.h"
#include "compress/sketch/sketch_core.h"

namespace pleat::compress {
namespace {

using cuda::LineBatch;
using cuda::LineJob;

// A block strides over the launch's tiles, as in kernels.cu.
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

template <class T>
__device__ void look_at_columns(const LineBatch& batch) {
  by_tiles(
      batch,
      [](const LineJob& job, unsigned tile) {
        look_at_columns<T>(job, tile, threadIdx.x, kThreads);
      },
      [](ThreadBlock& block, const LineJob& job, const Counters&) {
        finish_looking<T>(block, job);
      });
}
template <class T>
__device__ void keep_lines(const LineBatch& batch) {
  by_tiles(
      batch,
      [](const LineJob& job, unsigned tile) {
        const LineShape shape = LineShape::of<T>(job);
        if (shape.columns) return read_columns<T>(job, tile, threadIdx.x, kThreads);
        const unsigned word = tile * kWordsPerLineTile + threadIdx.x / 32;
        if (word >= shape.words()) return;
        FoldingWarp warp;
        const unsigned found = look_at_rows<T>(warp, job, word);
        if (found != 0) warp.once([&] { atomicAdd(&job.counters->kept, found); });
      },
      [](ThreadBlock& block, const LineJob& job, const Counters& counted) {
        const bool columns = static_cast<Look>(job.look) == Look::kColumns;
        finish_lines<T>(block, job, columns || counted.kept != 0);
      });
}
template <class T>
__device__ void restore_lines(const LineBatch& batch) {
  by_tiles(
      batch,
      [](const LineJob& job, unsigned tile) {
        const bool good = lines_fit<T>(job) &&
                          restore_line_tile<T>(job, tile, threadIdx.x / 32, threadIdx.x % 32);
        if (!good) atomicOr(&job.counters->misses, 1u);
      },
      [](ThreadBlock& block, const LineJob& job, const Counters& counted) {
        block.publish(job.verdict, counted.misses != 0 ? Outcome::kCorrupt : Outcome::kDone);
      });
}

template <class T>
__device__ void spread(const LineBatch& batch) {
  by_tiles(
      batch,
      [](const LineJob& job, unsigned tile) {
        ThreadTile<T> lanes;
        spread_group<T>(lanes, job, GroupOfTile(job.elements, tile, threadIdx.x / kTileLanes));
      },
      [](ThreadBlock& block, const LineJob& job, const Counters&) {
        block.publish(job.verdict, has_codes(job) ? Outcome::kDone : Outcome::kKeepRaw);
      });
}
template <class T>
__device__ void mix(const LineBatch& batch) {
  by_tiles(
      batch,
      [](const LineJob& job, unsigned tile) {
        if (!has_codes(job)) return;
        ThreadTile<T> lanes;
        mix_group<T>(lanes, job, MixRules<T>(job),
                     GroupOfTile(job.elements, tile, threadIdx.x / kTileLanes));
      },
      [](ThreadBlock& block, const LineJob& job, const Counters&) {
        block.publish(job.verdict, has_codes(job) ? Outcome::kDone : Outcome::kKeepRaw);
      });
}

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

// Finds, keeps and restores lines: the tiles of lines_core.h.
#pragma once

#include "compress/device/strides.cuh"
#include "compress/lines/lines_core.h"

namespace pleat::compress {
namespace {

using cuda::LineBatch;
using cuda::LineJob;

// The Warp that lines_core.h is written against.
class FoldingWarp {
 public:
  template <class F>
  __device__ uint32_t ballot(F f) {
    return __ballot_sync(kWarp, f(threadIdx.x % 32));
  }
  template <class F>
  __device__ auto fold(F f) {
    auto all = f(threadIdx.x % 32);
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
      auto other = all;
      other.low = __shfl_xor_sync(kWarp, all.low, step);
      other.high = __shfl_xor_sync(kWarp, all.high, step);
      all.join(other);
    }
    all.other = __any_sync(kWarp, all.other) != 0;
    return all;
  }
  template <class F>
  __device__ void once(F f) {
    if (threadIdx.x % 32 == 0) f();
  }
};

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

}  // namespace
}  // namespace pleat::compress

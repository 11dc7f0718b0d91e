// Spreads and mixes values with noise: the groups of mix_core.h.
#pragma once

#include "compress/cuda/mix_core.h"
#include "compress/device/strides.cuh"

namespace pleat::compress {
namespace {

using cuda::LineBatch;
using cuda::LineJob;

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

}  // namespace
}  // namespace pleat::compress

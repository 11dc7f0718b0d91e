// Threads as the tiles and blocks that lane_core.h and block_core.h are written against, and the
// beginning and end of every kernel.
#pragma once

#include "compress/device/block_core.h"

namespace pleat::compress {
namespace {

using cuda::Batch;
using cuda::Counters;
using cuda::end_of_job;
using cuda::find_job;
using cuda::Job;
using cuda::kGroupsPerTile;
using cuda::kThreads;
using cuda::Outcome;
using cuda::Verdict;

constexpr unsigned kWarp = 0xFFFF'FFFFu;

template <class T, class L = Lane<T>>
class ThreadTile {
 public:
  __device__ ThreadTile() { lane_.index = threadIdx.x % kTileLanes; }

  template <class F>
  __device__ void each(F f) {
    f(lane_);
  }
  template <class U, class F>
  __device__ float lesser(F f) {
    const uint32_t least = combine(f, Packed<T>::lesser_of);
    if constexpr (Packed<T>::kPerRegister == 1) return float_of(least);
    return compress::lesser(Packed<T>::value(least, 0), Packed<T>::value(least, 1));
  }
  template <class U, class F>
  __device__ float greater(F f) {
    const uint32_t most = combine(f, Packed<T>::greater_of);
    if constexpr (Packed<T>::kPerRegister == 1) return float_of(most);
    return compress::greater(Packed<T>::value(most, 0), Packed<T>::value(most, 1));
  }
  template <class F>
  __device__ bool any(F f) {
    return (__ballot_sync(kWarp, f(lane_)) & mask()) != 0;
  }
  template <class F>
  __device__ bool any_alone(F f) {
    return __ballot_sync(mask(), f(lane_)) != 0;
  }
  template <class F>
  __device__ float least_alone(F f) {
    float least = f(lane_);
#pragma unroll
    for (unsigned step = 1; step < kTileLanes; step *= 2)
      least = fminf(least, __shfl_xor_sync(mask(), least, step));
    return least;
  }
  template <class Has, class F>
  __device__ uint32_t pick_alone(Has has, F f) {
    const unsigned holders = __ballot_sync(mask(), has(lane_));
    return __shfl_sync(mask(), f(lane_), __ffs(static_cast<int>(holders)) - 1);
  }
  template <class F>
  __device__ auto sum(F f) {
    auto sums = f(lane_);  // pairs are added in either order, so all lanes get the same bits
#pragma unroll
    for (unsigned step = 1; step < kTileLanes; step *= 2) {
#pragma unroll
      for (double& one : sums.of) one += __shfl_xor_sync(kWarp, one, step);
    }
    return sums;
  }
  template <class Give, class Take>
  __device__ void across(unsigned step, Give give, Take take) {
    take(lane_, __shfl_xor_sync(kWarp, give(lane_), step));
  }
  __device__ bool all_of_warp(bool mine) { return __all_sync(kWarp, mine) != 0; }
  template <class F, class G>
  __device__ uint32_t combine(F f, G g) {
    uint32_t word = f(lane_);
#pragma unroll
    for (unsigned step = 1; step < kTileLanes; step *= 2)
      word = g(word, __shfl_xor_sync(kWarp, word, step));
    return word;
  }
  template <class F, class Take>
  __device__ uint32_t add_up_alone(F f, Take take) {
    uint32_t all = f(lane_), before = 0;
#pragma unroll
    for (unsigned step = 1; step < kTileLanes; step *= 2) {
      const uint32_t others = __shfl_xor_sync(mask(), all, step);
      before += (lane_.index & step) != 0 ? others : 0;
      all += others;
    }
    take(lane_, before);
    return all;
  }
  __device__ void sync_alone() { __syncwarp(mask()); }
  __device__ void sync() { __syncwarp(); }
  template <class X>
  class PerLane {
   public:
    template <class AnyLane>
    __device__ X& operator()(const AnyLane&) {
      return mine_;
    }

   private:
    X mine_;
  };
  __device__ static uint32_t* words() {
    __shared__ alignas(16) uint32_t shared[kGroupsPerTile][36];
    return shared[threadIdx.x / kTileLanes];
  }
  __device__ static void raise(uint32_t* word, uint32_t value) { atomicMax(word, value); }

 private:
  // The lanes of this tile, in their warp.
  __device__ static unsigned mask() { return 0xFFu << (threadIdx.x % 32 & ~(kTileLanes - 1)); }

  L lane_;
};

class ThreadBlock {
 public:
  template <class F>
  __device__ void each(uint64_t n, F f) {
    for (uint64_t i = threadIdx.x; i < n; i += kThreads) f(i);
  }
  template <class G, class F>
  __device__ void by_warps(uint64_t n, G g, F f) {
    for (uint64_t i = threadIdx.x / 32; i < n; i += kThreads / 32) {
      const auto read = g(i);
      __syncwarp();
      f(i, read, threadIdx.x % 32);
    }
  }
  template <class Marked, class F>
  __device__ void ranked(uint64_t n, Marked marked, F f) {
    __shared__ unsigned found[kThreads / 32];
    uint64_t before = 0;
    for (uint64_t from = 0; from < n; from += kThreads) {
      const uint64_t i = from + threadIdx.x;
      const bool mine = i < n && marked(i);
      const unsigned votes = __ballot_sync(kWarp, mine);
      if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = __popc(votes);
      __syncthreads();
      unsigned rank = __popc(votes & ((1u << threadIdx.x % 32) - 1)), all = 0;
      for (unsigned w = 0; w < kThreads / 32; ++w) {
        rank += w < threadIdx.x / 32 ? found[w] : 0;
        all += found[w];
      }
      if (mine) f(i, before + rank);
      before += all;
      __syncthreads();
    }
  }
  template <class Count, class F>
  __device__ uint32_t numbered(uint32_t n, Count count, F f) {
    __shared__ uint32_t sums[kThreads / 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t before = 0;
    for (uint32_t from = 0; from < n; from += kThreads) {
      const uint32_t i = from + threadIdx.x;
      const uint32_t mine = i < n ? count(i) : 0;
      uint32_t up_to = mine;
      for (unsigned step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(kWarp, up_to, step);
        up_to += lane >= step ? other : 0;
      }
      if (lane == 31) sums[warp] = up_to;
      __syncthreads();
      uint32_t rank = before + up_to - mine, all = 0;
      for (unsigned w = 0; w < kThreads / 32; ++w) {
        rank += w < warp ? sums[w] : 0;
        all += sums[w];
      }
      if (mine != 0) f(i, rank);
      before += all;
      __syncthreads();
    }
    return before;
  }
  template <class F>
  __device__ void once(F f) {
    if (threadIdx.x == 0) f();
  }
  __device__ void sync() { __syncthreads(); }
  __device__ void publish(Verdict* verdict, Outcome outcome) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(&verdict->outcome) = static_cast<uint32_t>(outcome);
  }
};

__device__ Header load_header(const void* payload) {
  uint32_t words[sizeof(Header) / 4];
#pragma unroll
  for (unsigned w = 0; w < sizeof(Header) / 4; w += 4)
    load16(static_cast<const uint8_t*>(payload) + 4 * w, words + w);
  Header header;
  memcpy(&header, words, sizeof header);
  return header;
}

// Hands what a block has found in its tiles of one job to the job's counters. True in the block
// that hands in the last of `all` parts; all writes of the other blocks are then visible to it. The
// last block also gets the counts, and zeroes the counters before anyone learns that the job is
// done.
template <class AnyJob>
__device__ bool hand_in(const AnyJob& job, unsigned parts, uint64_t all, Counters* counted) {
  __shared__ bool last;
  __shared__ Counters seen;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&job.counters->parts_done, parts) + parts == all;
    __threadfence();
    if (last) {
      seen.escapes = *static_cast<volatile uint32_t*>(&job.counters->escapes);
      seen.lossy = *static_cast<volatile uint32_t*>(&job.counters->lossy);
      seen.misses = *static_cast<volatile uint32_t*>(&job.counters->misses);
      seen.too_wide = *static_cast<volatile uint32_t*>(&job.counters->too_wide);
      seen.leaving = *static_cast<volatile uint32_t*>(&job.counters->leaving);
      seen.widest = *static_cast<volatile uint32_t*>(&job.counters->widest);
      seen.kept = *static_cast<volatile uint32_t*>(&job.counters->kept);
      *job.counters = Counters{};
    }
  }
  __syncthreads();
  *counted = seen;
  return last;
}

}  // namespace
}  // namespace pleat::compress

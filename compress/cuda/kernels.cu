// The kernels: one launch per direction, each element read once, nothing waited for on the host.
// Eight lanes hold a group, a warp four, a block of 256 threads a tile of 32; blocks stride over
// the tiles of all jobs of a launch. What a group or a span needs is in group_core.h and
// span_core.h.
#include "compress/cuda/group_core.h"
#include "compress/cuda/jobs.h"
#include "compress/cuda/span_core.h"

namespace pleat::compress {
namespace {

using cuda::Batch;
using cuda::Counters;
using cuda::Job;
using cuda::kGroupsPerTile;
using cuda::kThreads;
using cuda::Outcome;
using cuda::Verdict;

constexpr unsigned kWarp = 0xFFFF'FFFFu;

template <class T>
class ThreadTile {
 public:
  __device__ ThreadTile() { lane_.index = threadIdx.x % kTileLanes; }

  template <class F>
  __device__ void each(F f) {
    f(lane_);
  }
  template <class U, class F>
  __device__ float lesser(F f) {
    uint32_t least = f(lane_);
#pragma unroll
    for (unsigned step = 1; step < kTileLanes; step *= 2)
      least = Packed<T>::lesser_of(least, __shfl_xor_sync(kWarp, least, step));
    return compress::lesser(Packed<T>::value(least, 0),
                            Packed<T>::value(least, Packed<T>::kPerRegister - 1));
  }
  template <class U, class F>
  __device__ float greater(F f) {
    uint32_t most = f(lane_);
#pragma unroll
    for (unsigned step = 1; step < kTileLanes; step *= 2)
      most = Packed<T>::greater_of(most, __shfl_xor_sync(kWarp, most, step));
    return compress::greater(Packed<T>::value(most, 0),
                             Packed<T>::value(most, Packed<T>::kPerRegister - 1));
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

 private:
  // The lanes of this tile, in their warp.
  __device__ static unsigned mask() {
    return 0xFFu << (threadIdx.x % 32 & ~(kTileLanes - 1));
  }

  Lane<T> lane_;
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

// Where a block stands in its launch.
struct Place {
  unsigned job;
  uint64_t tile;  // of the job
};
__device__ Place find_job(const Batch& batch, unsigned tile, unsigned from) {
  while (from + 1 < batch.jobs && batch.job[from + 1].first_tile <= tile) ++from;
  return {from, tile - batch.job[from].first_tile};
}
__device__ bool ends_job(const Batch& batch, unsigned job, unsigned next_tile) {
  return next_tile >= batch.tiles ||
         (job + 1 < batch.jobs && next_tile >= batch.job[job + 1].first_tile);
}

// What a block has found in its tiles of one job, handed to the job's counters; true in the block
// that hands in the last tiles: by then, what all others wrote is visible to it.
__device__ bool hand_in(const Job& job, unsigned tiles) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&job.counters->tiles_done, tiles) + tiles == cuda::tiles_of(job.elements);
    __threadfence();
  }
  __syncthreads();
  return last;
}

template <class T, unsigned kBits>
__device__ void encode(const Batch& batch) {
  using Word = typename T::Word;
  Place place{0, 0};
  unsigned tiles = 0;
  bool lossy = false;
  for (unsigned tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x) {
    place = find_job(batch, tile, place.job);
    const Job& job = batch.job[place.job];
    const DeviceLayout<T, kBits> layout(job.elements);
    uint8_t* const payload = static_cast<uint8_t*>(job.target);
    // Lanes beyond the last group do it once more, writing the same bytes: warps stay whole.
    const uint64_t own = place.tile * kGroupsPerTile + threadIdx.x / kTileLanes;
    const uint64_t group = own < layout.groups ? own : layout.groups - 1;
    const uint64_t left = job.elements - group * kGroupSize;
    ThreadTile<T> lanes;
    const GroupKind kind =
        encode_group<T, kBits>(lanes, static_cast<const Word*>(job.source) + group * kGroupSize,
                               left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
                               reinterpret_cast<uintptr_t>(job.source) % 16 == 0, group, job.nonce,
                               reinterpret_cast<Metadata<T>*>(payload + 64) + group,
                               payload + layout.codes_offset + group * layout.kSlotBytes);
    lossy |= kind == GroupKind::kRegular;
    if (kind == GroupKind::kEscaped && own < layout.groups && threadIdx.x % kTileLanes == 0)
      atomicAdd(&job.counters->escapes, 1u);
    ++tiles;
    if (!ends_job(batch, place.job, tile + gridDim.x)) continue;
    if (__syncthreads_or(lossy) && threadIdx.x == 0) atomicOr(&job.counters->lossy, 1u);
    if (hand_in(job, tiles)) {
      const uint64_t escapes = *static_cast<volatile uint32_t*>(&job.counters->escapes);
      const bool any_lossy = *static_cast<volatile uint32_t*>(&job.counters->lossy) != 0;
      ThreadBlock block;
      finish_span<T, kBits>(block, job, escapes, any_lossy);
      if (threadIdx.x == 0) *job.counters = Counters{};
    }
    tiles = 0;
    lossy = false;
  }
}

template <class T, unsigned kBits>
__device__ void decode(const Batch& batch) {
  using Word = typename T::Word;
  Place place{0, 0};
  unsigned tiles = 0;
  bool damaged = false;
  for (unsigned tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x) {
    place = find_job(batch, tile, place.job);
    const Job& job = batch.job[place.job];
    const DeviceLayout<T, kBits> layout(job.elements);
    const uint8_t* const payload = static_cast<const uint8_t*>(job.source);
    const Header& header = *reinterpret_cast<const Header*>(payload);
    if (payload_fits<T, kBits>(header, job.elements)) {
      const uint64_t group = place.tile * kGroupsPerTile + threadIdx.x / kTileLanes;
      if (group < layout.groups) {
        const uint64_t left = job.elements - group * kGroupSize;
        ThreadTile<T> lanes;
        damaged |= !decode_group<T, kBits>(
            lanes, reinterpret_cast<const Metadata<T>*>(payload + 64)[group],
            payload + layout.codes_offset + group * layout.kSlotBytes,
            EscapeTable{payload + layout.end_of_codes(), header.escapes}, group, header.nonce,
            static_cast<Word*>(job.target) + group * kGroupSize,
            left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
            reinterpret_cast<uintptr_t>(job.target) % 16 == 0);
      }
    } else {
      damaged = true;
    }
    ++tiles;
    if (!ends_job(batch, place.job, tile + gridDim.x)) continue;
    if (__syncthreads_or(damaged) && threadIdx.x == 0) atomicOr(&job.counters->misses, 1u);
    if (hand_in(job, tiles)) {
      const bool any = *static_cast<volatile uint32_t*>(&job.counters->misses) != 0;
      ThreadBlock block;
      block.publish(job.verdict, any ? Outcome::kCorrupt : Outcome::kDone);
      if (threadIdx.x == 0) *job.counters = Counters{};
    }
    tiles = 0;
    damaged = false;
  }
}

}  // namespace
}  // namespace pleat::compress

// Names as device_codec.cpp expects them.
#define PLEAT_KERNELS(type, name, bits)                                                          \
  extern "C" __global__ void __launch_bounds__(pleat::compress::cuda::kThreads)                  \
      pleat_encode_##name##_##bits(const __grid_constant__ pleat::compress::cuda::Batch batch) { \
    pleat::compress::encode<pleat::compress::type, bits>(batch);                                 \
  }                                                                                              \
  extern "C" __global__ void __launch_bounds__(pleat::compress::cuda::kThreads)                  \
      pleat_decode_##name##_##bits(const __grid_constant__ pleat::compress::cuda::Batch batch) { \
    pleat::compress::decode<pleat::compress::type, bits>(batch);                                 \
  }
#define PLEAT_WIDTHS(type, name) \
  PLEAT_KERNELS(type, name, 0)   \
  PLEAT_KERNELS(type, name, 1)   \
  PLEAT_KERNELS(type, name, 2)   \
  PLEAT_KERNELS(type, name, 3)   \
  PLEAT_KERNELS(type, name, 4)   \
  PLEAT_KERNELS(type, name, 8)
PLEAT_WIDTHS(Float32, float32)
PLEAT_WIDTHS(BFloat16, bfloat16)
PLEAT_WIDTHS(Float16, float16)

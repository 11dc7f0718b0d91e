// The kernels. Each direction is one launch, reads each element once and waits for nothing on the
// host. Eight lanes hold a group, a warp holds four, a block of 256 threads a tile of 32. Blocks
// stride over the tiles of all jobs of a launch. The work on a group or a span is in encode_core.h,
// decode_core.h, transform_core.h and span_core.h.
#include "compress/cuda/aside_kernels.cuh"
#include "compress/grouped/decode_core.h"
#include "compress/grouped/encode_core.h"
#include "compress/framed/framed_kernels.cuh"
#include "compress/in_place/in_place_core.h"
#include "compress/framed/packing_core.h"
#include "compress/sides/side_core.h"
#include "compress/grouped/span_core.h"
#include "compress/device/threads.cuh"
#include "compress/rotated/transform_core.h"
#include "compress/cuda/watch_core.h"

namespace pleat::compress {
namespace {

// Both directions: a block strides over the launch's tiles. There are as many blocks as run at a
// time; a further one would wait for the fence and the count at the end of another. Values that do
// not change within a job are read once per job, so that the loop deals with little but elements.
template <class F>
__device__ void encode(const Batch& batch) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  __shared__ unsigned widest;  // step of the block's groups of a job that is watched
  const unsigned tile_group = threadIdx.x / kTileLanes;
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const DeviceLayout<F> layout(job.elements);
    const unsigned end = end_of_job(batch, number);
    // The lane that writes the metadata looks at them.
    bool watches = F::kBits != 0 && is_watched(job) && threadIdx.x % kTileLanes == 0;
    if (F::kBits != 0 && is_watched(job)) {
      if (threadIdx.x == 0) widest = 0;
      __syncthreads();
    }
    const Word* const source = static_cast<const Word*>(job.source);
    const bool aligned = reinterpret_cast<uintptr_t>(source) % 16 == 0;
    auto* const metadata =
        reinterpret_cast<Metadata<Coded>*>(static_cast<uint8_t*>(job.target) + 64);
    uint8_t* const codes = static_cast<uint8_t*>(job.target) + layout.codes_offset;
    const uint64_t nonce = job.nonce;
    unsigned tiles = 0;
    bool lossy = false;
    for (; tile < end; tile += gridDim.x, ++tiles) {
      uint64_t group = uint64_t{tile - job.first_tile} * kGroupsPerTile + tile_group;
      unsigned elements = kGroupSize;
      bool own = true;
      if (tile + 1 == end) {
        // Lanes beyond the last group code that group again, with the same bytes, so that warps
        // stay whole.
        own = group < layout.groups;
        if (!own) group = layout.groups - 1;
        watches &= own;
        const uint64_t left = job.elements - group * kGroupSize;
        if (left < kGroupSize) elements = static_cast<unsigned>(left);
      }
      ThreadTile<Coded> lanes;
      const GroupKind kind =
          encode_form<F>(lanes, source + group * kGroupSize, elements, aligned, group, nonce,
                         metadata + group, codes + group * layout.kSlotBytes);
      lossy |= is_lossy(kind);
      if (kind == GroupKind::kEscaped && own && threadIdx.x % kTileLanes == 0)
        atomicAdd(&job.counters->escapes, 1u);
      if (watches) {
        const Seen seen = look_at_group<F>(metadata[group], job);
        if (seen.too_wide) atomicAdd(&job.counters->too_wide, 1u);
        if (seen.leaving) atomicAdd(&job.counters->leaving, 1u);
        atomicMax(&widest, seen.step_bits);
      }
    }
    if (__syncthreads_or(lossy) && threadIdx.x == 0) {
      atomicOr(&job.counters->lossy, 1u);
      if (F::kBits != 0 && is_watched(job)) atomicMax(&job.counters->widest, widest);
    }
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    finish_span<F>(block, job, counted, GroupsInSource<F>{job});
  }
}

template <class F>
__device__ void decode(const Batch& batch) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  const unsigned tile_group = threadIdx.x / kTileLanes;
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const DeviceLayout<F> layout(job.elements);
    const unsigned end = end_of_job(batch, number);
    const uint8_t* const payload = static_cast<const uint8_t*>(job.source);
    const auto* const metadata = reinterpret_cast<const Metadata<Coded>*>(payload + 64);
    const uint8_t* const codes = payload + layout.codes_offset;
    Word* const target = static_cast<Word*>(job.target);
    const bool aligned = reinterpret_cast<uintptr_t>(target) % 16 == 0;
    const Header header = load_header(payload);
    const uint64_t nonce = header.nonce;
    const EscapeTable escapes{payload + layout.end_of_codes(), header.escapes};
    bool damaged = !payload_fits<F>(header, job.elements, job.capacity);
    const bool readable = !damaged;
    unsigned tiles = 0;
    for (; tile < end; tile += gridDim.x, ++tiles) {
      uint64_t group = uint64_t{tile - job.first_tile} * kGroupsPerTile + tile_group;
      unsigned elements = kGroupSize;
      if (tile + 1 == end) {
        if (group >= layout.groups) group = layout.groups - 1;  // as in encode()
        const uint64_t left = job.elements - group * kGroupSize;
        if (left < kGroupSize) elements = static_cast<unsigned>(left);
      }
      if (!readable) continue;
      ThreadTile<Coded> lanes;
      damaged |= !decode_form<F>(lanes, metadata[group], codes + group * layout.kSlotBytes, escapes,
                                 group, nonce, target + group * kGroupSize, elements, aligned);
    }
    if (__syncthreads_or(damaged) && threadIdx.x == 0) atomicOr(&job.counters->misses, 1u);
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    block.publish(job.verdict, counted.misses != 0 ? Outcome::kCorrupt : Outcome::kDone);
  }
}

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

// Booleans, integers and sides: every thread takes its runs of a tile.
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
//   load(job, run)         what unpack() has to know of the payload
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

template <class Integer>
__device__ void encode_integers(const Batch& batch) {
  pack_spans<kIntegerRun>(
      batch, [](const Job&) {},
      [](const Job& job, uint64_t run) { return encode_integer_run<Integer>(job, run); },
      [](ThreadBlock& block, const Job& job, unsigned needed) {
        finish_integers<Integer>(block, job, needed);
      });
}
template <class Integer>
__device__ void decode_integers(const Batch& batch) {
  unpack_spans<kRestoredIntegers>(
      batch,
      [](const Job& job, const Header& header) {
        return integers_fit<Integer>(header, job.elements, job.width);
      },
      [](const Job& job, uint64_t run) { return integer_codes<Integer>(job, run); },
      [](const Job& job, uint64_t run, uint64_t packed) {
        return decode_integer_run<Integer>(job, run, packed);
      });
}

template <class T>
__device__ void encode_sides(const Batch& batch) {
  SideTest test;
  pack_spans<kSideRun>(
      batch, [&test](const Job& job) { test = side_values<T>(sides_of_job(job)).test; },
      [&test](const Job& job, uint64_t run) {
        pack_side_run<T>(test, static_cast<const typename T::Word*>(job.source), job.elements, run,
                         static_cast<uint8_t*>(job.target) + 64);
        return 0u;
      },
      [](ThreadBlock& block, const Job& job, unsigned) { finish_sides<T>(block, job); });
}
template <class T>
__device__ void decode_sides(const Batch& batch) {
  SideWords words;
  unpack_spans<kRestoredSides<T>>(
      batch,
      [&words](const Job& job, const Header& header) {
        words = SideWords::of(header);
        return sides_fit<T>(header, job.elements, job.width, job.capacity);
      },
      [](const Job& job, uint64_t run) { return side_codes<T>(job, run); },
      [&words](const Job& job, uint64_t run, uint32_t packed) {
        return unpack_side_run<T>(words, job.width == 2, packed, job.elements, run,
                                  static_cast<typename T::Word*>(job.target));
      });
}

template <class T>
__device__ void move_to_sides(const Batch& batch) {
  SideMoves moves;
  unpack_spans<kRestoredSides<T>>(
      batch,
      [&moves](const Job& job, const Header& header) {
        moves = side_moves<T>(SideWords::of(header), job.width == 2);
        return sides_fit_beside<T>(header, job.elements, job.width, job.capacity);
      },
      [](const Job& job, uint64_t run) { return side_codes<T>(job, run); },
      [&moves](const Job& job, uint64_t run, uint32_t packed) {
        return move_side_run<T>(moves, packed, job.elements, run,
                                static_cast<typename T::Word*>(job.target));
      });
}

}  // namespace
}  // namespace pleat::compress

// Names as device_codec.cpp, device_asides.cpp and device_sketch.cpp expect them.
#define PLEAT_KERNEL(name)                                                      \
  extern "C" __global__ void __launch_bounds__(pleat::compress::cuda::kThreads) \
      name(const __grid_constant__ pleat::compress::cuda::Batch batch)
#define PLEAT_BUSY_KERNEL(name)                                                                 \
  extern "C" __global__ void __launch_bounds__(pleat::compress::cuda::kThreads,                 \
                                               pleat::compress::cuda::kBlocksPerMultiprocessor) \
      name(const __grid_constant__ pleat::compress::cuda::Batch batch)
#define PLEAT_KERNELS(type, name, bits)                                                 \
  PLEAT_BUSY_KERNEL(pleat_encode_##name##_##bits) {                                     \
    pleat::compress::encode<pleat::compress::Form<pleat::compress::type, bits>>(batch); \
  }                                                                                     \
  PLEAT_BUSY_KERNEL(pleat_decode_##name##_##bits) {                                     \
    pleat::compress::decode<pleat::compress::Form<pleat::compress::type, bits>>(batch); \
  }
#define PLEAT_TRANSFORMED_KERNELS(type, name, bits)                                           \
  PLEAT_BUSY_KERNEL(pleat_encode_transformed_##name##_##bits) {                               \
    pleat::compress::encode<pleat::compress::Form<pleat::compress::type, bits, true>>(batch); \
  }                                                                                           \
  PLEAT_KERNEL(pleat_decode_transformed_##name##_##bits) {                                    \
    pleat::compress::decode<pleat::compress::Form<pleat::compress::type, bits, true>>(batch); \
  }
// Without a bound, ptxas prefetches doubles into all registers there are.
#define PLEAT_SCALED_KERNELS(type, name, bits)                                               \
  extern "C" __global__ void __launch_bounds__(pleat::compress::cuda::kThreads, 2)           \
      pleat_encode_scaled_##name##_##bits(                                                   \
          const __grid_constant__ pleat::compress::cuda::Batch batch) {                      \
    pleat::compress::encode<pleat::compress::Form<pleat::compress::type, bits, true, true>>( \
        batch);                                                                              \
  }                                                                                          \
  PLEAT_KERNEL(pleat_decode_scaled_##name##_##bits) {                                        \
    pleat::compress::decode<pleat::compress::Form<pleat::compress::type, bits, true, true>>( \
        batch);                                                                              \
  }
#define PLEAT_IN_PLACE_KERNEL(type, name, bits)                                                  \
  PLEAT_KERNEL(pleat_encode_in_place_##name##_##bits) {                                          \
    pleat::compress::encode_in_place<pleat::compress::Form<pleat::compress::type, bits>>(batch); \
  }
#define PLEAT_FRAMED_KERNELS(type, name)                          \
  PLEAT_BUSY_KERNEL(pleat_encode_framed_##name) {                 \
    pleat::compress::encode_frames<pleat::compress::type>(batch); \
  }                                                               \
  PLEAT_BUSY_KERNEL(pleat_decode_framed_##name) {                 \
    pleat::compress::decode_frames<pleat::compress::type>(batch); \
  }
#define PLEAT_WIDTHS(type, name)                                                               \
  PLEAT_KERNEL(pleat_survey_##name) { pleat::compress::survey<pleat::compress::type>(batch); } \
  PLEAT_IN_PLACE_KERNEL(type, name, 1)                                                         \
  PLEAT_IN_PLACE_KERNEL(type, name, 2)                                                         \
  PLEAT_IN_PLACE_KERNEL(type, name, 3)                                                         \
  PLEAT_IN_PLACE_KERNEL(type, name, 4)                                                         \
  PLEAT_IN_PLACE_KERNEL(type, name, 6)                                                         \
  PLEAT_IN_PLACE_KERNEL(type, name, 8)                                                         \
  PLEAT_KERNELS(type, name, 0)                                                                 \
  PLEAT_KERNELS(type, name, 1)                                                                 \
  PLEAT_KERNELS(type, name, 2)                                                                 \
  PLEAT_KERNELS(type, name, 3)                                                                 \
  PLEAT_KERNELS(type, name, 4)                                                                 \
  PLEAT_KERNELS(type, name, 6)                                                                 \
  PLEAT_KERNELS(type, name, 8)                                                                 \
  PLEAT_TRANSFORMED_KERNELS(type, name, 1)                                                     \
  PLEAT_TRANSFORMED_KERNELS(type, name, 2)                                                     \
  PLEAT_TRANSFORMED_KERNELS(type, name, 3)                                                     \
  PLEAT_TRANSFORMED_KERNELS(type, name, 4)                                                     \
  PLEAT_TRANSFORMED_KERNELS(type, name, 6)                                                     \
  PLEAT_TRANSFORMED_KERNELS(type, name, 8)                                                     \
  PLEAT_SCALED_KERNELS(type, name, 1)                                                          \
  PLEAT_SCALED_KERNELS(type, name, 2)
PLEAT_WIDTHS(Float32, float32)
PLEAT_WIDTHS(BFloat16, bfloat16)
PLEAT_WIDTHS(Float16, float16)

PLEAT_FRAMED_KERNELS(Float32, float32)
PLEAT_FRAMED_KERNELS(BFloat16, bfloat16)
PLEAT_FRAMED_KERNELS(Float16, float16)

#define PLEAT_SIDE_KERNELS(type, name)                            \
  PLEAT_KERNEL(pleat_encode_sides_##name) {                       \
    pleat::compress::encode_sides<pleat::compress::type>(batch);  \
  }                                                               \
  PLEAT_KERNEL(pleat_decode_sides_##name) {                       \
    pleat::compress::decode_sides<pleat::compress::type>(batch);  \
  }                                                               \
  PLEAT_KERNEL(pleat_move_to_sides_##name) {                      \
    pleat::compress::move_to_sides<pleat::compress::type>(batch); \
  }
PLEAT_SIDE_KERNELS(Float32, float32)
PLEAT_SIDE_KERNELS(BFloat16, bfloat16)
PLEAT_SIDE_KERNELS(Float16, float16)

#define PLEAT_LINE_KERNEL(name)                                                 \
  extern "C" __global__ void __launch_bounds__(pleat::compress::cuda::kThreads) \
      name(const __grid_constant__ pleat::compress::cuda::LineBatch batch)
#define PLEAT_ASIDE_KERNELS(type, name)                                                       \
  PLEAT_LINE_KERNEL(pleat_look_at_columns_##name) {                                           \
    pleat::compress::look_at_columns<pleat::compress::type>(batch);                           \
  }                                                                                           \
  PLEAT_LINE_KERNEL(pleat_keep_lines_##name) {                                                \
    pleat::compress::keep_lines<pleat::compress::type>(batch);                                \
  }                                                                                           \
  PLEAT_LINE_KERNEL(pleat_restore_lines_##name) {                                             \
    pleat::compress::restore_lines<pleat::compress::type>(batch);                             \
  }                                                                                           \
  PLEAT_LINE_KERNEL(pleat_spread_##name) {                                                    \
    pleat::compress::spread<pleat::compress::type>(batch);                                    \
  }                                                                                           \
  PLEAT_LINE_KERNEL(pleat_mix_##name) { pleat::compress::mix<pleat::compress::type>(batch); } \
  PLEAT_KERNEL(pleat_keep_near_zero_##name) {                                                 \
    pleat::compress::keep_near_zero<pleat::compress::type>(batch);                            \
  }                                                                                           \
  PLEAT_KERNEL(pleat_restore_near_zero_##name) {                                              \
    pleat::compress::restore_near_zero<pleat::compress::type>(batch);                         \
  }                                                                                           \
  PLEAT_KERNEL(pleat_sketch_##name) { pleat::compress::sketch<pleat::compress::type>(batch); }
PLEAT_ASIDE_KERNELS(Float32, float32)
PLEAT_ASIDE_KERNELS(BFloat16, bfloat16)
PLEAT_ASIDE_KERNELS(Float16, float16)

PLEAT_KERNEL(pleat_encode_bool) {
  using namespace pleat::compress;
  pack_spans<kBooleanRun>(
      batch, [](const cuda::Job&) {},
      [](const cuda::Job& job, uint64_t run) {
        return pack_boolean_run(static_cast<const uint8_t*>(job.source), job.elements, run,
                                job.width == 8, static_cast<uint8_t*>(job.target) + 64);
      },
      [](ThreadBlock& block, const cuda::Job& job, unsigned needed) {
        finish_booleans(block, job, needed);
      });
}
PLEAT_KERNEL(pleat_decode_bool) {
  using namespace pleat::compress;
  unpack_spans<kBooleanRun>(
      batch,
      [](const cuda::Job& job, const Header& header) { return booleans_fit(header, job.elements); },
      [](const cuda::Job&, uint64_t) { return 0; },
      [](const cuda::Job& job, uint64_t run, int) {
        unpack_boolean_run(static_cast<const uint8_t*>(job.source) + 64, job.elements, run,
                           static_cast<uint8_t*>(job.target));
        return true;
      });
}
PLEAT_KERNEL(pleat_encode_int64) { pleat::compress::encode_integers<int64_t>(batch); }
PLEAT_KERNEL(pleat_decode_int64) { pleat::compress::decode_integers<int64_t>(batch); }
PLEAT_KERNEL(pleat_encode_int32) { pleat::compress::encode_integers<int32_t>(batch); }
PLEAT_KERNEL(pleat_decode_int32) { pleat::compress::decode_integers<int32_t>(batch); }

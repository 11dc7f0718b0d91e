// The kernels. Each direction is one launch, reads each element once and waits for nothing on the
// host. Eight lanes hold a group, a warp holds four, a block of 256 threads a tile of 32. Blocks
// stride over the tiles of all jobs of a launch. The work on a group or a span is in encode_core.h,
// decode_core.h, transform_core.h and span_core.h.
#include "compress/booleans/booleans_kernels.cuh"
#include "compress/cuda/mix_kernels.cuh"
#include "compress/cuda/watch_core.h"
#include "compress/device/threads.cuh"
#include "compress/framed/framed_kernels.cuh"
#include "compress/grouped/measure_core.h"
#include "compress/in_place/in_place_kernels.cuh"
#include "compress/lines/lines_kernels.cuh"
#include "compress/near_zero/near_zero_kernels.cuh"
#include "compress/rotated/transform_core.h"
#include "compress/sides/side_kernels.cuh"
#include "compress/sketch/sketch_kernels.cuh"

namespace pleat::compress {
namespace {

// Both directions: a block strides over the launch's tiles. There are as many blocks as run at a
// time; a further one would wait for the fence and the count at the end of another. Values that do
// not change within a job are read once per job, so that the loop deals with little but elements.
//
// Sets where the rows of a job lie, by all threads of a block. Jobs without exponents hardly pay
// for those with: what is known of rows lies in shared memory, not in registers.
__device__ void set_rows(const Exponents& exponents, const int8_t* table, const void* parts,
                         Rows* rows) {
  __syncthreads();
  if (threadIdx.x == 0)
    rows->set(exponents, table, static_cast<int8_t*>(const_cast<void*>(parts)),
              uint64_t{gridDim.x} * kGroupsPerTile);
  __syncthreads();
  if (threadIdx.x < 8) rows->set_starts(threadIdx.x);
  __syncthreads();
}
// Goes to the thread's group.
//   on  it is the one that follows in the block's next tile: not the first one, nor of the job's
//       last tile, where a group may stand for another
__device__ void step_rows(Rows* rows, uint64_t group, bool on) {
  PartCursor* const place = rows->place + threadIdx.x / kTileLanes;
  __syncwarp();
  if (threadIdx.x % kTileLanes == 0) {
    PartCursor cursor = *place;
    if (on)
      rows->advance(&cursor);
    else
      cursor = rows->at(group);
    *place = cursor;
  }
  __syncwarp();
}

// The bytes of parts, before jobs with exponents are encoded. A job's target has them.
template <class T>
__device__ void measure_parts(const Batch& batch) {
  __shared__ Rows rows;
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const unsigned end = end_of_job(batch, number);
    const auto* const source = static_cast<const typename T::Word*>(job.source);
    const bool aligned = reinterpret_cast<uintptr_t>(source) % 16 == 0;
    set_rows(job.exponents(), job.table, job.target, &rows);
    for (bool first = true; tile < end; tile += gridDim.x, first = false) {
      const GroupOfTile at(job.elements, tile - job.first_tile, threadIdx.x / kTileLanes);
      step_rows(&rows, at.group, !first && tile + 1 != end);
      const PartsOfGroup all{&rows, threadIdx.x / kTileLanes, at.group, at.elements};
      ThreadTile<T> lanes;
      measure_group<T>(lanes, source + at.group * kGroupSize, at.elements, aligned, all.parts());
    }
  }
}

template <class F>
__device__ void encode(const Batch& batch) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  __shared__ unsigned widest;  // step of the block's groups of a job that is watched
  __shared__ Rows rows;
  const unsigned tile_group = threadIdx.x / kTileLanes;
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const DeviceLayout<F> layout(job.elements, job.exponents());
    const bool parted = layout.exponents.any(), zeros = keeps_zeros<F>(job);
    const unsigned end = end_of_job(batch, number);
    if (parted)
      set_rows(layout.exponents, job.table,
               static_cast<uint8_t*>(job.target) + layout.end_of_codes(), &rows);
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
    uint8_t* codes = static_cast<uint8_t*>(job.target) + layout.codes_offset;
    asm("" : "+l"(codes));  // else the compiler computes it again for each tile
    const uint64_t nonce = job.nonce;
    unsigned tiles = 0;
    unsigned lossy = 0;
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
      if (parted) step_rows(&rows, group, tiles != 0 && tile + 1 != end);
      const PartsOfGroup parts{parted ? &rows : nullptr, tile_group, group, elements};
      ThreadTile<Coded> lanes;
      const GroupKind kind =
          encode_form<F>(lanes, source + group * kGroupSize, elements, aligned, group, nonce,
                         metadata + group, codes + group * layout.kSlotBytes, parts, zeros);
      lossy |= is_lossy(kind) ? 1 : 0;
      if (!has_wide_groups(F::kBits) && kind == GroupKind::kEscaped && own &&
          threadIdx.x % kTileLanes == 0)
        atomicAdd(&job.counters->escapes, 1u);
      if (watches) {
        const Seen seen = look_at_group<F>(metadata[group], job);
        if (seen.too_wide) atomicAdd(&job.counters->too_wide, 1u);
        if (seen.leaving) atomicAdd(&job.counters->leaving, 1u);
        atomicMax(&widest, seen.step_bits);
      }
    }
    if (__syncthreads_or(static_cast<int>(lossy)) && threadIdx.x == 0) {
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
  __shared__ Rows rows;
  const unsigned tile_group = threadIdx.x / kTileLanes;
  unsigned number = 0;
  for (unsigned tile = blockIdx.x; tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const DeviceLayout<F> layout(job.elements, job.exponents());
    const bool parted = layout.exponents.any(), zeros = keeps_zeros<F>(job);
    const unsigned end = end_of_job(batch, number);
    const uint8_t* const payload = static_cast<const uint8_t*>(job.source);
    const auto* const metadata = reinterpret_cast<const Metadata<Coded>*>(payload + 64);
    const uint8_t* codes = payload + layout.codes_offset;
    asm("" : "+l"(codes));  // else the compiler computes it again for each tile
    Word* const target = static_cast<Word*>(job.target);
    const bool aligned = reinterpret_cast<uintptr_t>(target) % 16 == 0;
    const Header header = load_header(payload);
    const uint64_t nonce = header.nonce;
    const EscapeTable escapes{payload + layout.end(), header.escapes};
    const bool readable = payload_fits<F>(header, job, layout);
    unsigned damaged = readable ? 0 : 1, tiles = 0;
    if (parted) {
      const uint8_t* const section = payload + layout.end_of_codes();
      const uint8_t* const table = section + table_offset(layout.exponents, job.elements);
      set_rows(layout.exponents, reinterpret_cast<const int8_t*>(table), section, &rows);
    }
    for (; !readable && tile < end; tile += gridDim.x) ++tiles;
    for (; tile < end; tile += gridDim.x, ++tiles) {
      uint64_t group = uint64_t{tile - job.first_tile} * kGroupsPerTile + tile_group;
      unsigned elements = kGroupSize;
      if (tile + 1 == end) {
        const bool own = group < layout.groups;
        if (!own) group = layout.groups - 1;  // as in encode()
        const uint64_t left = job.elements - group * kGroupSize;
        if (left < kGroupSize) elements = static_cast<unsigned>(left);
        if (parted && !own) elements = 0;  // elements are divided in their place, once
      }
      if (parted) step_rows(&rows, group, tiles != 0 && tile + 1 != end);
      const PartsOfGroup parts{parted ? &rows : nullptr, tile_group, group, elements};
      ThreadTile<Coded> lanes;
      const bool intact =
          decode_form<F>(lanes, metadata[group], codes + group * layout.kSlotBytes, escapes, group,
                         nonce, target + group * kGroupSize, elements, aligned, parts, zeros);
      damaged |= intact ? 0 : 1;
    }
    if (__syncthreads_or(static_cast<int>(damaged)) && threadIdx.x == 0)
      atomicOr(&job.counters->misses, 1u);
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    block.publish(job.verdict, counted.misses != 0 ? Outcome::kCorrupt : Outcome::kDone);
  }
}

}  // namespace
}  // namespace pleat::compress

// Names as device_codec.cpp, device_asides.cpp and device_sketch.cpp expect them.
#define PLEAT_KERNEL(name, Parameter, bounds, ...)                      \
  extern "C" __global__ void __launch_bounds__ bounds name(             \
      const __grid_constant__ pleat::compress::cuda::Parameter batch) { \
    using namespace pleat::compress;                                    \
    __VA_ARGS__(batch);                                                 \
  }
#define PLEAT_ROOMY (pleat::compress::cuda::kThreads)
#define PLEAT_BUSY \
  (pleat::compress::cuda::kThreads, pleat::compress::cuda::kBlocksPerMultiprocessor)
// Without a bound, ptxas prefetches doubles into all registers there are.
#define PLEAT_DOUBLES (pleat::compress::cuda::kThreads, 2)

#define PLEAT_WIDTH(type, name, bits)                                                     \
  PLEAT_KERNEL(pleat_encode_##name##_##bits, Batch, PLEAT_BUSY, encode<Form<type, bits>>) \
  PLEAT_KERNEL(pleat_decode_##name##_##bits, Batch, PLEAT_BUSY, decode<Form<type, bits>>)
#define PLEAT_LOSSY_WIDTH(type, name, bits)                               \
  PLEAT_WIDTH(type, name, bits)                                           \
  PLEAT_KERNEL(pleat_encode_in_place_##name##_##bits, Batch, PLEAT_ROOMY, \
               encode_in_place<Form<type, bits>>)
#define PLEAT_ROTATED_WIDTH(type, name, bits)                                \
  PLEAT_LOSSY_WIDTH(type, name, bits)                                        \
  PLEAT_KERNEL(pleat_encode_transformed_##name##_##bits, Batch, PLEAT_BUSY,  \
               encode<Form<type, bits, true>>)                               \
  PLEAT_KERNEL(pleat_decode_transformed_##name##_##bits, Batch, PLEAT_ROOMY, \
               decode<Form<type, bits, true>>)
#define PLEAT_SCALED_WIDTH(type, name, bits)                              \
  PLEAT_KERNEL(pleat_encode_scaled_##name##_##bits, Batch, PLEAT_DOUBLES, \
               encode<Form<type, bits, true, true>>)                      \
  PLEAT_KERNEL(pleat_decode_scaled_##name##_##bits, Batch, PLEAT_ROOMY,   \
               decode<Form<type, bits, true, true>>)
#define PLEAT_FLOATS(type, name)                                                            \
  PLEAT_WIDTH(type, name, 0)                                                                \
  PLEAT_LOSSY_WIDTH(type, name, 1)                                                          \
  PLEAT_LOSSY_WIDTH(type, name, 2)                                                          \
  PLEAT_ROTATED_WIDTH(type, name, 3)                                                        \
  PLEAT_ROTATED_WIDTH(type, name, 4)                                                        \
  PLEAT_ROTATED_WIDTH(type, name, 6)                                                        \
  PLEAT_ROTATED_WIDTH(type, name, 8)                                                        \
  PLEAT_SCALED_WIDTH(type, name, 1)                                                         \
  PLEAT_SCALED_WIDTH(type, name, 2)                                                         \
  PLEAT_KERNEL(pleat_measure_parts_##name, Batch, PLEAT_ROOMY, measure_parts<type>)         \
  PLEAT_KERNEL(pleat_survey_##name, Batch, PLEAT_ROOMY, survey<type>)                       \
  PLEAT_KERNEL(pleat_encode_framed_##name, Batch, PLEAT_BUSY, encode_frames<type>)          \
  PLEAT_KERNEL(pleat_decode_framed_##name, Batch, PLEAT_BUSY, decode_frames<type>)          \
  PLEAT_KERNEL(pleat_encode_sides_##name, Batch, PLEAT_ROOMY, encode_sides<type>)           \
  PLEAT_KERNEL(pleat_decode_sides_##name, Batch, PLEAT_ROOMY, decode_sides<type>)           \
  PLEAT_KERNEL(pleat_move_to_sides_##name, Batch, PLEAT_ROOMY, move_to_sides<type>)         \
  PLEAT_KERNEL(pleat_keep_near_zero_##name, Batch, PLEAT_ROOMY, keep_near_zero<type>)       \
  PLEAT_KERNEL(pleat_restore_near_zero_##name, Batch, PLEAT_ROOMY, restore_near_zero<type>) \
  PLEAT_KERNEL(pleat_sketch_##name, Batch, PLEAT_ROOMY, sketch<type>)                       \
  PLEAT_KERNEL(pleat_look_at_columns_##name, LineBatch, PLEAT_ROOMY, look_at_columns<type>) \
  PLEAT_KERNEL(pleat_keep_lines_##name, LineBatch, PLEAT_ROOMY, keep_lines<type>)           \
  PLEAT_KERNEL(pleat_restore_lines_##name, LineBatch, PLEAT_ROOMY, restore_lines<type>)     \
  PLEAT_KERNEL(pleat_spread_##name, LineBatch, PLEAT_ROOMY, spread<type>)                   \
  PLEAT_KERNEL(pleat_mix_##name, LineBatch, PLEAT_ROOMY, mix<type>)
PLEAT_FLOATS(Float32, float32)
PLEAT_FLOATS(BFloat16, bfloat16)
PLEAT_FLOATS(Float16, float16)

PLEAT_KERNEL(pleat_encode_bool, Batch, PLEAT_ROOMY, encode_booleans)
PLEAT_KERNEL(pleat_decode_bool, Batch, PLEAT_ROOMY, decode_booleans)
PLEAT_KERNEL(pleat_encode_int64, Batch, PLEAT_ROOMY, encode_integers<int64_t>)
PLEAT_KERNEL(pleat_decode_int64, Batch, PLEAT_ROOMY, decode_integers<int64_t>)
PLEAT_KERNEL(pleat_encode_int32, Batch, PLEAT_ROOMY, encode_integers<int32_t>)
PLEAT_KERNEL(pleat_decode_int32, Batch, PLEAT_ROOMY, decode_integers<int32_t>)

// Encodes and decodes lossless floats in frames (frame_chain.h) and integers (integers_core.h).
#pragma once

#include "compress/device/strides.cuh"
#include "compress/device/threads.cuh"
#include "compress/framed/frame_chain.h"
#include "compress/framed/integers_core.h"

namespace pleat::compress {
namespace {

class ThreadWarp {
 public:
  template <class F>
  __device__ void read(F f) {
    word_ = f(threadIdx.x % 32);
  }
  template <class F>
  __device__ uint32_t ballot(F f) {
    return __ballot_sync(kWarp, f(word_));
  }
  template <class F>
  __device__ uint64_t sum(F f) {
    uint64_t all = f(threadIdx.x % 32, word_);
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) all += __shfl_xor_sync(kWarp, all, step);
    return all;
  }

 private:
  uint64_t word_;
};

// Takes the launch's next tile; a number beyond the last if none is left. After the call the
// block's shared memory is free for that tile.
__device__ unsigned take_tile(const Batch& batch) {
  __shared__ uint32_t ticket;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* const next = &chain_of(batch.job[0])->ticket;
    ticket = atomicAdd(next, 1u);
    if (is_last_ticket(ticket, batch.tiles, gridDim.x)) *next = 0;
  }
  __syncthreads();
  return ticket;
}

// Call it once the sizes of all frames are staged. Publishes the tile's bytes first, so that no
// block waits for `meanwhile`; calls meanwhile(), then looks back. Returns the bytes of the tile's
// frames before `place`.
template <class T, class Tile, class F>
__device__ uint32_t find_place(Tile& lanes, const Job& job, uint64_t tile, unsigned place,
                               FrameStage<T>& stage, F meanwhile) {
  __syncthreads();
  const uint32_t before = bytes_of_frames(lanes, stage, place);
  const uint32_t bytes = bytes_of_frames(lanes, stage, kGroupsPerTile);
  if (threadIdx.x == 0) words_of(job)[tile] = kOwnBytes | bytes;
  meanwhile();
  if (threadIdx.x < 32) {
    ThreadWarp warp;
    LookBack back{tile};
    while (!back.done())
      if (!back.advance(warp, words_of(job))) __nanosleep(40);
    if (threadIdx.x == 0) {
      words_of(job)[tile] = kBytesToEnd | (back.bytes + bytes);
      stage.before = back.bytes;
    }
  }
  __syncthreads();
  return before;
}

template <class T>
__device__ void encode_frames(const Batch& batch) {
  __shared__ FrameStage<T> stage;
  const unsigned place = threadIdx.x / kTileLanes;
  unsigned number = 0;
  for (unsigned tile = take_tile(batch); tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const FrameEncoder<T> encoder(job);
    const unsigned end = end_of_job(batch, number);
    unsigned tiles = 0;
    for (; tile < end; tile = take_tile(batch), ++tiles) {
      const uint64_t own_number = tile - job.first_tile;
      ThreadTile<T, FrameLane<T>> lanes;
      const GroupOfTile at(job.elements, own_number, place);
      const Frame<T> frame = encoder.measure(lanes, at, place, stage);
      const uint32_t before = find_place(lanes, job, own_number, place, stage,
                                         [&] { pack_frame(lanes, frame, stage.slots[place]); });
      encoder.write(lanes, stage, place, before);
    }
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    finish_frames<T>(block, job);
  }
}

template <class T>
__device__ void decode_frames(const Batch& batch) {
  __shared__ FrameStage<T> stage;
  const unsigned place = threadIdx.x / kTileLanes;
  unsigned number = 0;
  for (unsigned tile = take_tile(batch); tile < batch.tiles;) {
    number = find_job(batch, tile, number);
    const Job& job = batch.job[number];
    const FrameDecoder<T> decoder(job, load_header(job.source));
    const unsigned end = end_of_job(batch, number);
    bool damaged = false;
    unsigned tiles = 0;
    for (; tile < end; tile = take_tile(batch), ++tiles) {
      if (!decoder.readable) continue;
      const uint64_t own_number = tile - job.first_tile;
      ThreadTile<T, FrameLane<T>> lanes;
      const GroupOfTile at(job.elements, own_number, place);
      Frame<T> frame;
      damaged |= !decoder.read(lanes, at, place, stage, &frame);
      const uint32_t before = find_place(lanes, job, own_number, place, stage, [] {});
      decoder.restore(lanes, at, frame, place, stage, before);
    }
    if (__syncthreads_or(damaged) && threadIdx.x == 0) atomicOr(&job.counters->misses, 1u);
    Counters counted;
    if (!hand_in(job, tiles, cuda::tiles_of(job.elements), &counted)) continue;
    ThreadBlock block;
    finish_restored(block, decoder, counted.misses != 0);
  }
}

// Integers: the runs of integers_core.h.
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

}  // namespace
}  // namespace pleat::compress

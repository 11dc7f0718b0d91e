// Packs and unpacks sides, and moves values to their sides: the runs of side_core.h.
#pragma once

#include "compress/device/strides.cuh"
#include "compress/sides/side_core.h"

namespace pleat::compress {
namespace {

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

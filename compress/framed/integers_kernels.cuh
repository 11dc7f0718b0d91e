// Packs and unpacks integers: the runs of integers_core.h.
#pragma once

#include "compress/device/strides.cuh"
#include "compress/framed/integers_core.h"

namespace pleat::compress {
namespace {

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

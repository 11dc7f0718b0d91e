// Packs and unpacks booleans: the runs of booleans_core.h.
#pragma once

#include "compress/booleans/booleans_core.h"
#include "compress/device/strides.cuh"

namespace pleat::compress {
namespace {

__device__ void encode_booleans(const Batch& batch) {
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
__device__ void decode_booleans(const Batch& batch) {
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

}  // namespace
}  // namespace pleat::compress

// The reference path takes one element after the other, as docs/payload_format.md describes it. The
// vector paths must agree with it bit for bit, and use it for the last, shorter group of a span.
#include "compress/booleans/booleans_scalar.h"
#include "compress/framed/frame_kernels.h"
#include "compress/grouped/groups_scalar.h"
#include "compress/kernels.h"
#include "compress/planes_scalar.h"
#include "compress/sides/sides_scalar.h"

#include "compress/isa/kernel_table.h"

namespace pleat::compress {

void encode_wide_group(const EncodeGroups& job, const float* values, size_t elements) {
  const Metadata<Float32> metadata = encode_wide<Float32>(job, values, elements);
  memcpy(job.metadata, &metadata, sizeof metadata);
}

const Kernels kScalarKernels = kTable;

}  // namespace pleat::compress

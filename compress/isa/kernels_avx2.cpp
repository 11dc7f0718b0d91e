// Compiled with -mavx2 -mf16c; reached only when the CPU has both.
#include "compress/isa/simd_avx2.h"

#include "compress/isa/kernels_simd.h"

namespace pleat::compress {
const Kernels kAvx2Kernels = kTable;
}  // namespace pleat::compress

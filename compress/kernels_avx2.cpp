// Compiled with -mavx2 -mf16c; reached only when the CPU has both.
#include "compress/simd_avx2.h"

#include "compress/kernels_simd.h"

namespace pleat::compress {
const Kernels kAvx2Kernels = kTable;
}  // namespace pleat::compress

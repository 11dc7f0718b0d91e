// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq; reached only when the CPU has them.
#include "compress/isa/simd_avx512.h"

#include "compress/isa/kernels_simd.h"

namespace pleat::compress {
#ifdef PLEAT_AVX512_INTRINSICS  // emulated, for the tests
extern const Kernels kEmulatedAvx512Kernels;
const Kernels kEmulatedAvx512Kernels = kTable;
#else
const Kernels kAvx512Kernels = kTable;
#endif
}  // namespace pleat::compress

// Marks functions that both the CPU paths and the CUDA kernels run. Empty without nvcc.
#pragma once

#if defined(__CUDACC__)
#define PLEAT_HD __host__ __device__
#define PLEAT_APART __noinline__  // code that many kernels share: it is rare and long
#else
#define PLEAT_HD
#define PLEAT_APART
#endif

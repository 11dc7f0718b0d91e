// Marks functions that both the CPU paths and the CUDA kernels run. Empty without nvcc.
#pragma once

#if defined(__CUDACC__)
#define PLEAT_HD __host__ __device__
#else
#define PLEAT_HD
#endif

// The AVX-512 intrinsics of compress/simd_avx512.h on CPUs that lack them, through SIMDe. Only so that
// tests can run kernels_avx512.cpp everywhere; never part of the product.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#undef _mm512_madd_epi16  // 0.7.4 aliases it to the masked form
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

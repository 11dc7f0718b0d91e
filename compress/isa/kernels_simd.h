// The vector kernels, written once for every width over the operations in simd_*.h. Included by one
// file per instruction set, after its simd_*.h. Anonymous: see kernels.h.
#pragma once

#include "compress/booleans/booleans_simd.h"
#include "compress/framed/frame_kernels.h"
#include "compress/grouped/decode_simd.h"
#include "compress/grouped/encode_simd.h"
#include "compress/kernels.h"
#include "compress/sides/sides_simd.h"

#include "compress/isa/kernel_table.h"

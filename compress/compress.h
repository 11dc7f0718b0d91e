// Umbrella header of compress/: spans in, payloads out. Knows nothing of torch or allocators.
#pragma once

#include "compress/codec.h"
#include "compress/functions.h"
#include "compress/types.h"

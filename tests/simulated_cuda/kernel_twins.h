// The host twins of Pleat's kernels: the kernels' own code, lane by lane, as in tests/compress.
#pragma once

#include <string>

#include "tests/simulated_cuda/streams.h"

namespace pleat::simulated {

struct Twin;

// Looks a twin up by the kernel's name in compress/cuda/kernels.cu; nullptr if there is none. Twins
// live as long as the process.
const Twin* find_twin(const std::string& name);
// One launch with its reads and writes. `batch` is the kernel's parameter, which is copied.
Operation operation_of(const Twin& twin, const std::string& name, const void* batch);

}  // namespace pleat::simulated

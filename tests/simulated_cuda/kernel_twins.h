// The host twins of Pleat's kernels: the kernels' own code, lane by lane, as tests/compress runs
// it.
#pragma once

#include <string>

#include "tests/simulated_cuda/streams.h"

namespace pleat::simulated {

struct Twin;

// By the kernel's name in compress/cuda/kernels.cu; nullptr if there is none. Lives as long as the
// process.
const Twin* find_twin(const std::string& name);
// What one launch does, reads and writes. `batch` is the kernel's parameter, which is copied.
Operation operation_of(const Twin& twin, const std::string& name, const void* batch);

}  // namespace pleat::simulated

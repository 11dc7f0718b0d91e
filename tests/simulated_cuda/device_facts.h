// Attributes of the simulated device: an sm_90 of the usual size.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace pleat::simulated {

void fill_properties(cudaDeviceProp* properties, int device, std::size_t memory_bytes);
// Attributes have the same numbers in driver and runtime. 0: unknown attribute.
int device_attribute(int attribute);
const char* error_text(int error);
const char* error_name(int error);

}  // namespace pleat::simulated

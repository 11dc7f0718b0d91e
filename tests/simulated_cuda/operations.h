// The interface between the library of true values of torch's operators and the simulated driver.
#pragma once

#include <cstddef>

struct CUstream_st;

extern "C" {

struct SimulatedAccess {
  const void* address;
  std::size_t bytes;
  bool writes;
};

// The host alias of a device address.
void* simulated_cuda_alias(const void* address);
bool simulated_cuda_is_capturing(CUstream_st* stream);
// Records whether this thread runs an operator with true values. A launch of torch's kernels
// elsewhere ends the process, because its values would be wrong.
void simulated_cuda_in_operator(bool in);
// Queues an operation that is already done, or, as part of a graph, one that `run` does at each
// launch; `drop` ends `self`. Returns the driver's error.
//   device  the device whose legacy stream a null stream means
int simulated_cuda_operation(int device, CUstream_st* stream, const char* what,
                             const SimulatedAccess* accesses, std::size_t count, void (*run)(void*),
                             void (*drop)(void*), void* self);
// Records that torch's allocator hands out a block, or is asked to take it back.
void simulated_cuda_block(bool handed_out, const void* address, std::size_t bytes, bool checked);
// Reports a forbidden event.
void simulated_cuda_object(const char* report);

}  // extern "C"

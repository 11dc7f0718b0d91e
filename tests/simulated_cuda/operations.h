// How the true values of torch's operators, in a library of their own, speak with the simulated
// driver.
#pragma once

#include <cstddef>

struct CUstream_st;

extern "C" {

struct SimulatedAccess {
  const void* address;
  std::size_t bytes;
  bool writes;
};

// Where the host finds what lies at a device's address.
void* simulated_cuda_alias(const void* address);
bool simulated_cuda_is_capturing(CUstream_st* stream);
// This thread runs an operator whose values are true, until it is told again: torch's kernels that
// are launched elsewhere end the process, as their values would not be.
void simulated_cuda_in_operator(bool in);
// Queues an operation that has been done already, or that is part of a graph and is to be done by
// `run` when that is launched; `drop` ends `self`. Returns the driver's error.
//   device  whose legacy stream a null stream is
int simulated_cuda_operation(int device, CUstream_st* stream, const char* what,
                             const SimulatedAccess* accesses, std::size_t count, void (*run)(void*),
                             void (*drop)(void*), void* self);
// Torch's allocator has handed a block out, or is asked to take it back.
void simulated_cuda_block(bool handed_out, const void* address, std::size_t bytes, bool checked);
// Something that must not happen has.
void simulated_cuda_object(const char* report);

}  // extern "C"

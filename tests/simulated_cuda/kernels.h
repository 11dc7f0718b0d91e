// Kernels and launches. Torch's kernels have no effect here (true_values.cpp computes their
// values); Pleat's are found by name and run as host twins. A launch of any other kernel ends the
// process with its name.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace pleat::simulated {

struct Twin;  // kernel_twins.h

struct Kernel {
  std::string name;
  const Twin* twin = nullptr;
  bool torchs = false;  // from a library of the wheel, or compiled by one
  std::uint64_t launches = 0;
};

struct LaunchShape {
  unsigned grid[3];
  unsigned block[3];
};

// Registered by a library with the address of its host function.
void register_kernel(const void* host_function, const char* name, bool torchs);
Kernel* kernel_of(const void* host_function);
// A kernel of a loaded module. The kernels of a module are unknown, so each name has one.
//   torchs  torch has compiled the kernel
Kernel* kernel_by_name(const char* name, bool torchs);

int launch(Kernel* kernel, const LaunchShape& shape, void** parameters, CUstream stream);
// Records whether this thread is in an operator with true values.
void enter_operator(bool in);
// Counts by kernel, for launched kernels.
std::map<std::string, std::uint64_t> launches();

}  // namespace pleat::simulated

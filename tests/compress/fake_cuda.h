// A stand-in for libcuda.so.1 that records what it is asked and fails when told to. No device:
// tests may run a recorded launch with emulated_device.h.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pleat::compress::test {

struct FakeLaunch {
  std::string kernel;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  void* context;
  std::vector<unsigned char> parameter;  // parameter_bytes of it
  bool has_extra;
};

struct FakeCuda {
  std::mutex mutex;
  // What the driver answers.
  void* context = nullptr;  // current in every thread
  unsigned long long context_id = 1;
  int multiprocessors = 0;
  int active_blocks = 1;            // of any kernel, per multiprocessor
  std::size_t parameter_bytes = 0;  // of the kernels
  std::string failing;              // function that fails,
  int failure = 0;                  // with this
  // What it was asked.
  std::vector<const void*> images;  // loaded, one entry per load
  std::vector<std::string> functions;
  std::vector<int> block_sizes;  // whose active blocks
  std::vector<FakeLaunch> launches;
};

}  // namespace pleat::compress::test

// The state of the library it is found in.
extern "C" pleat::compress::test::FakeCuda* fake_cuda_state();

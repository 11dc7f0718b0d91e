// The simulated driver as one thing: its settings, its lock, its virtual time, its errors, and the
// count of its calls.
//
// Everything below an entry point runs with the lock held. Time goes on by one with each call and
// by waiting, never by itself, so that a seed gives the same run again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <random>

#include "tests/simulated_cuda/ledger.h"
#include "tests/simulated_cuda/vector_clock.h"

#define SIMULATED_EXPORT extern "C" __attribute__((visibility("default")))

namespace pleat::simulated {

inline constexpr int kMostDevices = 16;

// Error numbers, the same for driver and runtime.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kNotPermitted = 800,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureIsolation = 905,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
  kCapturedEvent = 907,
};

struct Settings {
  int devices = 1;
  std::size_t memory_bytes = std::size_t{16} << 30;  // of each device
  std::uint64_t lag = 0;     // calls by which the host sees things late, at most
  std::uint64_t seed = 0;    // of the lag
  bool true_values = false;  // torch's kernels may run in operators only, which give the values
};

enum Caller { kTorch, kPleat, kOther, kCallers };
// Whose code an address is.
Caller caller_of(const void* return_address);

// How often one function was called. Lives as long as the process.
class CallCount {
 public:
  explicit CallCount(const char* name);
  const char* const name;
  std::atomic<std::uint64_t> calls[kCallers]{};
  CallCount* next;
};

// The lock of the simulation. Recursive: an entry point may be made of others.
std::recursive_mutex& lock();

struct Simulation {
  Settings settings;
  bool started = false;  // some call has needed a device
  std::uint64_t now = 0;
  VectorClock host;  // what the host knows to have happened
  Ledger ledger;
  std::mt19937_64 random;
  int sticky = kSuccess;  // an error after which every call fails

  // By how much the next thing comes late.
  std::uint64_t draw_lag();
};
Simulation& simulation();
// Called by whatever needs a device: prints the line, takes address space.
void start();

// An entry point's first line: counts the call, holds the lock, lets time go on. `error` is what
// the call has to return at once, or kSuccess.
class Entry {
 public:
  Entry(CallCount& count, const void* return_address);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  int error = kSuccess;

 private:
  bool locked_ = false;
};

// For functions that nobody wrote, by name: ends the process.
[[noreturn]] void unknown_function(const char* name);
// Ends the process with a line: the simulation cannot go on.
[[noreturn]] void give_up(const char* what, const char* name);

// Marks the time in which a host function runs: it may not call the driver.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
};

// A function of the driver by its plain name, the newest version of it; nullptr: there is none.
void* driver_function(const char* name);

// What cudaGetLastError() of this thread gives.
int& last_error();
inline int remember(int error) {
  if (error != kSuccess) last_error() = error;
  return error;
}

}  // namespace pleat::simulated

#define SIMULATED_ENTRY(type)                                                   \
  static pleat::simulated::CallCount call_count(__func__);                      \
  const pleat::simulated::Entry entry(call_count, __builtin_return_address(0)); \
  if (entry.error != pleat::simulated::kSuccess) return static_cast<type>(entry.error)
// Entry points of the runtime (cuda...) and of the driver (cu...).
#define RUNTIME_ENTRY() SIMULATED_ENTRY(cudaError_t)
#define DRIVER_ENTRY() SIMULATED_ENTRY(CUresult)

// The simulated driver as one object: its settings, lock, virtual time, errors, and call counts.
//
// All code below an entry point runs with the lock held. Time advances by one per call and by
// waiting, never by itself, so that a seed reproduces a run.
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
  std::uint64_t lag = 0;     // largest number of calls by which the host sees a result late
  std::uint64_t seed = 0;    // seed of the lag
  bool true_values = false;  // torch's kernels can run only in operators, which compute the values
};

enum Caller { kTorch, kPleat, kOther, kCallers };
// The library whose code contains an address.
Caller caller_of(const void* return_address);

// Number of calls of one function. Lives as long as the process.
class CallCount {
 public:
  explicit CallCount(const char* name);
  const char* const name;
  std::atomic<std::uint64_t> calls[kCallers]{};
  CallCount* next;
};

// The lock of the simulation. Recursive: an entry point can call others.
std::recursive_mutex& lock();

struct Simulation {
  Settings settings;
  bool started = false;  // some call has needed a device
  std::uint64_t now = 0;
  VectorClock host;  // the operations that the host knows to be complete
  Ledger ledger;
  std::mt19937_64 random;
  int sticky = kSuccess;  // an error after which every call fails

  // The lag of the next result.
  std::uint64_t draw_lag();
};
Simulation& simulation();
// Called by each call that needs a device: prints the line, reserves address space.
void start();

// The first line of an entry point: counts the call, holds the lock, advances time. `error` is the
// error to return at once, or kSuccess.
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

// For unimplemented functions, by name: ends the process.
[[noreturn]] void unknown_function(const char* name);
// Ends the process with a message: the simulation cannot continue.
[[noreturn]] void give_up(const char* what, const char* name);

// Marks the time in which a host function runs: it must not call the driver.
class InHostFunction {
 public:
  InHostFunction();
  ~InHostFunction();
};

// A function of the driver by its plain name, in its newest version; nullptr: unknown.
void* driver_function(const char* name);

// The result of cudaGetLastError() in this thread.
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

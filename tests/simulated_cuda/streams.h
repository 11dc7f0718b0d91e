// Streams and events. Queued work happens at once, in the order of its issue; its results become
// visible to the host when they are due, which the seeded lag delays. Vector clocks track order
// separately, and the oracle uses only these.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulated_cuda/simulation.h"

namespace pleat::simulated {
struct Capture;
}  // namespace pleat::simulated

struct CUstream_st {
  std::uint32_t number = 0;
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool destroyed = false;
  pleat::simulated::VectorClock clock;  // the operations before the next one
  std::uint64_t due = 0;                // when all queued work is due
  std::shared_ptr<pleat::simulated::Capture> capture;
  std::vector<std::function<void()>> host_functions;  // queued and not yet run
};

struct CUevent_st {
  unsigned flags = 0;
  bool destroyed = false;
  bool recorded = false;
  pleat::simulated::VectorClock clock;
  std::uint64_t due = 0;
  std::shared_ptr<pleat::simulated::Capture> capture;
};

namespace pleat::simulated {

// One operation of a stream.
struct Operation {
  std::string what;
  std::vector<Access> accesses;
  // Does the work, and adds accesses that only the work reveals.
  std::function<void(std::vector<Access>* accesses)> prepare;
  // Does the work, or its rest, if the time of its end must be known.
  std::function<void(std::uint64_t due)> run;
  bool in_a_graph = false;
};

// The current device of this thread, and the stream that a handle means there.
int current_device();
CUstream stream_of(CUstream handle);
bool is_stream(CUstream handle);
bool is_event(CUevent handle);
// Number of events that were created and not destroyed.
std::size_t live_events();

int create_stream(unsigned flags, int priority, CUstream* stream);
int destroy_stream(CUstream handle);
// Ends the part that streams take in a capture.
void leave_capture(const std::shared_ptr<Capture>& capture);
// Queues an operation, or adds it to the graph that the stream captures.
int queue(CUstream handle, Operation operation);
// Adds the operation to the stream and returns the time when it is due.
std::uint64_t issue(CUstream stream, Operation& operation);
// Runs the host functions that are queued on the stream.
void run_host_functions(CUstream stream);
int queue_host_function(CUstream handle, std::function<void()> function);

int create_event(unsigned flags, CUevent* event);
int destroy_event(CUevent event);
int record(CUevent event, CUstream handle);
int wait(CUstream handle, CUevent event);
int query(CUevent event);
int query(CUstream handle);
int elapsed(float* milliseconds, CUevent from, CUevent to);
// Lets the host wait.
int synchronize(CUevent event);
int synchronize(CUstream handle);
void synchronize_device(int device);

}  // namespace pleat::simulated

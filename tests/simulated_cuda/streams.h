// Streams and events. What is queued happens at once, in the order of its issue; what the host can
// see of it comes when it is due, which the seeded lag puts off. Order is kept apart, by vector
// clocks, and the oracle sees only that.
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
  pleat::simulated::VectorClock clock;  // what happens before the next operation
  std::uint64_t due = 0;                // of all that is queued
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

// What a stream is given to do.
struct Operation {
  std::string what;
  std::vector<Access> accesses;
  // Does the work, and adds accesses that only the work shows.
  std::function<void(std::vector<Access>* accesses)> prepare;
  // Does the work, or what is left of it, where the time of its end has to be known.
  std::function<void(std::uint64_t due)> run;
  bool in_a_graph = false;
};

// The device that this thread works on, and the stream that a handle means there.
int current_device();
CUstream stream_of(CUstream handle);
bool is_stream(CUstream handle);
bool is_event(CUevent handle);
// Events that were created and not destroyed.
std::size_t live_events();

int create_stream(unsigned flags, int priority, CUstream* stream);
int destroy_stream(CUstream handle);
// Streams that take part in the capture do so no longer.
void leave_capture(const std::shared_ptr<Capture>& capture);
// Queues it, or adds it to the graph that the stream captures.
int queue(CUstream handle, Operation operation);
// Notes the operation as one more of the stream and gives the time when it is due.
std::uint64_t issue(CUstream stream, Operation& operation);
// Host functions that are queued on the stream run now.
void run_host_functions(CUstream stream);
int queue_host_function(CUstream handle, std::function<void()> function);

int create_event(unsigned flags, CUevent* event);
int destroy_event(CUevent event);
int record(CUevent event, CUstream handle);
int wait(CUstream handle, CUevent event);
int query(CUevent event);
int query(CUstream handle);
int elapsed(float* milliseconds, CUevent from, CUevent to);
// The host waits.
int synchronize(CUevent event);
int synchronize(CUstream handle);
void synchronize_device(int device);

}  // namespace pleat::simulated

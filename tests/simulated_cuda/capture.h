// Stream capture and graphs: a graph is a list of queued operations, and a launch repeats them.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "tests/simulated_cuda/streams.h"

// An object that lives as long as the graphs that hold it.
struct CUuserObject_st {
  void* object = nullptr;
  void (*destroy)(void*) = nullptr;
  unsigned holders = 0;
};

struct CUgraph_st {
  std::vector<pleat::simulated::Operation> operations;
  std::vector<std::shared_ptr<CUuserObject_st>> kept;
  std::vector<std::shared_ptr<const void>> memory;  // allocated by its operations
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

namespace pleat::simulated {

struct Capture {
  unsigned long long id = 0;
  CUgraph graph = nullptr;
  CUstream origin = nullptr;
  int mode = 0;                  // CU_STREAM_CAPTURE_MODE_...
  const void* thread = nullptr;  // the thread that began it
  bool invalid = false;
};

int begin_capture(CUstream handle, int mode, CUgraph into);
int end_capture(CUstream handle, CUgraph* graph);
int add_to_graph(Capture& capture, Operation operation);
int launch_graph(CUgraphExec graph, CUstream handle);
// A call that is forbidden during any capture.
int forbidden_while_capturing();
// The same for a known capture, which cannot end successfully any more.
int invalidate(Capture& capture);
// Exchanges this thread's mode, which selects the captures that forbid calls.
void exchange_mode(int* mode);

}  // namespace pleat::simulated

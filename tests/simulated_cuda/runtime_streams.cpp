// Entry points of the runtime: streams, events, capture and graphs.
#include <cuda_runtime_api.h>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/streams.h"

using namespace pleat::simulated;

namespace {

cudaError_t done(int error) { return static_cast<cudaError_t>(remember(error)); }

}  // namespace

SIMULATED_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(create_stream(0, 0, stream));
}
SIMULATED_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  RUNTIME_ENTRY();
  need_context();
  return done(create_stream(flags, 0, stream));
}
SIMULATED_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                          int priority) {
  RUNTIME_ENTRY();
  need_context();
  return done(create_stream(flags, priority, stream));
}
SIMULATED_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  RUNTIME_ENTRY();
  return done(destroy_stream(stream));
}
SIMULATED_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  RUNTIME_ENTRY();
  if (!is_stream(stream)) return done(kInvalidHandle);
  *priority = stream_of(stream)->priority;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  RUNTIME_ENTRY();
  if (!is_stream(stream)) return done(kInvalidHandle);
  *flags = stream_of(stream)->flags;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  RUNTIME_ENTRY();
  if (!is_stream(stream)) return done(kInvalidHandle);
  *device = stream_of(stream)->device;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  RUNTIME_ENTRY();
  if (!is_stream(stream)) return done(kInvalidHandle);
  *id = stream_of(stream)->number;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
  RUNTIME_ENTRY();
  return done(query(stream));
}
SIMULATED_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RUNTIME_ENTRY();
  need_context();
  return done(synchronize(stream));
}
SIMULATED_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  RUNTIME_ENTRY();
  return done(wait(stream, event));
}
SIMULATED_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                                void* argument) {
  RUNTIME_ENTRY();
  need_context();
  return done(queue_host_function(stream, [=] { function(argument); }));
}
SIMULATED_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                                   cudaStreamCallback_t function, void* argument,
                                                   unsigned) {
  RUNTIME_ENTRY();
  need_context();
  return done(queue_host_function(stream, [=] { function(stream, cudaSuccess, argument); }));
}

SIMULATED_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  RUNTIME_ENTRY();
  need_context();
  return done(create_event(flags, event));
}
SIMULATED_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) {
  RUNTIME_ENTRY();
  need_context();
  return done(create_event(0, event));
}
SIMULATED_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  RUNTIME_ENTRY();
  return done(destroy_event(event));
}
SIMULATED_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  RUNTIME_ENTRY();
  return done(record(event, stream));
}
SIMULATED_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                      unsigned) {
  RUNTIME_ENTRY();
  return done(record(event, stream));
}
SIMULATED_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  RUNTIME_ENTRY();
  return done(query(event));
}
SIMULATED_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  RUNTIME_ENTRY();
  return done(synchronize(event));
}
SIMULATED_EXPORT cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from,
                                                  cudaEvent_t to) {
  RUNTIME_ENTRY();
  return done(elapsed(milliseconds, from, to));
}

SIMULATED_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                    cudaStreamCaptureMode mode) {
  RUNTIME_ENTRY();
  return done(begin_capture(stream, mode, nullptr));
}
SIMULATED_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  RUNTIME_ENTRY();
  return done(end_capture(stream, graph));
}
SIMULATED_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                   cudaStreamCaptureStatus* status) {
  RUNTIME_ENTRY();
  if (!is_stream(stream)) return done(kInvalidHandle);
  const auto& capture = stream_of(stream)->capture;
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
            : capture->invalid ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                      cudaStreamCaptureStatus* status,
                                                      unsigned long long* id, cudaGraph_t* graph,
                                                      const cudaGraphNode_t** dependencies,
                                                      const cudaGraphEdgeData** edges,
                                                      size_t* count) {
  if (const cudaError_t error = cudaStreamIsCapturing(stream, status); error != cudaSuccess)
    return error;
  RUNTIME_ENTRY();
  const auto& capture = stream_of(stream)->capture;
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
  if (graph != nullptr) *graph = capture == nullptr ? nullptr : capture->graph;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  RUNTIME_ENTRY();
  int number = *mode;
  exchange_mode(&number);
  *mode = static_cast<cudaStreamCaptureMode>(number);
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  RUNTIME_ENTRY();
  *graph = new CUgraph_st;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable,
                                                           cudaGraph_t graph, unsigned long long) {
  RUNTIME_ENTRY();
  *executable = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                  unsigned long long) {
  RUNTIME_ENTRY();
  *executable = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                               size_t* count) {
  RUNTIME_ENTRY();
  if (nodes != nullptr) return done(kNotSupported);  // torch needs only the number
  *count = graph->operations.size();
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  RUNTIME_ENTRY();
  return done(launch_graph(executable, stream));
}
SIMULATED_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  RUNTIME_ENTRY();
  delete graph;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  RUNTIME_ENTRY();
  delete executable;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) {
  RUNTIME_ENTRY();
  return cudaSuccess;
}
// Objects that graphs keep: destroyed together with the last graph that holds them.
SIMULATED_EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* what,
                                                  cudaHostFn_t destroy, unsigned holders,
                                                  unsigned) {
  RUNTIME_ENTRY();
  *object = new CUuserObject_st{what, destroy, holders};
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  RUNTIME_ENTRY();
  if (count > object->holders) return done(kInvalidValue);
  object->holders -= count;
  if (object->holders != 0) return cudaSuccess;
  object->destroy(object->object);
  delete object;
  return cudaSuccess;
}
SIMULATED_EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                       unsigned count, unsigned flags) {
  RUNTIME_ENTRY();
  if (flags != cudaGraphUserObjectMove) object->holders += count;
  graph->kept.emplace_back(object, [count](CUuserObject_st* kept) {
    kept->holders -= count;
    if (kept->holders != 0) return;
    kept->destroy(kept->object);
    delete kept;
  });
  return cudaSuccess;
}

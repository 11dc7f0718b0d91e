// Entry points of the driver: streams and events. Also the interface for the true values of torch's
// operators.
#include <cuda.h>

#include <memory>

#include "tests/simulated_cuda/capture.h"
#include "tests/simulated_cuda/context.h"
#include "tests/simulated_cuda/kernels.h"
#include "tests/simulated_cuda/memory.h"
#include "tests/simulated_cuda/operations.h"
#include "tests/simulated_cuda/streams.h"

using namespace pleat::simulated;

namespace {

CUresult done(int error) { return static_cast<CUresult>(error); }

}  // namespace

SIMULATED_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return done(create_stream(flags, 0, stream));
}
SIMULATED_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags,
                                                     int priority) {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return done(create_stream(flags, priority, stream));
}
SIMULATED_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  DRIVER_ENTRY();
  return done(destroy_stream(stream));
}
SIMULATED_EXPORT CUresult cuStreamQuery(CUstream stream) {
  DRIVER_ENTRY();
  return done(query(stream));
}
SIMULATED_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  DRIVER_ENTRY();
  return done(synchronize(stream));
}
SIMULATED_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  DRIVER_ENTRY();
  return done(wait(stream, event));
}
SIMULATED_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  DRIVER_ENTRY();
  if (!is_stream(stream)) {
    simulation().ledger.object("a stream is asked that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const auto& capture = stream_of(stream)->capture;
  *status = capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  DRIVER_ENTRY();
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(primary_context(stream_of(stream)->device));
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  DRIVER_ENTRY();
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *id = stream_of(stream)->number;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  DRIVER_ENTRY();
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *device = stream_of(stream)->device;
  return CUDA_SUCCESS;
}
SIMULATED_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  DRIVER_ENTRY();
  return done(queue_host_function(stream, [=] { function(argument); }));
}
SIMULATED_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  DRIVER_ENTRY();
  int number = *mode;
  exchange_mode(&number);
  *mode = static_cast<CUstreamCaptureMode>(number);
  return CUDA_SUCCESS;
}

SIMULATED_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  DRIVER_ENTRY();
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return done(create_event(flags, event));
}
SIMULATED_EXPORT CUresult cuEventDestroy(CUevent event) {
  DRIVER_ENTRY();
  return done(destroy_event(event));
}
SIMULATED_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  DRIVER_ENTRY();
  return done(record(event, stream));
}
SIMULATED_EXPORT CUresult cuEventQuery(CUevent event) {
  DRIVER_ENTRY();
  return done(query(event));
}
SIMULATED_EXPORT CUresult cuEventSynchronize(CUevent event) {
  DRIVER_ENTRY();
  return done(synchronize(event));
}
SIMULATED_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  DRIVER_ENTRY();
  return done(elapsed(milliseconds, from, to));
}

// ---- operators of torch ----

SIMULATED_EXPORT void* simulated_cuda_alias(const void* address) { return alias(address); }

SIMULATED_EXPORT void simulated_cuda_in_operator(bool in) { enter_operator(in); }

SIMULATED_EXPORT bool simulated_cuda_is_capturing(CUstream stream) {
  const std::lock_guard guard(lock());
  return is_stream(stream) && stream_of(stream)->capture != nullptr;
}

SIMULATED_EXPORT int simulated_cuda_operation(int device, CUstream stream, const char* what,
                                              const SimulatedAccess* accesses, std::size_t count,
                                              void (*run)(void*), void (*drop)(void*), void* self) {
  const std::lock_guard guard(lock());
  Operation operation{what, {}, {}, {}};
  for (std::size_t i = 0; i < count; ++i)
    if (is_followed(accesses[i].address))
      operation.accesses.push_back({accesses[i].address, accesses[i].bytes, accesses[i].writes});
  if (run != nullptr) {
    const std::shared_ptr<void> held(self, drop);
    operation.run = [held, run](std::uint64_t) { run(held.get()); };
  }
  push_context(primary_context(device));
  const int error = queue(stream, std::move(operation));
  (void)pop_context();
  return error;
}

SIMULATED_EXPORT void simulated_cuda_block(bool handed_out, const void* address, std::size_t bytes,
                                           bool checked) {
  const std::lock_guard guard(lock());
  if (handed_out)
    simulation().ledger.hand_out(address, bytes, checked);
  else
    simulation().ledger.take_back(address, checked);
}

// The current counts; pinned memory in bytes.
SIMULATED_EXPORT std::size_t simulated_cuda_events() {
  const std::lock_guard guard(lock());
  return live_events();
}
SIMULATED_EXPORT std::size_t simulated_cuda_pinned() {
  const std::lock_guard guard(lock());
  return pinned_use().now;
}

SIMULATED_EXPORT void simulated_cuda_fail_allocation(int n) {
  const std::lock_guard guard(lock());
  fail_allocation(n);
}

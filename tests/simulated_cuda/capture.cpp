#include "tests/simulated_cuda/capture.h"

#include <algorithm>
#include <set>

namespace pleat::simulated {
namespace {

enum Mode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* const all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

thread_local int thread_mode = kGlobal;
const void* this_thread() { return &thread_mode; }

}  // namespace

int begin_capture(CUstream handle, int mode, CUgraph into) {
  start();
  if (!is_stream(handle)) return kInvalidHandle;
  const CUstream stream = stream_of(handle);
  // The legacy stream waits for all other streams, and they do not record that.
  if (reinterpret_cast<std::uintptr_t>(handle) <= 1 || stream->capture != nullptr)
    return kCaptureUnsupported;
  static unsigned long long next = 1;
  auto capture = std::make_shared<Capture>();
  *capture = {next++, into != nullptr ? into : new CUgraph_st, stream, mode, this_thread(), false};
  stream->capture = capture;
  captures().push_back(capture);
  return kSuccess;
}

int end_capture(CUstream handle, CUgraph* graph) {
  *graph = nullptr;
  if (!is_stream(handle)) return kInvalidHandle;
  const auto capture = stream_of(handle)->capture;
  if (capture == nullptr || capture->origin != stream_of(handle)) return kCaptureUnmatched;
  leave_capture(capture);
  std::erase(captures(), capture);
  if (capture->invalid) return kCaptureInvalidated;
  *graph = capture->graph;
  return kSuccess;
}

int add_to_graph(Capture& capture, Operation operation) {
  if (capture.invalid) return kCaptureInvalidated;
  operation.in_a_graph = true;
  capture.graph->operations.push_back(std::move(operation));
  return kSuccess;
}

int launch_graph(CUgraphExec graph, CUstream handle) {
  for (const Operation& operation : graph->graph.operations)
    if (const int error = queue(handle, operation); error != kSuccess) return error;
  return kSuccess;
}

int forbidden_while_capturing() {
  if (thread_mode == kRelaxed) return kSuccess;
  for (const auto& capture : captures())
    if (!capture->invalid && (capture->mode == kGlobal ||
                              (capture->mode == kThreadLocal && capture->thread == this_thread())))
      return invalidate(*capture);
  return kSuccess;
}

int invalidate(Capture& capture) {
  capture.invalid = true;
  return kCaptureUnsupported;
}

void exchange_mode(int* mode) { std::swap(*mode, thread_mode); }

}  // namespace pleat::simulated

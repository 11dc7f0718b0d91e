// The backward passes that run: which thread is in one, how deep, and whether it makes a graph.
// Also whether operators of ours may run in this thread.
//
// A pass is known by its thread. Nodes on the CPU run in the thread that has called backward; what
// must hold in another thread too asks autograd for the graph task.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// A pass of this thread while it lives. Nested ones (a backward within a backward, the wrapped
// engine within the wrapper) count as one outermost pass.
void enter_pass() noexcept;
// True if the outermost one is over.
bool leave_pass() noexcept;

// How many backward passes this thread is in, one within the other; 0 where none is seen.
[[nodiscard]] int backward_depth() noexcept;
// True if this thread is in a backward pass, seen to begin or known to autograd alone. Nodes of
// other devices run in threads of their own, which see no pass begin.
[[nodiscard]] bool in_backward() noexcept;
// Called in a child of fork(): the passes of threads that the child does not have are over.
void forget_other_threads_passes() noexcept;
// True if any thread is in one.
[[nodiscard]] bool backward_is_running() noexcept;

// True if this thread runs nodes of a pass that another thread has begun: those of a device other
// than the host.
[[nodiscard]] bool in_device_thread() noexcept;

// True while this thread is in a backward pass with create_graph, or runs nodes of one. Not known
// without the preload library.
[[nodiscard]] bool backward_creates_graph() noexcept;
// Returns what was set before.
bool set_backward_creates_graph(bool creates_graph) noexcept;

// Which values a pass reads of what is compressed. Others than the payload's are there only where
// Runtime::check keeps them.
enum class PassValues : std::uint8_t {
  kPayload,    // as it always is
  kOriginal,   // what was saved
  kUndoubted,  // the payload's where nobody doubts that noise is harmless, else what was saved
};

class TorchRecord;

// A saved tensor that a pass reads.
struct ReadTensor {
  TorchRecord& record;                              // of its storage
  const torch::autograd::Node* reader = nullptr;    // null: not known
  const torch::autograd::Node* producer = nullptr;  // null: it has none, or that is not known
  c10::IntArrayRef sizes;
  caffe2::TypeMeta dtype;
  bool living = false;  // it was never compressed
};

// Is told of what a pass reads.
class PassWatch {
 public:
  // Before the reader is given the tensor. Of a pass over devices, their threads call it side by
  // side.
  virtual void note_read(const ReadTensor& tensor) noexcept = 0;
  // Something is recorded while the pass runs.
  virtual void note_recorded() noexcept = 0;

 protected:
  ~PassWatch() = default;
};

// What is particular about a pass; of most passes nothing.
struct PassFacts {
  PassValues values = PassValues::kPayload;
  // It is one of ours (measure/extra_passes.h), of which nothing may stay. Each such pass has a
  // number of its own.
  std::uint64_t extra = 0;
  PassWatch* watch = nullptr;
  const void* arriving = nullptr;  // who sketches what arrives at leaves; compare only
};
// Of the pass whose nodes this thread runs, be it of a device's threads.
[[nodiscard]] const PassFacts& pass_facts() noexcept;
[[nodiscard]] inline PassValues pass_values() noexcept { return pass_facts().values; }
[[nodiscard]] inline bool in_extra_pass() noexcept { return pass_facts().extra != 0; }

// Passes that this thread begins have these facts. Throws std::bad_alloc.
class PassFactsScope {
 public:
  explicit PassFactsScope(const PassFacts& facts);
  ~PassFactsScope();
  PassFactsScope(const PassFactsScope&) = delete;
  PassFactsScope& operator=(const PassFactsScope&) = delete;

 private:
  const PassFacts outer_;
  const c10::DebugInfoGuard for_devices_;
};

// The node that this thread is unpacking for, where autograd says so: outputs, functions of users.
[[nodiscard]] const torch::autograd::Node* unpacking_node() noexcept;
// Returns what was set before.
const torch::autograd::Node* set_unpacking_node(const torch::autograd::Node* node) noexcept;

// True while the operators that this thread runs are recorded or replaced by somebody: dispatch
// modes (fake tensors, proxies, loggers), tracing, function transforms. Ours must not be among
// them.
[[nodiscard]] bool operators_are_watched() noexcept;

}  // namespace pleat::bridge

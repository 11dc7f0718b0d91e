// The running backward passes: which thread is in one, how deep, and whether it makes a graph. Also
// whether Pleat's operators can run in this thread.
//
// A pass belongs to its thread. Nodes on the CPU run in the thread that called backward; for facts
// that must hold in other threads too, use autograd's graph task.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// Begins a pass of this thread. Nested passes (a backward within a backward, the wrapped engine
// within the wrapper) count as one outermost pass.
void enter_pass() noexcept;
// True if the outermost pass is over.
bool leave_pass() noexcept;

// The number of nested backward passes of this thread; 0 if no pass was observed.
[[nodiscard]] int backward_depth() noexcept;
// True if this thread is in a backward pass, observed at its begin or known to autograd alone.
// Nodes of other devices run in threads of their own, which observe no begin of a pass.
[[nodiscard]] bool in_backward() noexcept;
// Called in a child of fork(): ends the passes of threads that the child does not have.
void forget_other_threads_passes() noexcept;
// True if any thread is in a pass.
[[nodiscard]] bool backward_is_running() noexcept;

// True if this thread runs nodes of a pass that another thread began: those of a device other than
// the host.
[[nodiscard]] bool in_device_thread() noexcept;

// True while this thread is in a backward pass with create_graph, or runs nodes of one. Always
// false without the preload library.
[[nodiscard]] bool backward_creates_graph() noexcept;
// Returns the previous value.
bool set_backward_creates_graph(bool creates_graph) noexcept;

// The values of compressed tensors that a pass reads. Values other than the payload's exist only if
// Runtime::check keeps them.
enum class PassValues : std::uint8_t {
  kPayload,   // the default
  kOriginal,  // the saved values
  // The saved values, and next to them, where noise is beyond doubt harmless, the payload's: there
  // each value is as far off as in the payload, but no farther than its width alone would put it.
  kYardstick,
};

class TorchRecord;

// A saved tensor that a pass reads.
struct ReadTensor {
  TorchRecord& record;                              // record of its storage
  const torch::autograd::Node* reader = nullptr;    // null: unknown
  const torch::autograd::Node* producer = nullptr;  // null: none, or unknown
  c10::IntArrayRef sizes;
  caffe2::TypeMeta dtype;
  bool living = false;  // it was never compressed
};

// Observer of a pass's reads.
class PassWatch {
 public:
  // Called before the reader gets the tensor. The threads of devices call it concurrently.
  virtual void note_read(const ReadTensor& tensor) noexcept = 0;
  // Called when a node is recorded while the pass runs.
  virtual void note_recorded() noexcept = 0;

 protected:
  ~PassWatch() = default;
};

// The particulars of a pass; most passes have the defaults.
struct PassFacts {
  PassValues values = PassValues::kPayload;
  // An extra pass of Pleat's own (measure/extra_passes.h), which must leave no trace. Each has its
  // own number.
  std::uint64_t extra = 0;
  PassWatch* watch = nullptr;
  const void* arriving = nullptr;  // the owner of sketches of arriving gradients; compare only
};
// The facts of the pass whose nodes this thread runs, a device's thread included.
[[nodiscard]] const PassFacts& pass_facts() noexcept;
[[nodiscard]] inline PassValues pass_values() noexcept { return pass_facts().values; }
[[nodiscard]] inline bool in_extra_pass() noexcept { return pass_facts().extra != 0; }

// Sets the facts of passes that this thread begins. Throws std::bad_alloc.
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

// The node that this thread unpacks for, if autograd names it: for outputs and functions of users.
[[nodiscard]] const torch::autograd::Node* unpacking_node() noexcept;
// Returns the previous value.
const torch::autograd::Node* set_unpacking_node(const torch::autograd::Node* node) noexcept;

// True while other code records or replaces the operators of this thread: dispatch modes (fake
// tensors, proxies, loggers), tracing, function transforms. Pleat must then run no operators.
[[nodiscard]] bool operators_are_watched() noexcept;

}  // namespace pleat::bridge

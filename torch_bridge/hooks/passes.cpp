#include "torch_bridge/hooks/passes.h"

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/proofs.h"
#include "torch_bridge/torch_access/recording.h"
#include "torch_bridge/trace/labels.h"
#include "torch_bridge/trace/operators.h"
#include "torch_bridge/trace/state.h"

namespace pleat::bridge {

void begin_pass(const torch::autograd::edge_list& roots, PassKind kind) noexcept {
  enter_pass();
  Runtime* const runtime = backward_depth() == 1 ? Runtime::get() : nullptr;
  if (runtime == nullptr) {
    return;
  }
  if (tracing()) [[unlikely]] {
    trace_pass_begins();
    label_leaves(roots);
  }
  try {
    end_proofs(roots, recorders_of(roots), kind);
  } catch (...) {  // no memory for a list of threads
  }
  runtime->begin_backward();
}

void backward_enter() noexcept {
  if (Runtime* const runtime = Runtime::get()) {
    runtime->sensitivity.note_unseen_pass();
  }
  // How the pass was asked for is not told: what depends on a leaf that is no weight stays exact.
  begin_pass({}, {.accumulates = false});
}

void backward_exit() noexcept {
  forget_pass(backward_depth());
  if (leave_pass()) {
    if (tracing()) [[unlikely]] {
      label_gradients();
      trace_pass_ends();
    }
    drop_kept_storages();
    if (!backward_is_running()) {
      forget_device_threads();
    }
  }
}

}  // namespace pleat::bridge

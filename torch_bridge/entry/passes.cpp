#include "torch_bridge/entry/passes.h"

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/memory/torch_record.h"

namespace pleat::bridge {

void backward_enter() noexcept {
  enter_pass();
  Runtime* const runtime = backward_depth() == 1 ? Runtime::get() : nullptr;
  if (runtime != nullptr) {
    runtime->begin_backward();
  }
}

void backward_exit() noexcept {
  forget_pass(backward_depth());
  if (leave_pass()) {
    drop_recent_storage();
  }
}

}  // namespace pleat::bridge

#include "torch_bridge/hooks/reader.h"

#include "torch_bridge/hooks/handed_out.h"
#include "torch_bridge/policy/node_class.h"
#include "torch_bridge/torch_access/pass_state.h"

namespace pleat::bridge {

using torch::autograd::Node;

// Under create_graph no accumulator takes a gradient as it is, and a second backward pass finds the
// record by its storage: treat the reader like a formula.
Reader present_reader(const SaveContext& context) {
  if (backward_creates_graph()) {
    return {.formula = true};
  }
  if (torch::autograd::get_current_graph_task_id() < 0) {
    return {.formula = !backward_is_running()};
  }
  const Node* const running = torch::autograd::get_current_node().get();
  const Node* const asked = unpacking_node();
  if (asked != nullptr && asked != running) {
    return {.node = running != nullptr ? running : asked};
  }
  if (running == nullptr) {
    return {};
  }
  if (!class_of(*running).of_torch) {
    return {.node = running, .lets_go = !torch::autograd::get_current_graph_task_keep_graph()};
  }
  // A formula names its node only for outputs.
  const bool formula = asked == nullptr || context.is_output;
  return {.formula = formula, .node = formula ? nullptr : running};
}

at::Tensor hand_living(at::Tensor living, const Reader& reader, const SaveContext& context,
                       bool requires_grad) {
  if (reader.node == nullptr || context.is_output) {
    return living;
  }
  if (context.known) {
    return living;  // note_unpacked() follows, with the variable that autograd makes
  }
  if (requires_grad) {
    return living.detach().clone();
  }
  lend(*reader.node, living);
  return living;
}

}  // namespace pleat::bridge

// The only file that depends on the version of torch: CMake's findings in torch's headers.
//   PLEAT_ENGINE_HAS_NODE_CREATION_HOOKS   Engine::get_node_creation_hooks() (2.15)
//   PLEAT_HOOKS_HAVE_RETRIEVE_UNPACK_HOOK  SavedVariableHooks::retrieve_unpack_hook() (2.15)
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

namespace pleat::bridge {

// std::shared_ptr, or c10::intrusive_ptr from 2.15 on.
using NodePtr = decltype(torch::autograd::Edge::function);

template <class Engine>
constexpr bool kHasNodeCreationHooks = requires(Engine& e) {
  e.get_node_creation_hooks();
};
static_assert(kHasNodeCreationHooks<torch::autograd::Engine> ==
                  PLEAT_ENGINE_HAS_NODE_CREATION_HOOKS,
              "torch_bridge/CMakeLists.txt looks for it in engine.h");
template <class Hooks>
constexpr bool kHasRetrieveUnpackHook = requires(const Hooks& h) {
  h.retrieve_unpack_hook();
};
static_assert(kHasRetrieveUnpackHook<torch::autograd::SavedVariableHooks> ==
                  PLEAT_HOOKS_HAVE_RETRIEVE_UNPACK_HOOK,
              "torch_bridge/CMakeLists.txt looks for it in saved_variable_hooks.h");

}  // namespace pleat::bridge

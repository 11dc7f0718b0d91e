// The one place where versions of torch differ: what CMake's probes found, and what follows.
//   PLEAT_NODE_IS_INTRUSIVE    Node is held by c10::intrusive_ptr (2.15) instead of std::shared_ptr
//   PLEAT_ENGINE_HAS_NODE_CREATION_HOOKS   Engine::get_node_creation_hooks() (2.15)
//   PLEAT_HOOKS_HAVE_RETRIEVE_UNPACK_HOOK  SavedVariableHooks::retrieve_unpack_hook() (2.15)
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

namespace pleat::bridge {

#if PLEAT_NODE_IS_INTRUSIVE
using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;
#else
using NodePtr = std::shared_ptr<torch::autograd::Node>;
#endif

}  // namespace pleat::bridge

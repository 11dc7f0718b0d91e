#include "torch_bridge/torch_access/saved_variable_access.h"

namespace pleat::bridge {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::SavedVariableHooks;

// An explicit instantiation can name private members; its friend functions return them.
template <auto Data, auto Hooks>
struct PrivateMembers {
  friend at::Tensor& private_data(SavedVariable& saved) { return saved.*Data; }
  friend std::unique_ptr<SavedVariableHooks>& private_hooks(SavedVariable& saved) {
    return saved.*Hooks;
  }
};
at::Tensor& private_data(SavedVariable& saved);
std::unique_ptr<SavedVariableHooks>& private_hooks(SavedVariable& saved);
template struct PrivateMembers<&SavedVariable::data_, &SavedVariable::hooks_>;

}  // namespace

std::unique_ptr<SavedVariableHooks>& hooks_of(SavedVariable& saved) noexcept {
  return private_hooks(saved);
}

SavedVariableHooks* hooks_of(const SavedVariable& saved) noexcept {
  return private_hooks(const_cast<SavedVariable&>(saved)).get();
}

at::Tensor& data_of(SavedVariable& saved) noexcept { return private_data(saved); }

}  // namespace pleat::bridge

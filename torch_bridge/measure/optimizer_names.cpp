#include "torch_bridge/measure/probe_parts.h"

#include <ATen/record_function.h>

#include <memory>
#include <string_view>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {
namespace {

std::unique_ptr<at::ObserverContext> at_scope(const at::RecordFunction& scope) {
  constexpr std::string_view kPrefix = "Optimizer.step#", kSuffix = ".step";
  std::string_view name = scope.name();
  if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) {
    name.remove_prefix(kPrefix.size());
    name.remove_suffix(kSuffix.size());
    Runtime::get()->sensitivity.note_optimizer(name);
  }
  return nullptr;
}

}  // namespace

void watch_optimizers() {
  static const bool once = [] {
    // Scopes of users only: operators do not see it.
    at::addGlobalCallback(
        at::RecordFunctionCallback(at_scope).scopes({at::RecordScope::USER_SCOPE}));
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace pleat::bridge

#include "torch_bridge/measure/optimizer_names.h"

#include <ATen/record_function.h>

#include <memory>

namespace pleat::bridge {
namespace {

void (*told)(std::string_view) noexcept = nullptr;

std::unique_ptr<at::ObserverContext> at_scope(const at::RecordFunction& scope) {
  constexpr std::string_view kPrefix = "Optimizer.step#", kSuffix = ".step";
  std::string_view name = scope.name();
  if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) {
    name.remove_prefix(kPrefix.size());
    name.remove_suffix(kSuffix.size());
    told(name);
  }
  return nullptr;
}

}  // namespace

void watch_optimizers(void (*steps)(std::string_view) noexcept) {
  static const bool once = [steps] {
    told = steps;
    // Scopes of users only: operators do not see it.
    at::addGlobalCallback(
        at::RecordFunctionCallback(at_scope).scopes({at::RecordScope::USER_SCOPE}));
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace pleat::bridge

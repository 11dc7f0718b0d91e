#include "tests/simulated_cuda/context.h"

#include <vector>

#include "tests/simulated_cuda/simulation.h"

namespace pleat::simulated {
namespace {

std::vector<Context*>& stack() {
  thread_local std::vector<Context*> contexts;
  return contexts;
}

}  // namespace

Context* primary_context(int device) {
  static Context contexts[kMostDevices];
  contexts[device].device = device;
  contexts[device].id = 1 + static_cast<unsigned long long>(device);
  return &contexts[device];
}

Context* current_context() { return stack().empty() ? nullptr : stack().back(); }

void set_current(Context* context) {
  if (!stack().empty()) stack().pop_back();
  if (context != nullptr) stack().push_back(context);
}

void push_context(Context* context) { stack().push_back(context); }

Context* pop_context() {
  if (stack().empty()) return nullptr;
  Context* const context = stack().back();
  stack().pop_back();
  return context;
}

int context_device() {
  const Context* const context = current_context();
  return context == nullptr ? 0 : context->device;
}

void need_context() {
  start();
  if (current_context() == nullptr) push_context(primary_context(0));
  current_context()->active = true;
}

}  // namespace pleat::simulated

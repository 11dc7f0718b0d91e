#include "tests/simulated_cuda/kernels.h"

#include <unordered_map>

#include "tests/simulated_cuda/kernel_twins.h"
#include "tests/simulated_cuda/streams.h"

namespace pleat::simulated {
namespace {

struct Kernels {
  std::unordered_map<const void*, Kernel*> registered;
  std::unordered_map<std::string, Kernel*> of_modules;
};
Kernels& kernels() {
  static auto* const all = new Kernels;
  return *all;
}

thread_local int operators = 0;  // nesting depth in this thread

bool runs(const LaunchShape& shape) {
  const std::uint64_t threads = std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  return shape.grid[0] != 0 && shape.grid[1] != 0 && shape.grid[2] != 0 && threads != 0 &&
         threads <= 1024 && shape.grid[0] <= 0x7FFFFFFF && shape.grid[1] <= 65535 &&
         shape.grid[2] <= 65535 && shape.block[2] <= 64;
}

}  // namespace

void register_kernel(const void* host_function, const char* name, bool torchs) {
  kernels().registered[host_function] = new Kernel{name, nullptr, torchs, 0};
}

Kernel* kernel_of(const void* host_function) {
  const auto at = kernels().registered.find(host_function);
  return at == kernels().registered.end() ? nullptr : at->second;
}

Kernel* kernel_by_name(const char* name, bool torchs) {
  const auto at = kernels().of_modules.find(name);
  if (at != kernels().of_modules.end()) return at->second;
  const std::string text = name;
  return kernels().of_modules[text] = new Kernel{text, find_twin(text), torchs, 0};
}

int launch(Kernel* kernel, const LaunchShape& shape, void** parameters, CUstream stream) {
  if (kernel == nullptr) return kInvalidHandle;
  if (!runs(shape)) return kInvalidValue;
  ++kernel->launches;
  if (kernel->twin == nullptr && !kernel->torchs)
    give_up("the kernel has no twin", kernel->name.c_str());
  if (kernel->torchs && simulation().settings.true_values && operators == 0)
    give_up("the kernel runs outside an operator with true values", kernel->name.c_str());
  if (kernel->twin != nullptr)
    return queue(stream, operation_of(*kernel->twin, kernel->name, parameters[0]));
  return queue(stream, {kernel->name, {}, {}, {}});
}

void enter_operator(bool in) { operators += in ? 1 : -1; }

std::map<std::string, std::uint64_t> launches() {
  std::map<std::string, std::uint64_t> all;
  const auto add = [&](const Kernel& kernel) {
    if (kernel.launches != 0) all[kernel.name] += kernel.launches;
  };
  for (const auto& [function, kernel] : kernels().registered) add(*kernel);
  for (const auto& [name, kernel] : kernels().of_modules) add(*kernel);
  return all;
}

}  // namespace pleat::simulated

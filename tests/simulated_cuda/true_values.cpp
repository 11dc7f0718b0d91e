// True values for torch's operators on the simulated device, below autograd and Python's modes.
// Each kernel registered for the CUDA key is replaced: the replacement runs it for its allocations
// and queued work, and then the CPU's kernel on the same memory through the alias. The oracle gets
// the operator's reads and writes from its schema.
//
// An operator without a CPU twin throws an error with its name.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/simulated_cuda/device_tensors.h"
#include "tests/simulated_cuda/operations.h"

namespace {

using pleat::simulated::add_accesses;
using pleat::simulated::alias_of;
using pleat::simulated::on_device;
using torch::jit::Stack;

// These create, view or move memory, and the driver observes their effects.
const std::set<std::string>& driver_sees() {
  static const std::set<std::string> names = {
      "empty",     "empty_strided",  "detach", "record_stream", "_local_scalar_dense",
      "is_pinned", "_pin_memory",    "set_",   "resize_",       "as_strided",
      "view",      "_reshape_alias", "unfold", "alias"};
  return names;
}
// Their result sizes depend on values, or their CUDA kernels read values on the host, where they
// are not true: only the CPU's kernel runs.
const std::set<std::string>& host_looks() {
  static const std::set<std::string> names = {"equal",
                                              "normal",
                                              "linalg_matrix_exp",
                                              "segment_reduce",
                                              "nonzero",
                                              "masked_select",
                                              "_unique2",
                                              "unique_dim",
                                              "unique_consecutive",
                                              "linalg_inv_ex",
                                              "_linalg_svd",
                                              "linalg_lu_factor_ex",
                                              "_linalg_solve_ex",
                                              "linalg_cholesky_ex",
                                              "_linalg_eigh",
                                              "linalg_qr",
                                              "bincount",
                                              "histc",
                                              "repeat_interleave",
                                              "_fft_r2c",
                                              "_fft_c2c",
                                              "_fft_c2r"};
  return names;
}

thread_local int depth = 0;  // nesting depth of operators with replaced kernels
struct Inside {
  Inside() {
    if (depth++ == 0) simulated_cuda_in_operator(true);
  }
  ~Inside() {
    if (--depth == 0) simulated_cuda_in_operator(false);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// A CPU generator with the same seed.
at::Generator twin_of(const at::Generator& generator) {
  if (!generator.defined() || !generator.device().is_cuda()) return generator;
  static std::mutex mutex;
  static auto* const twins =
      new std::map<const c10::GeneratorImpl*, std::pair<std::uint64_t, at::Generator>>;
  const std::lock_guard guard(mutex);
  auto& [seed, twin] = (*twins)[generator.unsafeGetGeneratorImpl()];
  if (!twin.defined() || seed != generator.current_seed()) {
    seed = generator.current_seed();
    twin = at::detail::createCPUGenerator(seed);
  }
  return twin;
}

// The contents of an operator's arguments.
struct Found {
  bool device = false;  // a tensor on a device, or a device
  bool host = false;    // a host tensor of more than one number
  c10::DeviceIndex index = -1;
  void see(const at::Tensor& tensor) {
    if (on_device(tensor)) {
      device = true;
      if (index < 0) index = tensor.get_device();
    } else if (tensor.defined()) {
      host = true;
    }
  }
};

c10::IValue twin_of(const c10::IValue& value, Found* found) {
  if (value.isTensor()) {
    found->see(value.toTensor());
    return alias_of(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> twins;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      found->see(tensor);
      twins.push_back(alias_of(tensor));
    }
    return twins;
  }
  if (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> twins;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isNone()) {
        twins.push_back(std::nullopt);
        continue;
      }
      if (!element.isTensor()) return value;
      found->see(element.toTensor());
      twins.push_back(alias_of(element.toTensor()));
    }
    return twins;
  }
  if (value.isDevice() && value.toDevice().is_cuda()) {
    found->device = true;
    if (found->index < 0) found->index = value.toDevice().index();
    return c10::Device(c10::kCPU);
  }
  if (value.isGenerator()) return twin_of(value.toGenerator());
  return value;
}

Stack twins_of(const Stack& arguments, Found* found) {
  Stack twins;
  for (const c10::IValue& argument : arguments) twins.push_back(twin_of(argument, found));
  return twins;
}

template <class F>
void each_tensor(const c10::IValue& value, F f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) f(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) f(element.toTensor());
  }
}

std::vector<SimulatedAccess> accesses_of(const c10::FunctionSchema& schema, const Stack& arguments,
                                         const std::vector<at::Tensor>& results) {
  std::vector<SimulatedAccess> accesses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* const info = schema.arguments()[i].alias_info();
    const bool writes = info != nullptr && info->isWrite();
    each_tensor(arguments[i],
                [&](const at::Tensor& tensor) { add_accesses(tensor, writes, &accesses); });
  }
  for (const at::Tensor& result : results) add_accesses(result, true, &accesses);
  return accesses;
}

// The CPU's kernel of one call, with the destinations of its results. A graph repeats it at each
// launch.
struct Twin {
  c10::OperatorHandle operation;
  Stack arguments;
  std::vector<at::Tensor>
      results;  // of the CUDA kernel, those that are not arguments; for access by the host
  std::vector<bool> is_result;  // of each tensor that the operator returns

  Stack run() const {
    Stack stack = arguments;
    const Inside inside;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    operation.callBoxed(&stack);
    return stack;
  }
  void run_and_store() const {
    const Stack values = run();
    const Inside inside;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    std::size_t number = 0, next = 0;
    for (const c10::IValue& value : values)
      each_tensor(value, [&](const at::Tensor& tensor) {
        if (number >= is_result.size() || !is_result[number++]) return;
        const at::Tensor& result = results[next++];
        TORCH_CHECK(result.sizes() == tensor.sizes(),
                    "SIMULATED CUDA: ", operation.operator_name().name,
                    " has results of another shape on the CPU");
        result.copy_(tensor);
      });
  }
};

using Kernels = std::map<std::string, c10::SafeKernelFunction>;
Kernels& kernels() {
  static auto* const all = new Kernels;
  return *all;
}

// Reports blocks of torch's allocator to the oracle's ledger.
void follow_allocator() {
  static const bool once = [] {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    try {
      c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const auto& entry) {
        using Entry = std::decay_t<decltype(entry)>;
        const bool checked = entry.mempool_ == decltype(entry.mempool_){0, 0};
        const auto* const address = reinterpret_cast<const void*>(entry.addr_);
        if (entry.action_ == Entry::ALLOC)
          simulated_cuda_block(true, address, entry.size_, checked);
        if (entry.action_ == Entry::FREE_REQUESTED)
          simulated_cuda_block(false, address, entry.size_, checked);
      });
    } catch (const c10::Error&) {  // the allocator is the driver's own
    }
    return true;
  }();
  (void)once;
}

[[noreturn]] void no_twin(const std::string& name, const std::exception& why) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "SIMULATED CUDA: ", name,
                              " has no twin for the CPU: ", why.what());
}

// Runs only the CPU's kernel: its results move to the device.
void run_on_host(const c10::OperatorHandle& operation, const std::string& name, Stack twins,
                 const Stack& arguments, c10::DeviceIndex device, Stack* stack) {
  const Twin twin{operation, std::move(twins), {}, {}};
  Stack values;
  try {
    values = twin.run();
  } catch (const c10::NotImplementedError& error) {
    no_twin(name, error);
  }
  std::vector<at::Tensor> results;
  const Inside inside;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto to_device = [&](const at::Tensor& value) {
    at::Tensor result = at::empty_strided(value.sizes(), value.strides(),
                                          value.options().device(c10::Device(c10::kCUDA, device)));
    if (value.numel() != 0) alias_of(result).copy_(value);
    results.push_back(result);
    return result;
  };
  for (const c10::IValue& value : values)
    stack->push_back(value.isTensor() && value.toTensor().defined() ? to_device(value.toTensor())
                                                                    : value);
  const auto accesses = accesses_of(operation.schema(), arguments, results);
  simulated_cuda_operation(device, c10::cuda::getCurrentCUDAStream(device).stream(), name.c_str(),
                           accesses.data(), accesses.size(), nullptr, nullptr, nullptr);
}

bool has_mask(const std::string& name, const Stack& arguments) {
  bool found = false;
  if (name == "index" || name == "_unsafe_index" || name.starts_with("index_put") ||
      name == "_index_put_impl_")
    each_tensor(arguments[1], [&](const at::Tensor& index) {
      found |=
          index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
    });
  return found;
}

void run_with_twin(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, Stack* stack) {
  const std::string full = toString(operation.operator_name());
  const std::string& qualified = operation.operator_name().name;
  const std::string name = qualified.substr(qualified.find("::") + 2);
  const auto& kernel = kernels().at(full);
  const c10::FunctionSchema& schema = operation.schema();
  bool views = false;
  for (const c10::Argument& result : schema.returns())
    views |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  if (depth != 0) return kernel.callBoxed(operation, keys, stack);
  follow_allocator();
  if (views || driver_sees().contains(name)) return kernel.callBoxed(operation, keys, stack);
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size()),
                        stack->end());
  Found found;
  Stack twins = twins_of(arguments, &found);
  // A copy between host and device converts through operators, which are replaced too, and moves
  // bytes through the driver.
  if (name == "copy_" && found.host) return kernel.callBoxed(operation, keys, stack);
  if (host_looks().contains(name) || has_mask(name, arguments)) {
    stack->resize(stack->size() - arguments.size());
    const auto device = found.index >= 0 ? found.index : c10::cuda::current_device();
    return run_on_host(operation, full, std::move(twins), arguments, device, stack);
  }
  {
    const Inside inside;
    kernel.callBoxed(operation, keys, stack);
  }
  auto twin = std::make_unique<Twin>(
      Twin{operation, twins_of(arguments, &found), {}, {}});  // outputs can be resized
  std::vector<at::Tensor> results;
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(schema.returns().size());
       value != stack->end(); ++value)
    each_tensor(*value, [&](const at::Tensor& result) {
      bool is_argument = false;
      for (const c10::IValue& argument : arguments)
        each_tensor(argument,
                    [&](const at::Tensor& tensor) { is_argument |= tensor.is_same(result); });
      // A zero tensor can have no memory.
      const bool is_result = !is_argument && on_device(result) && !result._is_zerotensor();
      twin->is_result.push_back(is_result);
      if (!is_result) return;
      found.see(result);
      results.push_back(result);
      twin->results.push_back(alias_of(result));
    });
  if (!found.device || found.index < 0) return;
  const auto accesses = accesses_of(schema, arguments, results);
  const auto stream = c10::cuda::getCurrentCUDAStream(found.index).stream();
  if (simulated_cuda_is_capturing(stream)) {
    simulated_cuda_operation(
        found.index, stream, full.c_str(), accesses.data(), accesses.size(),
        [](void* self) { static_cast<const Twin*>(self)->run_and_store(); },
        [](void* self) { delete static_cast<Twin*>(self); }, twin.release());
    return;
  }
  simulated_cuda_operation(found.index, stream, full.c_str(), accesses.data(), accesses.size(),
                           nullptr, nullptr, nullptr);
  try {
    twin->run_and_store();
  } catch (const c10::NotImplementedError& error) {
    no_twin(full, error);
  }
}

}  // namespace

// Replaces the kernels; called once, after torch has loaded all of its own. Returns their number.
extern "C" __attribute__((visibility("default"))) int simulated_cuda_replace_kernels() {
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;  // torch warns that kernels are overridden
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  int replaced = 0;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto operation = dispatcher.findOp(name);
    if (!operation) continue;
    // copy_ has one kernel for all devices.
    if (!operation->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && name.name != "aten::copy_")
      continue;
    kernels().emplace(toString(name),
                      operation->getComputedKernelForDispatchKey(c10::DispatchKey::CUDA));
    library->impl(toString(name).c_str(),
                  torch::CppFunction::makeFromBoxedFunction<&run_with_twin>());
    ++replaced;
  }
  return replaced;
}

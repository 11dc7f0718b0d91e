// What Pleat costs where nothing is compressed, without an interpreter around it, in nanoseconds.
// Plain LibTorch, one thread; overhead.py runs it stock and under Pleat, and the difference is what
// Pleat costs. Prints one line of JSON.
//
//   saved X     a SavedVariable constructed and unpacked once:
//               live   the tensor outlives it
//               gone   the tensor is freed between, as a layer's activation is; less the same loop
//                      that allocates and frees, but saves nothing
//               leaf   a parameter
//               small  a tensor of 1 KiB
//               bare   as live, with hooks that only hand the tensor back: in stock, less live, the
//                      least that any hook costs
//   allocate N  one at::empty of N KiB and its free; the memory is not touched
//   pair N      of that, what the allocator itself takes: one allocate() of N KiB and its free
//
//   pleat_bridge_bench [ROUNDS [CASE]]    default: 400 rounds, all cases
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

int rounds = 400;

using torch::autograd::SavedVariable;

constexpr int kTensors = 64;                                  // saved at once
constexpr std::int64_t kLarge = 256 << 10, kSmall = 1 << 10;  // bytes

double now_ns() {
  return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count());
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Nanoseconds per tensor of `body` less those of `empty`, alternating.
template <class Body, class Empty>
double difference_ns(Body&& body, Empty&& empty) {
  std::vector<double> differences;
  for (int round = -20; round < rounds; ++round) {
    const double start = now_ns();
    body();
    const double middle = now_ns();
    empty();
    const double end = now_ns();
    if (round >= 0) differences.push_back(((middle - start) - (end - middle)) / kTensors);
  }
  return median(std::move(differences));
}

// Uninitialised, but an operator's result to autograd.
at::Tensor result_of(const torch::autograd::Edge& edge, std::int64_t bytes) {
  at::Tensor tensor = at::empty({bytes / 4}, at::kFloat);
  torch::autograd::impl::set_gradient_edge(tensor, edge);
  return tensor;
}

class BareHooks final : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { tensor_ = tensor.detach(); }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

double outliving_ns(const std::vector<at::Tensor>& tensors, bool bare_hooks = false) {
  std::vector<SavedVariable> saved;
  saved.reserve(tensors.size());
  return difference_ns(
      [&] {
        for (const at::Tensor& tensor : tensors) {
          saved.emplace_back(tensor, false);
          if (bare_hooks) saved.back().register_hooks(std::make_unique<BareHooks>());
        }
        for (const SavedVariable& one : saved) (void)one.unpack();
        saved.clear();
      },
      [] {});
}

double gone_ns(const torch::autograd::Edge& edge) {
  std::vector<at::Tensor> tensors(kTensors);
  std::vector<SavedVariable> saved;
  saved.reserve(kTensors);
  return difference_ns(
      [&] {
        for (at::Tensor& tensor : tensors) {
          tensor = result_of(edge, kLarge);
          saved.emplace_back(tensor, false);
        }
        for (at::Tensor& tensor : tensors) tensor.reset();
        for (SavedVariable& one : saved) {
          (void)one.unpack();
          one.reset_data();
        }
        saved.clear();
      },
      [&] {
        for (at::Tensor& tensor : tensors) tensor = result_of(edge, kLarge);
        for (at::Tensor& tensor : tensors) tensor.reset();
      });
}

double pair_ns(std::size_t bytes) {
  c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::CPU);
  return difference_ns(
      [&] {
        for (int i = 0; i < kTensors; ++i) (void)allocator->allocate(bytes);
      },
      [] {});
}

double allocation_ns(std::int64_t bytes) {
  return difference_ns(
      [&] {
        for (int i = 0; i < kTensors; ++i) (void)at::empty({bytes}, at::kByte);
      },
      [] {});
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) rounds = std::max(1, std::atoi(arguments[1]));
  const std::string_view only = count > 2 ? arguments[2] : "";
  at::set_num_threads(1);
  const at::Tensor parameter = at::ones({kLarge / 4}, at::kFloat).requires_grad_(true);
  const at::Tensor root = parameter * parameter;
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(root);
  const auto filled = [&](auto&& make) {
    std::vector<at::Tensor> tensors(kTensors);
    for (at::Tensor& tensor : tensors) tensor = make();
    return tensors;
  };
  const char* separator = "{";
  const auto report = [&](const std::string& name, auto&& measure) {
    if (!only.empty() && only != name) return;
    std::printf("%s\"%s\": %.1f", separator, name.c_str(), measure());
    separator = ", ";
  };
  report("saved live",
         [&] { return outliving_ns(filled([&] { return result_of(edge, kLarge); })); });
  report("saved gone", [&] { return gone_ns(edge); });
  report("saved leaf", [&] { return outliving_ns(filled([&] { return parameter; })); });
  report("saved small",
         [&] { return outliving_ns(filled([&] { return result_of(edge, kSmall); })); });
  report("saved bare",
         [&] { return outliving_ns(filled([&] { return result_of(edge, kLarge); }), true); });
  for (const std::int64_t kib : {1, 256, 4 << 10, 64 << 10}) {
    report("allocate " + std::to_string(kib), [&] { return allocation_ns(kib << 10); });
    report("pair " + std::to_string(kib),
           [&] { return pair_ns(static_cast<std::size_t>(kib) << 10); });
  }
  std::puts(*separator == '{' ? "{}" : "}");
  return 0;
}

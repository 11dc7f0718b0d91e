#include "training.h"

#include <torch/torch.h>

#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

namespace {

int backward_calls = 0;
int same_parameter = 0;

// x * sigmoid(slope * x), a slope for each column: a custom function with saved tensors.
class Swish : public torch::autograd::Function<Swish> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& slope) {
    ctx->save_for_backward({x, slope});
    ctx->saved_data["slope"] = reinterpret_cast<std::int64_t>(slope.unsafeGetTensorImpl());
    return x * torch::sigmoid(slope * x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor& x = saved[0];
    const torch::Tensor& slope = saved[1];
    ++backward_calls;
    same_parameter += ctx->saved_data["slope"].toInt() ==
                      reinterpret_cast<std::int64_t>(slope.unsafeGetTensorImpl());
    const torch::Tensor s = torch::sigmoid(slope * x);
    const torch::Tensor by_slope = gradients[0] * x * s * (1 - s);
    return {gradients[0] * s + by_slope * slope, (by_slope * x).sum(0)};
  }
};

struct SwishLayer : torch::nn::Module {
  SwishLayer(std::int64_t inputs, std::int64_t outputs)
      : linear(register_module("linear", torch::nn::Linear(inputs, outputs))),
        slope(register_parameter("slope", torch::ones({outputs}))) {}
  torch::Tensor forward(const torch::Tensor& x) { return Swish::apply(linear->forward(x), slope); }
  torch::nn::Linear linear;
  torch::Tensor slope;
};

// A line of /proc/self/status, such as "VmHWM:", in KiB.
std::size_t status_kib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if (word == name && status >> kib) {
      return kib;
    }
  }
  return 0;
}

}  // namespace

void train(int steps) {
  torch::manual_seed(0);
  torch::nn::Sequential net;
  net->push_back(SwishLayer(2, 128));
  for (int layer = 0; layer < 7; ++layer) {
    net->push_back(SwishLayer(128, 128));
  }
  net->push_back(torch::nn::Linear(128, 1));
  torch::optim::Adam optimizer(net->parameters(), 1e-3);

  const std::size_t base = status_kib("VmRSS:");
  double loss_value = 0;
  for (int step = 0; step < steps; ++step) {
    const torch::Tensor x = torch::rand({8192, 2}) * 4 - 2;
    const torch::Tensor y = torch::sin(x.select(1, 0) * 2) * torch::cos(x.select(1, 1));
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(net->forward(x).squeeze(1), y);
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  std::cout << std::setprecision(9) << "loss " << loss_value << ", peak "
            << status_kib("VmHWM:") - base
            << " KiB above the model, the saved parameter came back itself " << same_parameter
            << " times of " << backward_calls << std::endl;
}

// A LibTorch program that trains a small network on a function of two variables, plainly or with
// Pleat switched on by hand. Usage: train [steps] [options of Pleat, "bits:4,min_bytes:0"]
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <string>

#ifdef EXAMPLE_WITH_PLEAT
#include <pleat/torch.h>
#endif

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
#ifdef EXAMPLE_WITH_PLEAT
  if (argc > 2) {
    pleat::enable(argv[2]);
  }
#endif
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(2, 256), torch::nn::ReLU(), torch::nn::Linear(256, 256),
                            torch::nn::GELU(), torch::nn::Linear(256, 1));
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  double loss_value = 0;
  for (int step = 0; step < steps; ++step) {
    const torch::Tensor x = torch::rand({2048, 2}) * 4 - 2;
    const torch::Tensor y = torch::sin(x.select(1, 0) * 2) * torch::cos(x.select(1, 1));
    optimizer.zero_grad();
    torch::Tensor loss = torch::mse_loss(net->forward(x).squeeze(1), y);
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  std::cout << "loss " << loss_value << '\n';
#ifdef EXAMPLE_WITH_PLEAT
  if (argc > 2) {
    std::cout << pleat::stats_json() << '\n';
  }
#endif
}

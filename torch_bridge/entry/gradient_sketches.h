// Sketches of the gradients of a graph's leaves (sensitivity/probe.h): of those that an extra pass
// returns, and of those that arrive in the pass of the script.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

#include "sensitivity/probe.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// The squared norm of what was sketched: exact for up to 256 elements, else right in the mean.
[[nodiscard]] double energy_of(const sensitivity::Sketch& sketch) noexcept;
[[nodiscard]] sensitivity::Sketch difference(const sensitivity::Sketch& a,
                                             const sensitivity::Sketch& b) noexcept;

// Makes the energy of a sketch that of what was sketched.
void scale_to(double energy, sensitivity::Sketch& sketch) noexcept;
// The squared norm of a - b, in double precision. One that is undefined counts as zero.
[[nodiscard]] double energy_of_difference(const at::Tensor& a, const at::Tensor& b);

struct GradientSketches {
  std::vector<sensitivity::Sketch> of_leaf;
  double energy = 0;  // squared norm of all, exact

  // No gradient, or a complex one, counts as zero. Lets go of each gradient once it is sketched.
  // Waits for the device of a gradient. Throws std::bad_alloc, and torch's errors.
  explicit GradientSketches(torch::autograd::variable_list gradients);
};

// Sketches what arrives at leaves in the pass that comes next, before it is accumulated.
class ArrivingGradients {
 public:
  // The leaves are accumulators. Throws std::bad_alloc.
  explicit ArrivingGradients(const torch::autograd::edge_list& leaves);
  // After the pass, or without one.
  ~ArrivingGradients();
  ArrivingGradients(const ArrivingGradients&) = delete;
  ArrivingGradients& operator=(const ArrivingGradients&) = delete;

  // After the pass: of each leaf the energy of the difference to a sketch; zero where nothing has
  // arrived.
  [[nodiscard]] std::vector<double> differences(const std::vector<sensitivity::Sketch>& expected);

 private:
  struct Hook;
  std::vector<NodePtr> leaves_;
  std::mutex mutex_;
  std::vector<sensitivity::Sketch> sketches_;
  std::vector<bool> arrived_;
};

}  // namespace pleat::bridge

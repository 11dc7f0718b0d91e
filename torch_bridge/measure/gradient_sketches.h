// Sketches of the gradients of a graph's leaves (compress/sketch/sketch.h): of those that an extra
// pass returns, and of those that arrive in the pass of the script. A CUDA device makes those of
// its own gradients, and the host reads what is left of them, 4 KiB of each 128 Ki elements.
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

// The sketch of one gradient: made, or being made on the gradient's device.
struct SketchUnderWay {
  sensitivity::Sketch sketch{};
  double energy = 0;  // squared norm of the gradient
  at::Tensor parts;   // where these are defined, they have yet to be added to both

  // `leaf`: which of the leaves it belongs to. Waits for a device whose sketches the host makes.
  SketchUnderWay() = default;
  SketchUnderWay(at::Tensor gradient, std::size_t leaf);
};

struct GradientSketches {
  std::vector<sensitivity::Sketch> of_leaf;
  double energy = 0;  // squared norm of all, exact

  // No gradient, or a complex one, counts as zero. Lets go of each gradient once its sketch is made
  // or queued. Waits once for each device. Throws std::bad_alloc, and torch's errors.
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

  // After the pass: of each leaf the energy of the difference to a sketch; zero where no gradient
  // has arrived. Waits for devices. Throws std::bad_alloc, and torch's errors.
  [[nodiscard]] std::vector<double> differences(const std::vector<sensitivity::Sketch>& expected);

 private:
  struct Hook;
  std::vector<NodePtr> leaves_;
  std::mutex mutex_;
  std::vector<SketchUnderWay> sketches_;
  std::vector<bool> arrived_;
};

}  // namespace pleat::bridge

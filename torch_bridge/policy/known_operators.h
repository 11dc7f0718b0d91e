// The operators that are run once, on a few numbers, to learn where they save their operands from:
// those that close a path, and a function in C++. What is saved for the others is decided once
// their node is recorded.
#pragma once

#include <ATen/ATen.h>

#include <span>

namespace pleat::bridge {

struct Operands {
  // Leaves that ask for a gradient.
  at::Tensor x, y;    // 2 x 2
  at::Tensor vector;  // 2
  at::Tensor batch;   // 1 x 2 x 2
  at::Tensor image;   // 2 x 2 x 2 x 2
  at::Tensor query;   // 1 x 1 x 2 x 8
  at::Tensor none;    // undefined
};
[[nodiscard]] Operands make_operands();

// Runs one. Returns the first of its results; throws where this torch lacks the operator.
using KnownOperator = at::Tensor (*)(const Operands& o);
[[nodiscard]] std::span<const KnownOperator> known_operators() noexcept;

}  // namespace pleat::bridge

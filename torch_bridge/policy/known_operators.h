// Known operators run once, on a few numbers, to learn the call sites that save their operands.
// These are the operators that close a path, and a function in C++. Saves of other operators are
// decided once their node is recorded.
#pragma once

#include <ATen/ATen.h>

#include <span>

namespace pleat::bridge {

struct Operands {
  // Leaves that require a gradient.
  at::Tensor x, y;    // 2 x 2
  at::Tensor vector;  // 2
  at::Tensor batch;   // 1 x 2 x 2
  at::Tensor image;   // 2 x 2 x 2 x 2
  at::Tensor query;   // 1 x 1 x 2 x 8
  at::Tensor none;    // undefined
};
[[nodiscard]] Operands make_operands();

// Runs one operator. Returns the first of its results; throws if this torch lacks the operator.
using KnownOperator = at::Tensor (*)(const Operands& o);
[[nodiscard]] std::span<const KnownOperator> known_operators() noexcept;

}  // namespace pleat::bridge

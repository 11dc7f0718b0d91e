// The operators that are run once, on a few numbers, to learn where they save their arguments from:
// what needs care, and what may stand before a pole. An operator that saves nothing but its result
// need not be here: its node makes the tensor, and is known by that.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <span>

#include "torch_bridge/core/needs.h"

namespace pleat::bridge {

struct Operands {
  // Leaves that ask for a gradient.
  at::Tensor x, y;                   // 2 x 2, in (0, 1)
  at::Tensor above_one;              // 2 x 2
  at::Tensor above_three;            // 2 x 2
  at::Tensor regular;                // 2 x 2, an invertible matrix
  at::Tensor vector;                 // 2
  at::Tensor column;                 // 2 x 1
  at::Tensor rows_of_three;          // 2 x 3
  at::Tensor batch;                  // 1 x 2 x 2
  at::Tensor image;                  // 2 x 2 x 2 x 2
  at::Tensor pixel, place;           // of a picture, and in it
  at::Tensor voxel, place_of_voxel;  // of a volume, and in it
  at::Tensor query;                  // 1 x 1 x 2 x 8
  at::Tensor logits;                 // 3 x 1 x 2
  // Constants.
  at::Tensor target;        // like y
  at::Tensor index;         // 2, zeros
  at::Tensor indices;       // 2 x 2, zeros
  at::Tensor labels;        // 2 x 2 x 2, zeros
  at::Tensor label;         // 1 x 1, one
  at::Tensor lengths;       // 2, ones
  at::Tensor pivots;        // of linalg_lu
  at::Tensor none;          // undefined
  at::Generator generator;  // the job's stays where it is
};
[[nodiscard]] Operands make_operands();

struct KnownOperator {
  // The first of its results. Throws where this torch lacks the operator.
  at::Tensor (*run)(const Operands& o);
  // In place of what the table of operators says of its node.
  std::optional<Care> care = std::nullopt;
};
[[nodiscard]] std::span<const KnownOperator> known_operators() noexcept;

}  // namespace pleat::bridge

// Optimality conditions of non-negative least squares.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace pleat::sensitivity::testing {

struct LeastSquares {
  std::size_t columns = 0;
  std::vector<double> a;
  std::vector<double> y;
};

// Kuhn and Tucker: x is a solution if and only if x >= 0 and the gradient A'(y - A x) is nowhere
// above zero, and zero wherever x is above zero.
inline void expect_optimal(const LeastSquares& problem, const std::vector<double>& x) {
  ASSERT_EQ(x.size(), problem.columns);
  std::vector<double> residual = problem.y;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) {
      residual[i] -= problem.a[i * x.size() + j] * x[j];
    }
  }
  for (std::size_t j = 0; j < x.size(); ++j) {
    double gradient = 0;
    double terms = 0;
    for (std::size_t i = 0; i < residual.size(); ++i) {
      gradient += problem.a[i * x.size() + j] * residual[i];
      terms += std::abs(problem.a[i * x.size() + j] * problem.y[i]);
    }
    EXPECT_GE(x[j], 0);
    EXPECT_LT(gradient, 1e-7 * terms + 1e-30);
    if (x[j] > 0) {
      EXPECT_GT(gradient, -1e-7 * terms - 1e-30);
    }
  }
}

}  // namespace pleat::sensitivity::testing

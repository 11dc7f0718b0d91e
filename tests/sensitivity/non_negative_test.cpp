// Non-negative least squares: solutions are verified by their optimality conditions.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sensitivity/probe.h"
#include "tests/sensitivity/optimality.h"
#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

using testing::expect_optimal;
using testing::LeastSquares;

LeastSquares random_problem(std::mt19937_64& random, std::size_t rows, std::size_t columns) {
  std::normal_distribution<double> normal;
  LeastSquares problem{columns, {}, {}};
  for (std::size_t i = 0; i < rows * columns; ++i) {
    problem.a.push_back(normal(random) * std::pow(10, static_cast<double>(i % columns % 7) - 3));
  }
  for (std::size_t i = 0; i < rows; ++i) {
    problem.y.push_back(normal(random));
  }
  return problem;
}

TEST(NonNegative, RandomProblemsAreSolved) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 100; ++round) {
    const LeastSquares problem = random_problem(random, 1 + random() % 40, 1 + random() % 40);
    expect_optimal(problem, non_negative_least_squares(problem.a, problem.y, problem.columns));
  }
}

TEST(NonNegative, ExactSolutionIsFound) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  LeastSquares problem = random_problem(random, 30, 12);
  std::vector<double> wanted(12);
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    wanted[j] = j % 3 == 0 ? 0 : static_cast<double>(j);
  }
  for (std::size_t i = 0; i < problem.y.size(); ++i) {
    problem.y[i] = std::inner_product(wanted.begin(), wanted.end(),
                                      problem.a.begin() + static_cast<std::ptrdiff_t>(12 * i), 0.0);
  }
  const std::vector<double> x = non_negative_least_squares(problem.a, problem.y, 12);
  for (std::size_t j = 0; j < wanted.size(); ++j) {
    EXPECT_NEAR(x[j], wanted[j], 1e-6 * (1 + wanted[j])) << j;
  }
}

TEST(NonNegative, DependentAndZeroColumnsTerminate) {
  // Twice the same column, one of zeros, one that points away.
  const LeastSquares problem{4, {1, 1, 0, -1, 2, 2, 0, -2}, {1, 2}};
  const std::vector<double> x = non_negative_least_squares(problem.a, problem.y, 4);
  expect_optimal(problem, x);
  EXPECT_NEAR(x[0] + x[1], 1, 1e-12);
  EXPECT_EQ(x[2], 0);
  EXPECT_EQ(x[3], 0);
}

TEST(NonNegative, EmptyProblemIsZero) {
  EXPECT_EQ(non_negative_least_squares({}, {}, 0), std::vector<double>{});
  EXPECT_EQ(non_negative_least_squares({}, {}, 2), std::vector<double>(2, 0.0));
  EXPECT_EQ(non_negative_least_squares(std::vector<double>{NAN, 1}, std::vector<double>{1}, 2),
            std::vector<double>(2, 0.0));
  EXPECT_EQ(non_negative_least_squares(std::vector<double>{1, 1}, std::vector<double>{-1}, 2),
            std::vector<double>(2, 0.0));
}

}  // namespace
}  // namespace pleat::sensitivity

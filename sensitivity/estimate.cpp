// From sketches of errors to energies. For pass i let a_l s_il be what unit l was disturbed by; the
// inner product M_ij of the errors of two passes is in the mean the sum over l of s_il s_jl a_l^2
// c_l. One equation for each i <= j, divided by the mean of M_ii so that stages weigh alike.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "sensitivity/non_negative.h"
#include "sensitivity/probe.h"

namespace pleat::sensitivity {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Where a unit took part in both of two passes: 1. Only there is there an equation.
[[nodiscard]] MatrixXd shared_passes(const Stage& stage) {
  const auto passes = static_cast<Index>(stage.passes());
  MatrixXd shared = MatrixXd::Zero(passes, passes);
  std::vector<Index> took_part;
  for (std::size_t unit = 0; unit < stage.units; ++unit) {
    took_part.clear();
    for (Index k = 0; k < passes; ++k) {
      if (stage.signs[static_cast<std::size_t>(k) * stage.units + unit] != 0) {
        took_part.push_back(k);
      }
    }
    for (const Index i : took_part) {
      for (const Index j : took_part) {
        shared(i, j) = 1;
      }
    }
  }
  return shared;
}

// The inner products of a parameter's errors in one stage, over the mean of M_ii.
struct Products {
  MatrixXd gram;
  double mean = 0;
  double equations = 0;
  double squares = 0;  // sum over the equations
};

[[nodiscard]] std::optional<Products> products_of(const std::vector<Sketch>& errors,
                                                  const MatrixXd& shared, double floor) {
  const auto passes = static_cast<Index>(errors.size());
  MatrixXd sketches(static_cast<Index>(kSketch), passes);
  for (Index k = 0; k < passes; ++k) {
    sketches.col(k) =
        Eigen::Map<const VectorXd>(errors[static_cast<std::size_t>(k)].data(), sketches.rows());
  }
  Products products;
  products.gram = (sketches.transpose() * sketches).cwiseProduct(shared);
  products.gram.diagonal() = (products.gram.diagonal().array() - floor).cwiseMax(0);
  products.mean = products.gram.trace() / static_cast<double>(passes);
  if (!products.gram.allFinite() || !(products.mean > 0)) {
    return std::nullopt;
  }
  products.gram /= products.mean;
  products.equations = (shared.sum() + shared.trace()) / 2;
  products.squares = (products.gram.squaredNorm() + products.gram.diagonal().squaredNorm()) / 2;
  return products;
}

// One stage's part of the normal equations of one parameter. With d the sum over passes of the
// products of two units' signs and o the number of passes in which both took part, the sum over i
// <= j of the products of their coefficients is (d^2 + o) / 2, times both units' squared
// amplitudes.
class Equations {
 public:
  Equations(const Stage& stage, const std::vector<std::uint32_t>& readers,
            const Products& products) {
    count_ = products.equations;
    squares_ = products.squares;
    const auto n = static_cast<Index>(readers.size());
    const auto passes = static_cast<Index>(stage.passes());
    signs_.resize(n, passes);
    weights_.resize(n);
    for (Index l = 0; l < n; ++l) {
      const std::uint32_t unit = readers[static_cast<std::size_t>(l)];
      weights_[l] = stage.amplitudes[unit] * stage.amplitudes[unit] / products.mean;
      for (Index k = 0; k < passes; ++k) {
        signs_(l, k) = stage.signs[static_cast<std::size_t>(k) * stage.units + unit];
      }
    }
    all_take_part_ = (signs_.array() != 0).all();
    const VectorXd took_part = signs_.rowwise().squaredNorm();
    diagonal_ = weights_.array().square() * took_part.array() * (took_part.array() + 1) / 2;
    right_ = weights_.array() *
             ((signs_ * products.gram).cwiseProduct(signs_).rowwise().sum() +
              signs_.cwiseAbs2() * products.gram.diagonal())
                 .array() /
             2;
  }
  [[nodiscard]] const VectorXd& diagonal() const { return diagonal_; }
  [[nodiscard]] const VectorXd& right() const { return right_; }
  [[nodiscard]] double count() const { return count_; }
  [[nodiscard]] double squares() const { return squares_; }  // of right sides

  void add_column(Index j, VectorXd& column) const {
    const VectorXd d = signs_ * signs_.row(j).transpose();
    VectorXd o;
    if (all_take_part_) {
      o.setConstant(d.size(), static_cast<double>(signs_.cols()));
    } else {
      o = signs_.cwiseAbs() * signs_.row(j).cwiseAbs().transpose();
    }
    column.array() += weights_.array() * (weights_[j] / 2) * (d.array().square() + o.array());
  }

 private:
  MatrixXd signs_;  // of readers and passes
  VectorXd weights_;
  VectorXd diagonal_;
  VectorXd right_;
  double count_ = 0;
  double squares_ = 0;
  bool all_take_part_ = true;
};

[[nodiscard]] bool is_sound(const StageErrors& errors, std::size_t parameter, std::size_t units) {
  const Stage* stage = errors.stage;
  return stage != nullptr && stage->units == units && stage->passes() > 0 &&
         stage->amplitudes.size() == units && parameter < errors.errors.size() &&
         errors.errors[parameter].size() == stage->passes();
}

struct Solution {
  VectorXd energies;
  VectorXd variances;
};

[[nodiscard]] Solution solve(const std::vector<Equations>& stages, Index unknowns) {
  VectorXd diagonal = VectorXd::Zero(unknowns);
  VectorXd right = VectorXd::Zero(unknowns);
  double count = 0;
  double squares = 0;
  for (const Equations& stage : stages) {
    diagonal += stage.diagonal();
    right += stage.right();
    count += stage.count();
    squares += stage.squares();
  }
  Solution solution;
  solution.energies = solve_non_negative(diagonal, right, [&](Index j, VectorXd& column) {
    column.setZero();
    for (const Equations& stage : stages) {
      stage.add_column(j, column);
    }
  });
  // At the solution the squares fall by right' x. What is left, over the equations that are not
  // used up, is the variance of a right side, and over its diagonal that of an unknown alone.
  const double taken = static_cast<double>((solution.energies.array() > 0).count());
  const double variance =
      std::max(0.0, squares - right.dot(solution.energies)) / std::max(1.0, count - taken);
  solution.variances = (diagonal.array() > 0).select(variance / diagonal.array(), 0.0);
  return solution;
}

}  // namespace

Estimate estimate(std::span<const StageErrors> stages,
                  std::span<const std::vector<std::uint32_t>> readers, std::size_t units,
                  std::span<const double> floor) {
  Estimate result;
  result.of_parameter.resize(readers.size());
  result.energies.assign(units, 0);
  std::vector<MatrixXd> shared;
  for (const StageErrors& errors : stages) {
    shared.push_back(errors.stage == nullptr ? MatrixXd() : shared_passes(*errors.stage));
  }
  for (std::size_t p = 0; p < readers.size(); ++p) {
    std::vector<std::uint32_t> unknowns;
    std::ranges::copy_if(readers[p], std::back_inserter(unknowns),
                         [&](std::uint32_t unit) { return unit < units; });
    std::vector<Equations> equations;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (!is_sound(stages[s], p, units)) {
        continue;
      }
      const double lowest = p < floor.size() ? floor[p] : 0;
      if (const auto products = products_of(stages[s].errors[p], shared[s], lowest)) {
        equations.emplace_back(*stages[s].stage, unknowns, *products);
      }
    }
    if (equations.empty()) {
      continue;
    }
    const Solution solution = solve(equations, static_cast<Index>(unknowns.size()));
    for (std::size_t l = 0; l < unknowns.size(); ++l) {
      const auto place = static_cast<Index>(l);
      const double energy = solution.energies[place];
      result.of_parameter[p].push_back({unknowns[l], energy, solution.variances[place]});
      result.energies[unknowns[l]] += energy;
    }
  }
  return result;
}

std::vector<double> cautious_energies(const Estimate& estimate, std::span<const double> weights) {
  constexpr double kOfADeviation = 0.3;
  std::vector<double> energies(estimate.energies.size());
  std::vector<double> variances(energies.size());
  for (std::size_t p = 0; p < estimate.of_parameter.size(); ++p) {
    const double weight = p < weights.size() ? weights[p] : 1;
    for (const Estimate::Share& share : estimate.of_parameter[p]) {
      energies[share.unit] += weight * share.energy;
      variances[share.unit] += weight * weight * share.variance;
    }
  }
  for (std::size_t l = 0; l < energies.size(); ++l) {
    energies[l] = std::max(energies[l], kOfADeviation * std::sqrt(variances[l]));
  }
  return energies;
}

}  // namespace pleat::sensitivity

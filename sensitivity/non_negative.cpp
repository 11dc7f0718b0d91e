#include "sensitivity/non_negative.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "sensitivity/probe.h"

namespace pleat::sensitivity {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Of the columns' length one, squared.
constexpr double kLeastPivot = 1e-10;
// A gradient within the rounding of the terms that it is the difference of counts as zero.
constexpr double kRounding = 1e-12;

// All columns of A scaled to length one; those of length zero are never taken.
class ActiveSet {
 public:
  ActiveSet(const VectorXd& diagonal, const VectorXd& right, const NormalColumn& column)
      : column_(column),
        scale_((diagonal.array() > 0).select(diagonal.array().rsqrt(), 0.0)),
        right_(scale_.cwiseProduct(right)),
        blocked_(static_cast<std::size_t>(right.size()), false),
        columns_(right.size(), 0) {}

  // Passive: unknowns above zero. One after the other becomes so, the one with the steepest
  // gradient first, and those that it drives below zero are no longer.
  [[nodiscard]] VectorXd solve() {
    const Index most_rounds = 3 * right_.size() + 30;
    for (Index round = 0; round < most_rounds; ++round) {
      const Index next = steepest();
      if (next < 0) {
        break;
      }
      // Blocked until another one was taken.
      blocked_[static_cast<std::size_t>(next)] = true;
      if (!append(next)) {
        continue;
      }
      VectorXd solution = passive_solution();
      if (!(solution[solution.size() - 1] > 0)) {
        remove(size() - 1);
        continue;
      }
      while (!(solution.minCoeff() > 0)) {
        step_towards(solution);
        if (size() == 0) {
          break;
        }
        solution = passive_solution();
      }
      std::copy(solution.begin(), solution.begin() + size(), values_.begin());
      blocked_.assign(blocked_.size(), false);
    }
    VectorXd x = VectorXd::Zero(right_.size());
    for (Index k = 0; k < size(); ++k) {
      const Index j = passive_[static_cast<std::size_t>(k)];
      x[j] = values_[static_cast<std::size_t>(k)] * scale_[j];
    }
    return x;
  }

 private:
  [[nodiscard]] Index size() const { return static_cast<Index>(passive_.size()); }

  [[nodiscard]] VectorXd fetched(Index j) const {
    VectorXd column(right_.size());
    column_(j, column);
    column.array() *= scale_.array() * scale_[j];
    return column;
  }

  // -1: at no unknown is there any left.
  [[nodiscard]] Index steepest() const {
    VectorXd gradient = right_;
    gradient.noalias() -=
        columns_.leftCols(size()) * Eigen::Map<const VectorXd>(values_.data(), size());
    Index best = -1;
    for (Index j = 0; j < gradient.size(); ++j) {
      const double terms = std::abs(right_[j]) + std::abs(right_[j] - gradient[j]);
      if (gradient[j] > kRounding * terms && !blocked_[static_cast<std::size_t>(j)] &&
          (best < 0 || gradient[j] > gradient[best]) && !is_passive(j)) {
        best = j;
      }
    }
    return best;
  }
  [[nodiscard]] bool is_passive(Index j) const {
    return std::ranges::find(passive_, j) != passive_.end();
  }

  // Adds a row to the Cholesky factor. False: the column depends on those that are there.
  [[nodiscard]] bool append(Index j) {
    const Index n = size();
    if (factor_.rows() == n) {
      factor_.conservativeResize(2 * n + 8, 2 * n + 8);
      columns_.conservativeResize(right_.size(), 2 * n + 8);
    }
    const VectorXd column = fetched(j);
    VectorXd row(n);
    for (Index k = 0; k < n; ++k) {
      row[k] = column[passive_[static_cast<std::size_t>(k)]];
    }
    factor_.topLeftCorner(n, n).triangularView<Eigen::Lower>().solveInPlace(row);
    const double pivot = column[j] - row.squaredNorm();
    if (!(pivot > kLeastPivot)) {
      return false;
    }
    factor_.row(n).head(n) = row;
    factor_(n, n) = std::sqrt(pivot);
    columns_.col(n) = column;
    passive_.push_back(j);
    values_.push_back(0);
    return true;
  }

  // Takes the r-th row out of the factor. The entries of its column below the row are added to the
  // square of the rest, one rotation for each column (Golub and Van Loan 2013, 6.5.4).
  void remove(Index r) {
    const Index rest = size() - 1 - r;
    VectorXd below = factor_.col(r).segment(r + 1, rest);
    for (Index k = 0; k < rest; ++k) {  // rows move up, and all columns after the r-th to the left
      factor_.row(r + k).head(r) = factor_.row(r + k + 1).head(r).eval();
      columns_.col(r + k) = columns_.col(r + k + 1);
    }
    for (Index k = 0; k < rest; ++k) {
      VectorXd column = factor_.col(r + 1 + k).segment(r + 1 + k, rest - k);
      const double length = std::hypot(column[0], below[k]);
      const double cosine = column[0] / length;
      const double sine = below[k] / length;
      factor_.col(r + k).segment(r + k, rest - k) = cosine * column + sine * below.tail(rest - k);
      below.tail(rest - k) = cosine * below.tail(rest - k) - sine * column;
    }
    passive_.erase(passive_.begin() + r);
    values_.erase(values_.begin() + r);
  }

  [[nodiscard]] VectorXd passive_solution() const {
    VectorXd x(size());
    for (Index k = 0; k < size(); ++k) {
      x[k] = right_[passive_[static_cast<std::size_t>(k)]];
    }
    const auto lower = factor_.topLeftCorner(size(), size());
    lower.triangularView<Eigen::Lower>().solveInPlace(x);
    lower.transpose().triangularView<Eigen::Upper>().solveInPlace(x);
    return x;
  }

  // As far towards the solution as no value falls below zero. Drops those that get there.
  void step_towards(const VectorXd& solution) {
    double part = 1;
    std::size_t first = 0;
    for (std::size_t k = 0; k < values_.size(); ++k) {
      const double to = solution[static_cast<Index>(k)];
      if (!(to > 0) && !(values_[k] / (values_[k] - to) > part)) {
        part = values_[k] / (values_[k] - to);
        first = k;
      }
    }
    for (std::size_t k = 0; k < values_.size(); ++k) {
      values_[k] += part * (solution[static_cast<Index>(k)] - values_[k]);
    }
    values_[first] = 0;  // whatever the rounding
    for (Index k = size() - 1; k >= 0; --k) {
      if (!(values_[static_cast<std::size_t>(k)] > 0)) {
        remove(k);
      }
    }
  }

  const NormalColumn& column_;
  VectorXd scale_;
  VectorXd right_;
  std::vector<bool> blocked_;
  // In the order in which they were taken.
  std::vector<Index> passive_;
  std::vector<double> values_;
  MatrixXd columns_;  // of A'A
  MatrixXd factor_;   // lower triangle: Cholesky's, of the passive rows and columns
};

}  // namespace

VectorXd solve_non_negative(const VectorXd& diagonal, const VectorXd& right,
                            const NormalColumn& column) {
  if (!diagonal.allFinite() || !right.allFinite()) {
    return VectorXd::Zero(right.size());
  }
  return ActiveSet(diagonal, right, column).solve();
}

std::vector<double> non_negative_least_squares(std::span<const double> a, std::span<const double> y,
                                               std::size_t columns) {
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto n = static_cast<Index>(columns);
  const Eigen::Map<const VectorXd> right(y.data(), static_cast<Index>(y.size()));
  const MatrixXd matrix = Eigen::Map<const Rows>(a.data(), right.size(), n);
  const VectorXd diagonal = matrix.colwise().squaredNorm();
  const VectorXd x = solve_non_negative(
      diagonal, matrix.transpose() * right,
      [&](Index j, VectorXd& column) { column.noalias() = matrix.transpose() * matrix.col(j); });
  return {x.begin(), x.end()};
}

}  // namespace pleat::sensitivity

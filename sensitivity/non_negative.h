// Non-negative least squares on normal equations, whose matrix is never made: only the columns of
// unknowns that are above zero are asked for.
#pragma once

#include <Eigen/Core>
#include <functional>

namespace pleat::sensitivity {

// Writes column `j` of A'A.
using NormalColumn = std::function<void(Eigen::Index j, Eigen::VectorXd& column)>;

// x >= 0 that makes |A x - y|^2 least (Lawson and Hanson 1974, ch. 23), from the diagonal of A'A
// and from A'y. Columns count as dependent if less than 1e-5 of their length is new: the first one
// that is taken bears the load of all. Always feasible: a problem that does not end has the best so
// far. An input that is not finite makes all zero.
[[nodiscard]] Eigen::VectorXd solve_non_negative(const Eigen::VectorXd& diagonal,
                                                 const Eigen::VectorXd& right,
                                                 const NormalColumn& column);

}  // namespace pleat::sensitivity

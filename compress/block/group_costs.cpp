#include "compress/block/group_costs.h"

namespace pleat::compress::block {
namespace {

// The integral of f (1 - f) from 0.
double rounding_integral(double x) noexcept {
  const double whole = std::floor(x), f = x - whole;
  return whole / 6 + f * f * (0.5 - f / 3);
}

// The squared error that noise in one direction adds, in the mean over elements that are as far
// from a bound as [near, far].
double half_error(double step, double near, double far) noexcept {
  const double half = step / 2, whole = step * step / 24;
  if (near >= half) return whole;
  if (far - near < 1e-6 * step) return near * near * (0.5 - near / step * 2 / 3);
  const auto integral = [&](double d) {
    const double inside = std::min(d, half);
    return inside * inside * inside / 6 * (1 - inside / step) + (d - inside) * whole;
  };
  return (integral(far) - integral(near)) / (far - near);
}

// The elements of the lowest level: `left` were rounded down to it, `up` to the next.
template <class Add>
void add_lowest(double left, double up, bool zeros_crowd, const Add& add) {
  const double mean = up / (left + up);
  if (!(mean < 0.5)) {
    add(2 * mean - 1, 1, left + up);
  } else if (zeros_crowd || up == 0) {
    add(0, 1, 2 * up);
    add(0, 0, left - up);
  } else {  // between an exponential distribution and one that crowds more, in even parts
    const double near = 0.15 * mean, middle = 0.55 * mean;
    const double far = std::min({2.3 * mean, 0.21 + 0.69 * mean, 0.5});
    const double share = (mean - 0.35 * mean) / (far - 0.35 * mean), rest = (1 - share) / 2;
    add(0, 2 * near, rest * (left + up));
    add(0, 2 * middle, rest * (left + up));
    add(0, 2 * far, share * (left + up));
  }
}

}  // namespace

double dithered_error(double step, double ulp) noexcept {
  if (step >= kManyUlps * ulp) return step * step / 12;
  const double half = step / 2;
  const double n = std::floor(half / ulp + 0.5);  // the farthest value, in ulps
  if (n == 0) return 0;
  const double inner = (n - 1) * n * (2 * n - 1) / 6;
  return 2 / step * ulp * ulp * (ulp * inner + n * n * (half - (n - 0.5) * ulp));
}

double rounded_error(double step, double ulp) noexcept {
  if (step >= kManyUlps * ulp) return step * step / 6;
  double sum = 0;
  for (double k = 1; (k - 0.5) * ulp < step; ++k) {
    const double low = (k - 0.5) * ulp, high = std::min(step, (k + 0.5) * ulp);
    sum += k * k * (high - low) * (1 - (low + high) / (2 * step));
  }
  return 2 * ulp * ulp * sum / step;
}

double gaussian_error(double deviation, double ulp) noexcept {
  if (deviation * std::sqrt(12.0) >= kManyUlps * ulp) return deviation * deviation;
  double sum = 0;
  for (double k = 1;; ++k) {  // P(|noise| > (k - 1/2) ulps)
    const double beyond = std::erfc((k - 0.5) * ulp / deviation / std::sqrt(2.0));
    sum += (2 * k - 1) * beyond;
    if (!(beyond > 1e-9)) return ulp * ulp * sum;
  }
}

double share_within(NoiseBounds bounds, double step, double from, double to) noexcept {
  if (from - step / 2 > bounds.high || to + step / 2 < bounds.low ||
      (from - step / 2 > bounds.low && to + step / 2 < bounds.high))
    return 1;
  for (const double bound : {double{bounds.low}, double{bounds.high}}) {
    if (from < bound && bound < to) {
      const double below = share_within(bounds, step, from, bound);
      return ((bound - from) * below + (to - bound) * share_within(bounds, step, bound, to)) /
             (to - from);
    }
  }
  const bool below = to < bounds.low || (to == bounds.low && from < to);
  const bool above = from > bounds.high || (from == bounds.high && from < to);
  const double least = below ? -INFINITY : above ? bounds.high : bounds.low;
  const double most = below ? bounds.low : above ? INFINITY : bounds.high;
  return (half_error(step, from - least, to - least) + half_error(step, most - to, most - from)) *
         12 / (step * step);
}

double mean_rounding(double from, double to) noexcept {
  if (to - from < 1e-3) {
    const double middle = (from + to) / 2, f = middle - std::floor(middle);
    return f * (1 - f);
  }
  return (rounding_integral(to) - rounding_integral(from)) / (to - from);
}

void pieces_of_codes(const std::array<std::uint16_t, 256>& counts, const CodedLevels& levels,
                     Pieces* pieces) noexcept {
  pieces->clear();
  const auto coded = [&](std::size_t level) -> double {
    return level < levels.count ? counts[levels.first_code + level] : 0;
  };
  std::size_t top = levels.count - 1;
  while (top > 0 && coded(top) == 0) --top;
  const auto add = [&](double from, double to, double count) {
    const auto value = [&](double level) {
      const double x = levels.anchor + levels.step * level;
      return static_cast<float>(std::clamp<double>(x, levels.minimum, levels.maximum));
    };
    const float a = value(from), b = value(to);
    pieces->add(std::min(a, b), std::max(a, b), count);
  };
  const bool zeros_crowd = levels.anchor == 0.0f;
  // One element is the anchor, and one the other end: both are known.
  double left = coded(0);  // elements of a level that lie above it
  if (left > 0) {
    add(0, 0, 1);
    left -= 1;
  }
  for (std::size_t level = 0; level < top; ++level) {
    double next = coded(level + 1);
    const bool last = level + 1 == top;
    if (last) {
      const float end = levels.step < 0 ? levels.minimum : levels.maximum;
      pieces->add(end, end, 1);
      next -= 1;
    }
    // As many come from above as from below, if elements are even there.
    const double above = level + 2 == top ? coded(top) - 1 : coded(level + 2) / 2;
    const double share = last ? next : level == 0 ? std::max(next - above, 0.0) : next / 2;
    const auto at = static_cast<double>(level);
    if (level == 0)
      add_lowest(left, share, zeros_crowd, add);
    else
      add(at, at + 1, left + share);
    left = next - share;
  }
  if (top == 0 && left > 0) add(0, 0, left);
}

}  // namespace pleat::compress::block

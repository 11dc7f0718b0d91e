// The exponents of the elements of one group, for code that counts noise or makes it. Anonymous:
// see kernels.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compress/exponents/part_walk.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/grouped/step_math.h"

namespace pleat::compress {
namespace {

class GroupExponents {
 public:
  GroupExponents() = default;  // all are 0
  // Of group `group` of a span, which has so many elements. `parts` has the bytes of its parts.
  GroupExponents(const Exponents& exponents, const int8_t* parts, uint64_t group, size_t elements)
      : elements_(elements) {
    if (!exponents.any()) return;
    const PartWalk walk(exponents, group);
    if (exponents.channels != 0)
      std::memmove(of_.data(), walk.read_table(of_.data()), kElementsOfGroup);
    walk.each_part(elements, [&](size_t begin, size_t end) {
      const int8_t part = *parts++;
      for (size_t e = begin; e < end; ++e)
        of_[e] =
            part == kZeroPart ? kZeroPart : static_cast<int8_t>(exponent_of_element(part, of_[e]));
    });
    any_ = std::any_of(of_.begin(), of_.begin() + elements, [](int8_t e) { return e != 0; });
  }

  // False if the group is coded as it is.
  [[nodiscard]] bool any() const { return any_; }
  [[nodiscard]] bool is_zero(size_t e) const { return of_[e] == kZeroPart; }  // of a zero part
  // Elements are coded times this.
  [[nodiscard]] float factor(size_t e) const {
    return of_[e] == kZeroPart ? 1.0f : power_of_two(of_[e]);
  }
  // The squared error of an element, in squared steps of the group, is so many times that of
  // another group.
  [[nodiscard]] double weight(size_t e) const {
    return any_ ? is_zero(e) ? 0 : std::ldexp(1.0, -2 * of_[e]) : 1;
  }
  [[nodiscard]] double mean_weight() const {
    if (!any_) return 1;
    double sum = 0;
    for (size_t e = 0; e < elements_; ++e) sum += weight(e);
    return sum / static_cast<double>(elements_);
  }
  // Calls visit(exponent, begin, end) for each run of elements with one exponent, kZeroPart for
  // those of zero parts.
  template <class Visit>
  void each_run(const Visit& visit) const {
    for (size_t begin = 0, end; begin < elements_; begin = end) {
      for (end = begin + 1; end < elements_ && of_[end] == of_[begin];) ++end;
      visit(int{of_[begin]}, begin, end);
    }
  }

 private:
  size_t elements_ = kElementsOfGroup;
  bool any_ = false;
  std::array<int8_t, kElementsOfGroup> of_{};
};

inline GroupExponents exponents_of_group(const GroupedSections& sections, size_t group) {
  const size_t left = sections.header.elements - group * kElementsOfGroup;
  return {sections.exponents, sections.parts + parts_before(sections.exponents, group), group,
          std::min<size_t>(left, kElementsOfGroup)};
}

// As group_may_leave(), of a group with exponents: what its parts may stand for, and be restored
// to, lies between the two ends times their powers of two.
template <class T>
bool group_may_leave(const Metadata<T>& metadata, const GroupExponents& exponents, unsigned bits,
                     const SideTest& test) {
  if (!exponents.any()) return group_may_leave<T>(metadata, bits, test);
  if (!is_quantised<T>(metadata)) return false;
  bool leaves = false;
  exponents.each_run([&](int exponent, size_t, size_t) {
    leaves =
        leaves || (exponent != kZeroPart && group_may_leave<T>(metadata, bits, test, exponent));
  });
  return leaves;
}

// The root mean square of the steps of a group's elements. That of parts is not looked for where
// there is no table: the group's own step is the widest.
inline float mean_step(float step, const Exponents& exponents, const GroupExponents& group) {
  return exponents.channels == 0 ? step : step * static_cast<float>(std::sqrt(group.mean_weight()));
}

}  // namespace
}  // namespace pleat::compress

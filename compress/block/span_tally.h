// Sums the cost of the groups of a span at a width. Internal to compress/block/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pleat::compress::block {

// Without header, metadata and escape table.
struct SpanTally {
  std::size_t groups = 0;
  std::size_t constant_groups = 0;
  std::size_t escapes = 0;
  std::size_t counted_escapes = 0;  // by count_escapes(), which does not know of near_zero
  std::size_t code_bytes = 0;
  std::size_t near_bytes = 0;
  bool compacted = false;       // some block is
  bool several_values = false;  // the constant groups differ
  bool may_leave_side = false;  // as group_steps.h has it
  bool has_exponents = false;   // some group has others than 0
  std::uint32_t constant = 0;   // the bits of a constant group's elements
  double squared_error = 0;

  void add(const SpanTally& next) noexcept {
    several_values =
        several_values || next.several_values ||
        (constant_groups != 0 && next.constant_groups != 0 && constant != next.constant);
    constant = next.constant_groups != 0 ? next.constant : constant;
    groups += next.groups;
    constant_groups += next.constant_groups;
    escapes += next.escapes;
    counted_escapes += next.counted_escapes;
    code_bytes += next.code_bytes;
    near_bytes += next.near_bytes;
    compacted = compacted || next.compacted;
    may_leave_side = may_leave_side || next.may_leave_side;
    has_exponents = has_exponents || next.has_exponents;
    squared_error += next.squared_error;
  }
  [[nodiscard]] bool one_value() const noexcept {
    return constant_groups == groups && !several_values && near_bytes == 0;
  }
};

}  // namespace pleat::compress::block

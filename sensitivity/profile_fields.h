// The fields of a profile's text, and what each may hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "sensitivity/profile.h"

namespace pleat::sensitivity {

// A value that is no list and no object. A negative whole number is a double.
using Scalar = std::variant<std::monostate, bool, std::uint64_t, double, std::string>;

// Each reads a value into the last argument. Returns what is wrong with it; empty: nothing.
[[nodiscard]] std::string read_key(const Scalar& value, std::uint64_t& out);
[[nodiscard]] std::string read_width(const Scalar& value, std::uint8_t& out);
[[nodiscard]] std::string read_bytes(const Scalar& value, std::uint64_t& out);
[[nodiscard]] std::string read_step(const Scalar& value, std::uint64_t& out);
[[nodiscard]] std::string read_number(const Scalar& value, double& out);
[[nodiscard]] std::string read_dimension(const Scalar& value, std::int64_t& out);

enum class List : std::uint8_t { kNone, kUnits, kShape, kCosts, kMeasurements, kResults };

template <typename Row>
struct Field {
  std::string_view name;
  List list = List::kNone;
  std::string (*read)(const Scalar& value, Row& row) = nullptr;  // of what is no list
};

[[nodiscard]] std::span<const Field<Profile>> profile_fields();
[[nodiscard]] std::span<const Field<Unit>> unit_fields();

}  // namespace pleat::sensitivity

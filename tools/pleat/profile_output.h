// Shared by the commands of `pleat profile`: reading a file, writing the answer.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "profile_figures.h"
#include "sensitivity/profile.h"

namespace pleat::cli {

using Json = nlohmann::ordered_json;

// Returns nullopt if it is no profile: the reason is on stderr.
[[nodiscard]] std::optional<sensitivity::Profile> load_profile(const std::string& path);

// To stdout. False: it cannot be written, which is said on stderr.
[[nodiscard]] bool put(std::string_view text);
[[nodiscard]] bool put_json(const Json& json);

// An unknown value becomes null.
template <class T>
[[nodiscard]] Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
// NaN and infinity become null.
[[nodiscard]] Json number(double value);
// Who a unit is: key, producer, reader, type, shape, tensors, bytes.
[[nodiscard]] Json identity(const sensitivity::Unit& unit);
// The figures of the whole profile, without `units`.
[[nodiscard]] Json summary(const ProfileFigures& figures);
[[nodiscard]] Json stability_json(const ProfileFigures& figures);

}  // namespace pleat::cli

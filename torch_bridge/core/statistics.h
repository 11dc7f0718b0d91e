// All statistics of the process, collected into a tree: pleat.stats() prints it as JSON, the report
// renders it as text. Torch-free.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pleat::bridge {

class Runtime;

[[nodiscard]] nlohmann::ordered_json statistics_of(Runtime& runtime);
[[nodiscard]] std::string stats_json(Runtime& runtime);
[[nodiscard]] std::string report_text(Runtime& runtime);

}  // namespace pleat::bridge

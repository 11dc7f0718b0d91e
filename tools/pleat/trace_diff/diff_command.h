// `pleat trace diff`: the memory that differs between two runs of a program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/pleat/trace_command/request.h"

namespace pleat::cli {

// So many bytes, or such a part of what A has.
struct GrowthLimit {
  std::uint64_t bytes = 0;
  double per_cent = -1;  // below 0: bytes count

  [[nodiscard]] bool allows(std::int64_t a, std::int64_t b) const noexcept {
    const auto growth = static_cast<double>(b) - static_cast<double>(a);
    return growth <=
           (per_cent < 0 ? static_cast<double>(bytes) : per_cent / 100 * static_cast<double>(a));
  }
};

struct TraceDiffRequest : TraceSelection {  // `file` is A
  std::string other;                        // B
  bool as_json = false;
  std::size_t top = 10;  // rows of each table
  Moment at;
  std::optional<GrowthLimit> most_growth;
  std::string most_growth_text;
};

[[nodiscard]] CLI::App* add_trace_diff(CLI::App& trace, TraceDiffRequest& request);
// Exit code: 0; 2, no trace or no such moment; 3, over --max-growth. The reason is a line on
// stderr.
[[nodiscard]] int trace_diff(const TraceDiffRequest& request);

}  // namespace pleat::cli

// What `pleat trace diff` tells of two traces, in numbers. Prints nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/pleat/trace/match.h"
#include "tools/pleat/trace_summary/summary.h"

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

// One of the two traces, read.
struct DiffSide {
  std::string path;
  std::unique_ptr<trace::File> file;
  std::unique_ptr<trace::Replay> replay;
  std::unique_ptr<trace::Lines> lines;
  TraceSummary summary;

  // Null: the trace knows nothing of the device.
  [[nodiscard]] const DeviceSummary* device(int index) const noexcept;
};

struct DeviceDiff {
  int device = -1;
  const DeviceSummary* a = nullptr;  // null: not in that trace
  const DeviceSummary* b = nullptr;
  std::vector<trace::PlacePair> by_line, by_operator;  // the largest growth comes first
  std::int64_t bytes_a = 0, bytes_b = 0;               // that pass the filters
};

struct TraceDiff {
  DiffSide a, b;
  std::vector<DeviceDiff> devices;  // the host first
};

// Fills `devices`.
void compare(TraceDiff& diff);

[[nodiscard]] Section answer_of(const TraceDiff& diff, const TraceDiffRequest& request);

// ---- figures ------------------------------------------------------------------------------------

// A figure of a device in A and in B; nothing: not known.
struct DiffFigure {
  std::string name;  // "live", "saved raw"
  std::optional<std::int64_t> a, b;

  [[nodiscard]] std::int64_t change() const noexcept { return b.value_or(0) - a.value_or(0); }
};
// The highest of each, over the whole run.
[[nodiscard]] std::vector<DiffFigure> peak_figures(const TraceDiff& diff, const DeviceDiff& device);
// The parts of the moment: live, each class, slack, cached, and of the host small and other.
[[nodiscard]] std::vector<DiffFigure> moment_figures(const DeviceDiff& device);
// Of saved tensors, over the whole run.
[[nodiscard]] std::vector<DiffFigure> saved_figures(const DeviceDiff& device);

}  // namespace pleat::cli

// What `pleat trace merge` tells of a job, in numbers. Prints nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranks.h"
#include "tools/pleat/answer.h"
#include "tools/pleat/trace/compression.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::cli {

// A rank's memory on one device.
struct RankRow {
  std::size_t rank = 0;  // an index into Job::ranks
  int device = -1;
  trace::Peak peak;                   // of live bytes; its time is of the job's clock
  std::optional<std::uint64_t> step;  // of the peak, its number
  trace::Totals at;                   // then
  std::int64_t reserved = 0;          // at most
  trace::CompressionSums compression;
  bool growth_known = false;
  double growth_per_step = 0;

  [[nodiscard]] trace::ByteClass largest() const noexcept { return trace::largest_of(at.bytes); }
};

// Of a rank as a whole.
struct RankFigures {
  double begins_seconds = 0;  // after the job's first trace
  double seconds = 0;
  std::uint64_t events = 0;  // those that a part tells again count again
  std::uint64_t steps = 0, lost_events = 0;
  std::optional<std::uint64_t> last_step;  // the number of the last that counts
  bool incomplete = false;
  std::uint64_t faults = 0;    // damaged blocks, and events that contradict others
  std::int64_t resident = -1;  // at most; -1: not known
};

// When the ranks of a host held most of its memory together.
struct HostPeak {
  std::string host;
  std::int64_t bytes = 0;
  std::uint64_t time_ns = 0;                                // of the job's clock
  std::vector<std::pair<std::size_t, std::int64_t>> ranks;  // their bytes then
};

struct MergedJob {
  Job job;
  std::vector<RankFigures> ranks;  // as Job::ranks
  std::vector<RankRow> rows;       // by rank, then by device
  std::vector<HostPeak> hosts;     // with several ranks

  [[nodiscard]] double seconds(std::uint64_t time_ns) const noexcept {
    return static_cast<double>(static_cast<std::int64_t>(time_ns - job.start_ns)) * 1e-9;
  }
};

// The figures of a part of a rank and its rows, added to `merged`: the second pass over its file.
// Ranks in their order, parts in theirs. Of growth and compression the last part's count, as a part
// tells once more what lives when it begins. `device`: only this one.
void add_part(MergedJob& merged, std::size_t rank, const trace::Replay& replay, trace::Lines& lines,
              std::optional<int> device, const trace::Progress& progress);

[[nodiscard]] Section answer_of(const MergedJob& merged);

// One more pass over all files at once. `filters`: of each.
[[nodiscard]] std::vector<HostPeak> host_peaks(const Job& job,
                                               const std::vector<trace::Filter>& filters,
                                               const trace::Progress& progress);

}  // namespace pleat::cli

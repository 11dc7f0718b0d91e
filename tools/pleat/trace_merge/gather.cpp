#include "gather.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <utility>

#include "interpose/wrapping.h"
#include "tools/pleat/trace_command/text.h"
#include "tools/pleat/trace_summary/summary.h"

namespace pleat::cli {

using trace::wrapping_add;
using trace::wrapping_subtract;

trace::ByteClass RankRow::largest() const noexcept {
  const auto most = std::max_element(at.bytes.begin(), at.bytes.end());
  return static_cast<trace::ByteClass>(most - at.bytes.begin());
}

void add_rank(MergedJob& merged, std::size_t rank, const trace::Replay& replay, trace::Lines& lines,
              std::optional<int> device, const trace::Progress& progress) {
  TraceSummaryRequest request;
  request.device = device;
  const TraceSummary summary = summarise(replay, lines, request, progress);
  const trace::Lives& lives = replay.lives();
  const RankFile& file = merged.job.ranks[rank];
  RankFigures figures;
  figures.begins_seconds = merged.seconds(lives.start_ns + file.shift_ns);
  figures.seconds = lives.seconds(lives.last_time_ns);
  figures.events = lives.events;
  figures.steps = lives.steps.size();
  figures.lost_events = lives.lost_events;
  figures.incomplete = file.file->incomplete();
  figures.faults = file.file->problems().all() + lives.problems.all() + lives.disagreements +
                   summary.disagreements;
  if (lives.resident_known) figures.resident = lives.resident.bytes;
  merged.ranks.push_back(figures);
  for (const DeviceSummary& one : summary.devices) {
    RankRow row;
    row.rank = rank;
    row.device = one.lives->device;
    row.peak = one.lives->peaks[PLEAT_TRACE_REQUESTED];
    row.peak.time_ns += file.shift_ns;
    row.step = step_text(lives, row.peak.step);
    row.at = one.at.totals;
    row.reserved = one.lives->peaks[PLEAT_TRACE_RESERVED].bytes;
    row.compression = one.compression;
    row.growth_known = one.growth.known;
    row.growth_per_step = one.growth.bytes_per_step;
    merged.rows.push_back(std::move(row));
  }
}

// ---- together -----------------------------------------------------------------------------------

namespace {

// The host's live bytes of one rank, event by event.
class LiveBytes {
 public:
  LiveBytes(const RankFile& rank, const trace::Filter& filter, std::size_t index,
            const trace::Progress& progress)
      : index_(index),
        shift_ns_(rank.shift_ns),
        filter_(filter),
        merge_(*rank.file, kColumns, progress) {}

  // Goes on to the next event. False: there is none.
  [[nodiscard]] bool advance() {
    if (read_++ >= filter_.most_events) return false;
    if (rest_.empty()) rest_ = merge_.next();
    if (rest_.empty()) return false;
    event_ = rest_.front();
    rest_ = rest_.subspan(1);
    return true;
  }
  // What the event adds to live bytes.
  std::int64_t take() {
    const bool counts = event_.kind < PLEAT_TRACE_PHASE || event_.kind == PLEAT_TRACE_PRESENT ||
                        event_.kind == PLEAT_TRACE_LABEL;
    const std::int64_t change =
        counts && event_.device < 0 ? event_.change[PLEAT_TRACE_REQUESTED] : 0;
    bytes_ = wrapping_add(bytes_, change);
    return change;
  }
  // The trace has ended, and with it what is known: returns what the rank had then.
  [[nodiscard]] std::int64_t give_up() { return std::exchange(bytes_, 0); }
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t time_ns() const noexcept { return event_.time_ns + shift_ns_; }
  // The event is in the time that is asked for.
  [[nodiscard]] bool holds() const noexcept { return filter_.holds(event_.time_ns); }

 private:
  static constexpr trace::Columns kColumns =
      trace::column_bit(trace::Column::kTime) | trace::column_bit(trace::Column::kKind) |
      trace::column_bit(trace::Column::kDevice) | trace::column_bit(trace::Column::kChange);

  std::size_t index_;
  std::uint64_t shift_ns_;
  const trace::Filter& filter_;
  trace::Merge merge_;
  std::span<const PleatTraceEvent> rest_;
  PleatTraceEvent event_{};
  std::uint64_t read_ = 0;
  std::int64_t bytes_ = 0;
};

HostPeak peak_of(std::string host, std::vector<std::unique_ptr<LiveBytes>>& ranks) {
  const auto later = [](const LiveBytes* a, const LiveBytes* b) {
    return std::pair(a->time_ns(), a->index()) > std::pair(b->time_ns(), b->index());
  };
  std::priority_queue<LiveBytes*, std::vector<LiveBytes*>, decltype(later)> next(later);
  for (const auto& rank : ranks)
    if (rank->advance()) next.push(rank.get());
  HostPeak peak;
  peak.host = std::move(host);
  std::int64_t all = 0;
  while (!next.empty()) {
    LiveBytes* const rank = next.top();
    next.pop();
    all = wrapping_add(all, rank->take());
    if (all > peak.bytes && rank->holds()) {
      peak.bytes = all;
      peak.time_ns = rank->time_ns();
      peak.ranks.clear();
      for (const auto& one : ranks) peak.ranks.emplace_back(one->index(), one->bytes());
    }
    if (rank->advance()) {
      next.push(rank);
    } else {
      all = wrapping_subtract(all, rank->give_up());
    }
  }
  return peak;
}

}  // namespace

std::vector<HostPeak> host_peaks(const Job& job, const std::vector<trace::Filter>& filters,
                                 const trace::Progress& progress) {
  std::map<std::string, std::vector<std::unique_ptr<LiveBytes>>> hosts;
  for (std::size_t i = 0; i < job.ranks.size(); ++i)
    hosts[job.ranks[i].process().host].push_back(
        std::make_unique<LiveBytes>(job.ranks[i], filters[i], i, progress));
  std::vector<HostPeak> peaks;
  for (auto& [host, ranks] : hosts)
    if (ranks.size() > 1) peaks.push_back(peak_of(host, ranks));
  return peaks;
}

}  // namespace pleat::cli

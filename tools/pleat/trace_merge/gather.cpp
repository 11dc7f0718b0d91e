#include "gather.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <utility>

#include "interpose/trace/wrapping.h"
#include "tools/pleat/trace_summary/summary.h"

namespace pleat::cli {

using trace::wrapping_add;
using trace::wrapping_subtract;

namespace {

void add_steps(RankFigures& figures, const trace::Lives& lives) {
  if (lives.counted_steps == 0) return;
  const bool goes_on = figures.last_step == lives.steps.front().number;  // it is in both parts
  figures.steps += lives.counted_steps - (goes_on ? 1 : 0);
  figures.last_step = lives.steps[lives.counted_steps - 1].number;
}

void add_row(std::vector<RankRow>& rows, RankRow row) {
  const auto place =
      std::lower_bound(rows.begin(), rows.end(), row, [](const RankRow& a, const RankRow& b) {
        return std::pair(a.rank, a.device) < std::pair(b.rank, b.device);
      });
  if (place == rows.end() || place->rank != row.rank || place->device != row.device) {
    rows.insert(place, std::move(row));
    return;
  }
  const RankRow before = std::exchange(*place, std::move(row));
  place->reserved = std::max(place->reserved, before.reserved);
  if (place->peak.bytes > before.peak.bytes) return;
  place->peak = before.peak;
  place->step = before.step;
  place->at = before.at;
}

}  // namespace

void add_part(MergedJob& merged, std::size_t rank, const trace::Replay& replay, trace::Lines& lines,
              std::optional<int> device, const trace::Progress& progress) {
  TraceSummaryRequest request;
  request.device = device;
  request.modules = false;
  const TraceSummary summary = summarise(replay, lines, request, progress);
  const trace::Lives& lives = replay.lives();
  const trace::File& part = replay.file();
  const RankFile& file = merged.job.ranks[rank];
  if (merged.ranks.size() == rank) {
    merged.ranks.emplace_back();
    merged.ranks.back().begins_seconds = merged.seconds(lives.start_ns + file.shift_ns);
  }
  RankFigures& figures = merged.ranks.back();
  figures.seconds = lives.seconds(lives.last_time_ns);
  figures.events += lives.told();
  add_steps(figures, lives);
  figures.lost_events += lives.lost_events;
  figures.incomplete = figures.incomplete || part.incomplete();
  figures.faults +=
      part.problems().all() + lives.problems.all() + lives.disagreements + summary.disagreements;
  if (lives.resident_known) figures.resident = std::max(figures.resident, lives.resident.bytes);
  for (const DeviceSummary& one : summary.devices) {
    RankRow row;
    row.rank = rank;
    row.device = one.lives->device;
    row.peak = one.lives->peaks[PLEAT_TRACE_REQUESTED];
    row.peak.time_ns += file.shift_ns;
    row.step = lives.step_number(row.peak.step);
    row.at = one.at.totals;
    row.reserved = one.lives->peaks[PLEAT_TRACE_RESERVED].bytes;
    row.compression = one.compression;
    row.growth_known = one.growth.known;
    row.growth_per_step = one.growth.bytes_per_step;
    add_row(merged.rows, std::move(row));
  }
}

// ---- together -----------------------------------------------------------------------------------

namespace {

// The host's live bytes of one rank, event by event.
class LiveBytes {
 public:
  LiveBytes(const RankFile& rank, const trace::Filter& filter, std::size_t index,
            const trace::Progress& progress)
      : rank_(rank), index_(index), filter_(filter), progress_(progress) {
    open(0);
  }

  // Goes on to the next event. False: there is none.
  [[nodiscard]] bool advance() {
    while (!advance_in_part()) {
      if (part_ + 1 == rank_.parts.size()) return false;
      open(part_ + 1);
      is_told_again_ = true;
    }
    return true;
  }
  // The bytes that the event adds to live bytes.
  std::int64_t take() {
    const bool counts = trace::changes_sums(event_.kind) && event_.device < 0;
    const std::int64_t change = counts ? event_.change[PLEAT_TRACE_REQUESTED] : 0;
    const std::int64_t before = bytes_;
    bytes_ = wrapping_add(std::exchange(is_told_again_, false) ? 0 : before, change);
    return wrapping_subtract(bytes_, before);
  }
  // The trace has ended, and with it what is known: returns what the rank had then.
  [[nodiscard]] std::int64_t give_up() { return std::exchange(bytes_, 0); }
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t time_ns() const noexcept { return event_.time_ns + rank_.shift_ns; }
  // The event is in the time that is asked for.
  [[nodiscard]] bool holds() const noexcept { return filter_.holds(event_.time_ns); }

 private:
  static constexpr trace::Columns kColumns =
      trace::column_bit(trace::Column::kTime) | trace::column_bit(trace::Column::kKind) |
      trace::column_bit(trace::Column::kDevice) | trace::column_bit(trace::Column::kChange);

  void open(std::size_t part) {
    part_ = part;
    rest_ = {};
    merge_.emplace(*rank_.parts[part].file, kColumns, progress_);
    read_ = 0;
  }
  [[nodiscard]] bool advance_in_part() {
    if (read_++ >= filter_.most_events) return false;
    if (rest_.empty()) rest_ = merge_->next();
    if (rest_.empty()) return false;
    event_ = rest_.front();
    rest_ = rest_.subspan(1);
    return true;
  }

  const RankFile& rank_;
  std::size_t index_;
  const trace::Filter& filter_;
  const trace::Progress& progress_;
  std::size_t part_ = 0;
  std::optional<trace::Merge> merge_;
  std::span<const PleatTraceEvent> rest_;
  PleatTraceEvent event_{};
  std::uint64_t read_ = 0;
  std::int64_t bytes_ = 0;
  bool is_told_again_ = false;  // what there is, from the next event on: another part begins
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

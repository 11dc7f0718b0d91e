// A job's ranks for a person: a table of them, and the joint bytes of a host's ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/pleat/text_table.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"
#include "words.h"

namespace pleat::cli {
namespace {

constexpr std::size_t kMostName = 40;

std::string counted(std::size_t count, const char* what, const char* plural = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

std::string host_text(const std::string& host) {
  return host.empty() ? "a host without a name" : bridge::printable(host, kMostName);
}

std::string head(const MergedJob& merged) {
  std::set<std::string> hosts;
  std::size_t ranks = 0;
  for (const RankFile& file : merged.job.ranks) {
    hosts.insert(file.process().host);
    ranks += file.is_rank() ? 1 : 0;
  }
  std::string text = counted(ranks, "rank");
  if (const std::size_t others = merged.job.ranks.size() - ranks; others > 0)
    text += fmt::format(" and {} beside them", counted(others, "process", "es"));
  text += " on " + counted(hosts.size(), "host");
  if (!merged.job.missing.empty())
    text += fmt::format("; of {}, missing: {}", merged.job.world_size, merged.job.missing);
  return text + '\n';
}

std::string notes_text(const RankFile& file, const RankFigures& figures) {
  std::string text;
  const auto add = [&text](const std::string& words) {
    text += (text.empty() ? "" : ", ") + words;
  };
  if (figures.incomplete) add("incomplete");
  if (figures.lost_events > 0) add(count_text(figures.lost_events) + " events lost");
  if (figures.faults > 0) add(count_text(figures.faults) + " faults");
  if (!file.has_clock) add("no wall clock");
  if (const std::uint64_t first = file.parts.front().number(); first > 1)
    add(fmt::format("from part {} on", first));
  return text;
}

std::string rank_table(const MergedJob& merged) {
  TextTable table({{"rank"},
                   {"on", Align::kLeft, true, 1},
                   {"device", Align::kLeft},
                   {"peak"},
                   {"at"},
                   {"step", Align::kRight, false, 5},
                   {"phase", Align::kLeft, false, 4},
                   {"most of it", Align::kLeft},
                   {"reserved", Align::kRight, false, 3},
                   {"growth a step"},
                   {"resident"},
                   {"compressed", Align::kRight, false, 2},
                   {"", Align::kLeft, true}});
  for (const RankRow& row : merged.rows) {
    const RankFile& file = merged.job.ranks[row.rank];
    const RankFigures& figures = merged.ranks[row.rank];
    const bool has_peak = row.peak.bytes > 0;
    const auto payload = row.compression.payload_bytes;
    table.add({file.name(), bridge::printable(file.process().host, kMostName),
               device_text(row.device), size_text(row.peak.bytes),
               has_peak ? fmt::format("{:.3f} s", merged.seconds(row.peak.time_ns)) : "-",
               has_peak && row.step ? std::to_string(*row.step) : "-",
               has_peak ? std::string(trace::phase_name(row.peak.phase)) : "-",
               has_peak ? fmt::format("{} {}", trace::class_name(row.largest()),
                                      share_of(row.at.of(row.largest()), row.at.live()))
                        : "-",
               size_text(row.reserved),
               row.growth_known ? size_text(std::llround(row.growth_per_step)) : "-",
               row.device < 0 && figures.resident >= 0 ? size_text(figures.resident) : "-",
               payload > 0
                   ? fmt::format("{:.2f}x", static_cast<double>(row.compression.source_bytes) /
                                                static_cast<double>(payload))
                   : "",
               notes_text(file, figures)});
  }
  return table.empty() ? "nothing is known of any memory\n" : table.text(terminal_columns());
}

// How far the ranks are apart, by device.
std::string spread(const MergedJob& merged) {
  std::set<int> devices;
  for (const RankRow& row : merged.rows) devices.insert(row.device);
  std::string text;
  for (const int device : devices) {
    const RankRow* least = nullptr;
    const RankRow* most = nullptr;
    for (const RankRow& row : merged.rows) {
      if (row.device != device || !merged.job.ranks[row.rank].is_rank()) continue;
      if (least == nullptr || row.peak.bytes < least->peak.bytes) least = &row;
      if (most == nullptr || row.peak.bytes > most->peak.bytes) most = &row;
    }
    if (least == most) continue;
    text += fmt::format("{}: peaks from {} (rank {}) to {} (rank {})\n", device_text(device),
                        size_text(least->peak.bytes), merged.job.ranks[least->rank].name(),
                        size_text(most->peak.bytes), merged.job.ranks[most->rank].name());
  }
  return text;
}

std::string together(const MergedJob& merged) {
  constexpr std::size_t kMostRanks = 8;
  std::string text;
  for (const HostPeak& peak : merged.hosts) {
    if (peak.bytes == 0) continue;
    text += fmt::format("{}: its {} together at most {}, at {:.3f} s:", host_text(peak.host),
                        counted(peak.ranks.size(), "process", "es"), size_text(peak.bytes),
                        merged.seconds(peak.time_ns));
    for (std::size_t i = 0; i < std::min(peak.ranks.size(), kMostRanks); ++i) {
      const RankFile& file = merged.job.ranks[peak.ranks[i].first];
      text += fmt::format("{} {}{} {}", i == 0 ? "" : ",", file.process().rank >= 0 ? "rank " : "",
                          file.name(), size_text(peak.ranks[i].second));
    }
    text += peak.ranks.size() > kMostRanks ? ", ...\n" : "\n";
  }
  return text;
}

}  // namespace

std::string text_of(const MergedJob& merged) {
  std::string text = head(merged) + rank_table(merged);
  const std::string behind = spread(merged) + together(merged);
  return behind.empty() ? text : text + '\n' + behind;
}

}  // namespace pleat::cli

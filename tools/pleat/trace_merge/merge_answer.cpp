// The answer of a merge: a table of a job's ranks, and the joint bytes of a host's ranks. In JSON,
// bytes are whole numbers; seconds count from the beginning of the job's first trace.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gather.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

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

// Of all ranks, or of one.
Table rank_table(const MergedJob& merged, std::optional<std::size_t> rank) {
  Table table({figure_column("rank"),
               name_column("on", "", 1),
               word_column("device", "device"),
               figure_column("peak", "peak_live_bytes"),
               figure_column("at", "peak_seconds"),
               figure_column("step", "peak_step", 5),
               {"phase", "peak_phase", Align::kLeft, false, 4},
               word_column("most of it", "classes"),
               figure_column("reserved", "peak_reserved_bytes", 3),
               figure_column("growth a step", "growth_bytes_per_step"),
               figure_column("resident"),
               figure_column("compressed", "", 2),
               name_column(""),
               json_columns()});
  for (const RankRow& row : merged.rows) {
    if (rank && row.rank != *rank) continue;
    const RankFile& file = merged.job.ranks[row.rank];
    const RankFigures& figures = merged.ranks[row.rank];
    const bool has_peak = row.peak.bytes > 0;
    const auto if_peak = [&](Json json, std::string text) -> Cell {
      return has_peak ? Cell(std::move(json), std::move(text)) : Cell(Json(), "-");
    };
    const double seconds = merged.seconds(row.peak.time_ns);
    const std::string phase(trace::phase_name(row.peak.phase));
    const std::int64_t growth = row.growth_known ? std::llround(row.growth_per_step) : 0;
    const trace::CompressionSums& saved = row.compression;
    table.add({file.name(),
               bridge::printable(file.process().host, kMostName),
               {device_text(row.device), device_text(row.device)},
               size_cell(row.peak.bytes),
               if_peak(seconds, fmt::format("{:.3f} s", seconds)),
               {or_null(row.step), has_peak && row.step ? std::to_string(*row.step) : "-"},
               if_peak(phase, phase),
               {classes_json(row.at.bytes),
                has_peak ? fmt::format("{} {}", trace::class_name(row.largest()),
                                       share_of(row.at.of(row.largest()), row.at.live()))
                         : "-"},
               size_cell(row.reserved),
               row.growth_known ? size_cell(growth) : Cell(Json(), "-"),
               row.device < 0 && figures.resident >= 0 ? size_text(figures.resident) : "-",
               saved.payload_bytes > 0 ? ratio_text(saved.source_bytes, saved.payload_bytes) : "",
               notes_text(file, figures),
               {{{"saved_bytes", saved.saved_bytes},
                 {"source_bytes", saved.source_bytes},
                 {"payload_bytes", saved.payload_bytes}},
                ""}});
  }
  return table;
}

Section rank_section(const MergedJob& merged, std::size_t rank) {
  const RankFile& file = merged.job.ranks[rank];
  const RankFigures& figures = merged.ranks[rank];
  Json parts = Json::array();
  for (const TracePart& part : file.parts) parts.push_back(part.path);
  Section to;
  to.values({{"file", file.path()},
             {"parts", std::move(parts)},
             {"process", process_json(file.process())},
             {"is_helper", file.is_helper},
             {"begins_seconds", file.has_clock ? Json(figures.begins_seconds) : Json()},
             {"seconds", figures.seconds},
             {"steps", figures.steps},
             {"events", figures.events},
             {"lost_events", figures.lost_events},
             {"incomplete", figures.incomplete},
             {"faults", figures.faults},
             {"resident_peak_bytes", figures.resident >= 0 ? Json(figures.resident) : Json()},
             {"devices", rank_table(merged, rank).json()}});
  return to;
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

Section host_section(const MergedJob& merged, const HostPeak& peak) {
  constexpr std::size_t kMostRanks = 8;
  Section to;
  std::string text =
      fmt::format("{}: its {} together at most {}, at {:.3f} s:", host_text(peak.host),
                  counted(peak.ranks.size(), "process", "es"), size_text(peak.bytes),
                  merged.seconds(peak.time_ns));
  Json processes = Json::array();
  for (const auto& [rank, bytes] : peak.ranks) {
    const RankFile& file = merged.job.ranks[rank];
    if (processes.size() < kMostRanks)
      text += fmt::format("{} {}{} {}", processes.empty() ? "" : ",",
                          file.process().rank >= 0 ? "rank " : "", file.name(), size_text(bytes));
    processes.push_back({{"file", file.path()}, {"bytes", bytes}});
  }
  if (peak.bytes > 0) to.text(text + (peak.ranks.size() > kMostRanks ? ", ...\n" : "\n"));
  to.values({{"host", peak.host.empty() ? Json() : Json(peak.host)},
             {"live_bytes", peak.bytes},
             {"seconds", peak.bytes > 0 ? Json(merged.seconds(peak.time_ns)) : Json()},
             {"processes", std::move(processes)}});
  return to;
}

}  // namespace

Section answer_of(const MergedJob& merged) {
  const Job& job = merged.job;
  Section to;
  to.value("world_size", job.world_size > 0 ? Json(job.world_size) : Json());
  to.value("missing", job.missing.empty() ? Json() : Json(job.missing));
  to.text(head(merged));
  to.table("", "", rank_table(merged, std::nullopt));
  if (merged.rows.empty()) to.text("nothing is known of any memory\n");
  to.value("ranks", Json::array());
  for (std::size_t i = 0; i < merged.ranks.size(); ++i)
    to.element("ranks", rank_section(merged, i));
  to.text("\n" + spread(merged));
  to.value("together", Json::array());
  for (const HostPeak& peak : merged.hosts) to.element("together", host_section(merged, peak));
  to.trim();
  return to;
}

}  // namespace pleat::cli

// A job's ranks for a program: the same as its text. Bytes and times are whole numbers but for
// seconds, which count from the beginning of the job's first trace; an unknown value is null.
#include <cmath>

#include "tools/pleat/profile_output.h"
#include "tools/pleat/trace_command/process.h"
#include "tools/pleat/trace_command/text.h"
#include "words.h"

namespace pleat::cli {
namespace {

Json row_json(const MergedJob& merged, const RankRow& row) {
  const bool has_peak = row.peak.bytes > 0;
  Json json;
  json["device"] = device_text(row.device);
  json["peak_live_bytes"] = row.peak.bytes;
  json["peak_seconds"] = has_peak ? Json(merged.seconds(row.peak.time_ns)) : Json();
  json["peak_step"] = or_null(row.step);
  json["peak_phase"] = has_peak ? Json(trace::phase_name(row.peak.phase)) : Json();
  json["classes"] = classes_json(row.at.bytes);
  json["peak_reserved_bytes"] = row.reserved;
  json["growth_bytes_per_step"] =
      row.growth_known ? Json(std::llround(row.growth_per_step)) : Json();
  json["saved_bytes"] = row.compression.saved_bytes;
  json["source_bytes"] = row.compression.source_bytes;
  json["payload_bytes"] = row.compression.payload_bytes;
  return json;
}

Json rank_json(const MergedJob& merged, std::size_t rank) {
  const RankFile& file = merged.job.ranks[rank];
  const RankFigures& figures = merged.ranks[rank];
  Json json;
  json["file"] = file.path();
  json["parts"] = Json::array();
  for (const TracePart& part : file.parts) json["parts"].push_back(part.path);
  json["process"] = process_json(file.process());
  json["is_helper"] = file.is_helper;
  json["begins_seconds"] = file.has_clock ? Json(figures.begins_seconds) : Json();
  json["seconds"] = figures.seconds;
  json["steps"] = figures.steps;
  json["events"] = figures.events;
  json["lost_events"] = figures.lost_events;
  json["incomplete"] = figures.incomplete;
  json["faults"] = figures.faults;
  json["resident_peak_bytes"] = figures.resident >= 0 ? Json(figures.resident) : Json();
  json["devices"] = Json::array();
  for (const RankRow& row : merged.rows)
    if (row.rank == rank) json["devices"].push_back(row_json(merged, row));
  return json;
}

Json host_json(const MergedJob& merged, const HostPeak& peak) {
  Json held = Json::array();
  for (const auto& [rank, bytes] : peak.ranks)
    held.push_back({{"file", merged.job.ranks[rank].path()}, {"bytes", bytes}});
  return {{"host", peak.host.empty() ? Json() : Json(peak.host)},
          {"live_bytes", peak.bytes},
          {"seconds", peak.bytes > 0 ? Json(merged.seconds(peak.time_ns)) : Json()},
          {"processes", std::move(held)}};
}

}  // namespace

bool put_merge_json(const MergedJob& merged) {
  Json json;
  json["world_size"] = merged.job.world_size > 0 ? Json(merged.job.world_size) : Json();
  json["missing"] = merged.job.missing.empty() ? Json() : Json(merged.job.missing);
  json["ranks"] = Json::array();
  for (std::size_t i = 0; i < merged.ranks.size(); ++i)
    json["ranks"].push_back(rank_json(merged, i));
  json["together"] = Json::array();
  for (const HostPeak& peak : merged.hosts) json["together"].push_back(host_json(merged, peak));
  return put_json(json);
}

}  // namespace pleat::cli

// A trace's summary for a program: the same as its text. Bytes and times are whole numbers; an
// unknown value is null.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "layers.h"
#include "summary.h"
#include "tools/pleat/profile_output.h"
#include "tools/pleat/trace_command/process.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::Lives;

std::string text(std::string_view of) { return std::string(of); }

class JsonWriter {
 public:
  JsonWriter(const TraceSummary& summary, trace::Lines& lines, const TraceSummaryRequest& request)
      : summary_(summary),
        lines_(lines),
        request_(request),
        file_(summary.replay->file()),
        lives_(summary.replay->lives()) {}

  [[nodiscard]] Json json() const {
    Json json;
    json["file"] = request_.file;
    json["process"] = process_json(file_.process());
    json["seconds"] = lives_.seconds(lives_.last_time_ns);
    json["steps"] = lives_.counted_steps;
    json["events"] = lives_.told();
    json["lost_events"] = lives_.lost_events;
    json["incomplete"] = file_.incomplete();
    json["damaged"] = file_.problems().all() + lives_.problems.all();
    json["disagreements"] = lives_.disagreements + summary_.disagreements;
    json["resident_peak_bytes"] = lives_.resident_known ? Json(lives_.resident.bytes) : Json();
    json["small_peak_bytes"] = lives_.most_small_bytes;
    json["what_if"] = what_if();
    json["devices"] = Json::array();
    for (const DeviceSummary& one : summary_.devices) json["devices"].push_back(device(one));
    return json;
  }

 private:
  [[nodiscard]] Json step(std::uint32_t index) const { return or_null(lives_.step_number(index)); }
  [[nodiscard]] Json place(std::uint32_t op, std::uint32_t frame) const {
    Json json;
    json["op"] = op == 0 ? Json() : Json(text(file_.definitions().string(op)));
    json["line"] = frame == 0 ? Json() : Json(lines_.long_text(frame));
    return json;
  }
  [[nodiscard]] Json peak(const trace::Peak& of) const {
    return {{"bytes", of.bytes},
            {"event", of.event},
            {"seconds", of.bytes == 0 ? Json() : Json(lives_.seconds(of.time_ns))},
            {"step", step(of.step)},
            {"phase", text(trace::phase_name(of.phase))}};
  }
  // Which bits were asked for, and whether the trace knows.
  [[nodiscard]] Json what_if() const {
    if (!request_.what_if) return {};
    const double bits = *request_.what_if;
    return {{"bits", bits == trace::kLossless ? Json("lossless") : Json(bits)},
            {"known", summary_.knows_what_if}};
  }
  [[nodiscard]] Json what_if(const WhatIfSummary& what_if) const {
    return {{"peak_live", peak(what_if.peak)},
            {"classes", classes_json(what_if.classes)},
            {"moment_live_bytes", what_if.at}};
  }
  [[nodiscard]] Json device(const DeviceSummary& device) const;
  [[nodiscard]] Json moment(const trace::Snapshot& at) const;
  [[nodiscard]] Json groups(const std::vector<trace::Group>& groups, bool by_line) const;
  [[nodiscard]] Json steps(const trace::DeviceLives& device) const;
  [[nodiscard]] Json growth(const trace::Growth& growth) const;
  [[nodiscard]] Json compression(const DeviceSummary& device) const;

  const TraceSummary& summary_;
  trace::Lines& lines_;
  const TraceSummaryRequest& request_;
  const trace::File& file_;
  const Lives& lives_;
};

Json JsonWriter::device(const DeviceSummary& device) const {
  const auto& peaks = device.lives->peaks;
  Json json;
  json["device"] = device_text(device.lives->device);
  json["peak_live"] = peak(peaks[PLEAT_TRACE_REQUESTED]);
  json["peak_active"] = peak(peaks[PLEAT_TRACE_ACTIVE]);
  json["peak_reserved"] = peak(peaks[PLEAT_TRACE_RESERVED]);
  json["peak_saved_raw"] = peak(peaks[PLEAT_TRACE_SAVED_RAW]);
  json["peak_payload"] = peak(peaks[PLEAT_TRACE_PAYLOAD]);
  json["peak_restored"] = peak(peaks[PLEAT_TRACE_RESTORED]);
  json["what_if"] = device.what_if ? what_if(*device.what_if) : Json();
  json["blocks"] = device.lives->blocks;
  json["out_of_memory"] = device.lives->out_of_memory;
  json["moment"] = device.at.taken ? moment(device.at) : Json();
  json["by_line"] = groups(device.by_line, true);
  json["by_operator"] = groups(device.by_operator, false);
  std::vector<trace::Group> kept;
  std::copy_if(device.by_line.begin(), device.by_line.end(), std::back_inserter(kept),
               [](const trace::Group& one) { return one.of == trace::ByteClass::kKept; });
  json["kept_by_line"] = groups(kept, true);
  json["steps"] = steps(*device.lives);
  json["growth"] = growth(device.growth);
  json["compression"] = compression(device);
  put_layers(json, summary_, device, lines_);
  return json;
}

Json JsonWriter::moment(const trace::Snapshot& at) const {
  Json json;
  json["event"] = at.event;
  json["seconds"] = lives_.seconds(at.time_ns);
  json["step"] = step(at.step);
  json["phase"] = text(trace::phase_name(at.phase));
  json["live_bytes"] = at.totals.live();
  json["active_bytes"] = at.totals.active();
  json["reserved_bytes"] = at.totals.reserved();
  json["slack_bytes"] = at.totals.slack();
  json["cached_bytes"] = at.totals.cached();
  json["small_bytes"] = at.small;
  json["other_bytes"] = at.resident >= 0 ? Json(at.other) : Json();
  json["resident_bytes"] = at.resident >= 0 ? Json(at.resident) : Json();
  json["classes"] = classes_json(at.totals.bytes);
  const bool known = at.gaps.segment_bytes > 0;
  json["segment_bytes"] = known ? Json(at.gaps.segment_bytes) : Json();
  json["free_in_segments_bytes"] = known ? Json(at.gaps.free_bytes) : Json();
  json["largest_gap_bytes"] = known ? Json(at.gaps.largest) : Json();
  return json;
}

Json JsonWriter::groups(const std::vector<trace::Group>& groups, bool by_line) const {
  Json rows = Json::array();
  for (const trace::Group& group : groups) {
    if (rows.size() >= request_.top) break;
    Json row = place(group.op, group.frame);
    if (!by_line) row.erase("line");
    row["class"] = text(trace::class_name(group.of));
    row["bytes"] = group.bytes;
    if (summary_.knows_what_if) row["what_if_bytes"] = group.would_be;
    row["blocks"] = group.count;
    row["first_step"] = step(group.first_step);
    row["last_step"] = step(group.last_step);
    row["oldest_seconds"] = group.oldest_ns == 0 ? Json() : Json(lives_.seconds(group.oldest_ns));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json JsonWriter::steps(const trace::DeviceLives& device) const {
  Json rows = Json::array();
  for (std::size_t i = 0; i < device.steps.size(); ++i)
    rows.push_back({{"step", lives_.steps[i].number},
                    {"seconds", lives_.seconds(lives_.steps[i].time_ns)},
                    {"peak_bytes", device.steps[i].peak},
                    {"live_at_end_bytes", device.steps[i].live_at_end}});
  return rows;
}

Json JsonWriter::growth(const trace::Growth& growth) const {
  if (!growth.known) return {};
  Json json;
  json["steps"] = growth.steps;
  json["bytes_per_step"] = std::llround(growth.bytes_per_step);
  json["lines"] = Json::array();
  for (const trace::GrowthLine& line : growth.lines) {
    if (json["lines"].size() >= request_.top) break;
    Json row = place(line.op, line.frame);
    row["bytes_per_step"] = std::llround(line.bytes_per_step);
    row["bytes"] = line.bytes;
    row["blocks"] = line.count;
    row["steps"] = line.steps;
    json["lines"].push_back(std::move(row));
  }
  return json;
}

Json JsonWriter::compression(const DeviceSummary& device) const {
  const auto put = [](Json& row, const trace::CompressionSums& sums) {
    row["saved"] = sums.saved;
    row["saved_bytes"] = sums.saved_bytes;
    row["compressed"] = sums.encoded;
    row["source_bytes"] = sums.source_bytes;
    row["payload_bytes"] = sums.payload_bytes;
    row["left_raw"] = sums.held;
    row["left_raw_bytes"] = sums.held_bytes;
    row["restored"] = sums.restored;
    row["restored_bytes"] = sums.restored_bytes;
    row["encode_ns"] = sums.encode_ns;
    row["restore_ns"] = sums.restore_ns;
  };
  Json json;
  put(json, device.compression);
  json["reasons"] = Json::array();
  for (const trace::HeldReason& held : device.held)
    json["reasons"].push_back(
        {{"reason", held.reason}, {"records", held.records}, {"bytes", held.bytes}});
  json["lines"] = Json::array();
  for (const trace::CompressionLine& line : device.compression_lines) {
    if (json["lines"].size() >= request_.top) break;
    Json row = place(line.op, line.frame);
    put(row, line.sums);
    json["lines"].push_back(std::move(row));
  }
  json["exact"] = Json::array();
  for (const trace::ExactLine& exact : device.exact) {
    if (json["exact"].size() >= request_.top) break;
    Json row = place(exact.op, exact.frame);
    row["why"] = exact.why;
    row["records"] = exact.records;
    row["bytes"] = exact.bytes;
    json["exact"].push_back(std::move(row));
  }
  json["proved"] = Json::array();
  for (const trace::ProvedLine& proved : device.proved) {
    if (json["proved"].size() >= request_.top) break;
    json["proved"].push_back({{"by", proved.by}, {"saves", proved.saves}, {"bytes", proved.bytes}});
  }
  json["left_alone"] = Json::array();
  for (const trace::LeftLine& left : device.left) {
    if (json["left_alone"].size() >= request_.top) break;
    Json row = place(0, left.frame);
    row.erase("op");
    row["why"] = left.why;
    row["tensors"] = left.tensors;
    row["bytes"] = left.bytes;
    json["left_alone"].push_back(std::move(row));
  }
  return json;
}

}  // namespace

bool put_summary_json(const TraceSummary& summary, trace::Lines& lines,
                      const TraceSummaryRequest& request) {
  return put_json(JsonWriter(summary, lines, request).json());
}

}  // namespace pleat::cli

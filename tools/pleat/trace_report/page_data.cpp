#include "watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "interpose/trace/wrapping.h"
#include "tools/pleat/trace/trail.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::Lives;

constexpr std::size_t kMostText = 600;  // bytes of a name; a person reads no more

std::string text(std::string_view of) { return std::string(of.substr(0, kMostText)); }

// Texts that are said once; elsewhere stands their number.
class Texts {
 public:
  Json number(std::string said) {
    if (said.size() > kMostText) said.resize(kMostText);
    const auto [it, is_new] = numbers_.try_emplace(std::move(said), all_.size());
    if (is_new) all_.push_back(it->first);
    return it->second;
  }
  [[nodiscard]] Json all() const { return all_; }

 private:
  std::unordered_map<std::string, std::size_t> numbers_;
  Json all_ = Json::array();
};

class Writer {
 public:
  Writer(const TraceReport& report, trace::Lines& lines, const TraceReportRequest& request)
      : report_(report),
        lines_(lines),
        request_(request),
        file_(report.replay->file()),
        lives_(report.replay->lives()) {}

  [[nodiscard]] Json json() {
    Json json;
    json["file"] = text(request_.file.substr(request_.file.rfind('/') + 1));
    json["process"] = process();
    json["length"] = time(lives_.last_time_ns);
    json["events"] = lives_.told();
    json["lost"] = lives_.lost_events;
    json["incomplete"] = file_.incomplete();
    json["damaged"] = file_.problems().all() + lives_.problems.all();
    json["disagreements"] = lives_.disagreements + report_.disagreements;
    json["filtered"] = report_filter_text(request_);
    json["resident_peak"] = lives_.resident_known ? Json(lives_.resident.bytes) : Json();
    json["classes"] = Json::array();
    for (const std::string_view name : trace::kClassNames) json["classes"].push_back(text(name));
    json["phase_names"] = Json::array();
    for (std::uint8_t phase = 0; phase <= PLEAT_TRACE_PHASE_DATA; ++phase)
      json["phase_names"].push_back(text(trace::phase_name(phase)));
    json["phases"] = Json::array();
    for (const PhaseBands::Band& band : report_.phases)
      json["phases"].push_back({time(band.begin_ns), time(band.end_ns), band.phase});
    json["resident"] = Json::array();
    for (const ResidentCurve::Point& point : report_.resident)
      json["resident"].push_back({time(point.time_ns), point.bytes});
    json["steps"] = steps();
    json["step_count"] = lives_.counted_steps;
    json["what_if"] = report_.what_if ? Json(what_if_text(*report_.what_if)) : Json();
    json["no_what_if"] = request_.what_if && !report_.what_if ? Json(kNoWhatIf) : Json();
    json["devices"] = Json::array();
    for (const DeviceReport& one : report_.devices) json["devices"].push_back(device(one));
    json["texts"] = texts_.all();
    return json;
  }

 private:
  [[nodiscard]] Json process() const {
    const trace::Process& process = file_.process();
    const auto known = [](std::int64_t number) { return number >= 0 ? Json(number) : Json(); };
    const auto said = [](const std::string& words) {
      return words.empty() ? Json() : Json(words.substr(0, 4 * kMostText));
    };
    return {{"pid", process.pid},
            {"host", said(process.host)},
            {"rank", known(process.rank)},
            {"world_size", known(process.world_size)},
            {"torch", said(process.torch)},
            {"pleat", said(process.pleat)},
            {"stacks", said(process.stacks)},
            {"options", said(process.options)},
            {"command", said(process.command)},
            {"start_wall_ms", process.start_wall_ns / 1000000}};
  }
  [[nodiscard]] Json step(std::uint32_t index) const { return or_null(lives_.step_number(index)); }
  // Microseconds from the trace's beginning: whole numbers are short.
  [[nodiscard]] Json time(std::uint64_t ns) const { return std::llround(lives_.seconds(ns) * 1e6); }
  [[nodiscard]] Json op(std::uint32_t id) {
    return texts_.number(id == 0 ? std::string() : text(file_.definitions().string(id)));
  }
  [[nodiscard]] Json line(std::uint32_t frame) {
    return texts_.number(frame == 0 ? std::string() : lines_.long_text(frame));
  }
  [[nodiscard]] Json steps() const {
    Json rows = Json::array();
    const std::size_t stride = lives_.steps.size() / kReportPoints + 1;
    for (std::size_t i = 0; i < lives_.steps.size(); i += stride)
      rows.push_back({lives_.steps[i].number, time(lives_.steps[i].time_ns)});
    return rows;
  }
  [[nodiscard]] Json device(const DeviceReport& device) {
    const auto peak_json = [&](const trace::Peak& of) -> Json {
      return {{"bytes", of.bytes},
              {"time", of.bytes == 0 ? Json() : time(of.time_ns)},
              {"step", step(of.step)},
              {"phase", text(trace::phase_name(of.phase))}};
    };
    const auto peak = [&](PleatTraceChange of) { return peak_json(device.lives->peaks[of]); };
    Json json;
    json["device"] = device_text(device.lives->device);
    json["peak_live"] = peak(PLEAT_TRACE_REQUESTED);
    json["peak_reserved"] = peak(PLEAT_TRACE_RESERVED);
    json["peak_saved_raw"] = peak(PLEAT_TRACE_SAVED_RAW);
    json["peak_payload"] = peak(PLEAT_TRACE_PAYLOAD);
    json["what_if"] = device.what_if ? peak_json(device.what_if->peak) : Json();
    json["blocks"] = device.lives->blocks;
    json["out_of_memory"] = device.lives->out_of_memory;
    json["moment"] = device.at.taken ? moment(device.at) : Json();
    json["curve"] = curve(device);
    json["steps"] = device_steps(*device.lives);
    json["by_line"] = places(device, true);
    json["by_operator"] = places(device, false);
    json["flame"] = flame(device);
    json["map"] = map(device.map);
    json["growth"] = growth(device.growth);
    json["compression"] = compression(device);
    json["modules"] = modules(device);
    json["groups"] = groups(device);
    json["left_alone"] = left_alone(device);
    return json;
  }
  [[nodiscard]] Json moment(const trace::Snapshot& at) const {
    return {{"time", time(at.time_ns)},
            {"step", step(at.step)},
            {"phase", text(trace::phase_name(at.phase))},
            {"live", at.totals.live()},
            {"reserved", at.totals.reserved()},
            {"slack", at.totals.slack()},
            {"cached", at.totals.cached()},
            {"small", at.small},
            {"resident", at.resident >= 0 ? Json(at.resident) : Json()},
            {"classes", at.totals.bytes},
            {"segments", at.gaps.segment_bytes},
            {"free", at.gaps.free_bytes},
            {"largest_gap", at.gaps.largest}};
  }
  // By column: a page draws a class at a time.
  [[nodiscard]] Json curve(const DeviceReport& device) const {
    Json json{{"time", Json::array()}, {"live", Json::array()}, {"reserved", Json::array()}};
    Json classes = Json::array();
    for (const trace::Curve::Point& point : device.curve) {
      json["time"].push_back(time(point.time_ns));
      json["live"].push_back(point.totals.live());
      json["reserved"].push_back(point.highest_reserved);
    }
    for (std::size_t i = 0; i < trace::kByteClasses; ++i) {
      Json column = Json::array();
      bool any = false;
      for (const trace::Curve::Point& point : device.curve) {
        column.push_back(point.totals.bytes[i]);
        any = any || point.totals.bytes[i] != 0;
      }
      classes.push_back(any ? std::move(column) : Json());
    }
    json["classes"] = std::move(classes);
    if (report_.what_if)
      for (const trace::Curve::Point& point : device.curve)
        json["what_if"].push_back(point.highest_would_be);
    return json;
  }
  // Number, peak and live bytes at the end. Of too many steps the highest of each few.
  [[nodiscard]] Json device_steps(const trace::DeviceLives& device) const {
    Json rows = Json::array();
    const std::size_t stride = device.steps.size() / kReportPoints + 1;
    for (std::size_t i = 0; i < device.steps.size() && i < lives_.steps.size(); i += stride) {
      std::int64_t peak = 0;
      std::int64_t at_end = 0;
      for (std::size_t j = i; j < std::min(i + stride, device.steps.size()); ++j) {
        peak = std::max(peak, device.steps[j].peak);
        at_end = std::max(at_end, device.steps[j].live_at_end);
      }
      rows.push_back({lives_.steps[i].number, peak, at_end});
    }
    return rows;
  }
  [[nodiscard]] Json places(const DeviceReport& device, bool by_line) {
    Json rows = Json::array();
    for (const PlaceRow& row : place_rows(device, by_line)) {
      Json json{{"op", op(row.place.op)}};
      if (by_line) json["line"] = line(row.place.frame);
      if (row.rest) json["rest"] = true;
      json["classes"] = Json::array();  // pairs: class, bytes
      for (std::size_t i = 0; i < trace::kByteClasses; ++i)
        if (row.bytes[i] != 0) json["classes"].push_back({i, row.bytes[i]});
      json["blocks"] = row.blocks;
      if (report_.what_if) json["what_if"] = row.would_be;
      json["allocated"] = row.run.allocated_bytes;
      json["allocations"] = row.run.allocations;
      json["saved"] = row.run.saved_bytes;
      json["saves"] = row.run.saved;
      rows.push_back(std::move(json));
    }
    return rows;
  }
  // By column: parent, bytes, class (-1: none), text.
  [[nodiscard]] Json flame(const DeviceReport& device) {
    Json json{{"parent", Json::array()},
              {"bytes", Json::array()},
              {"class", Json::array()},
              {"text", Json::array()}};
    for (const FlameNode& node : device.flame) {
      using Kind = FlameNode::Kind;
      const bool is_operator = node.kind == Kind::kOperator;
      json["parent"].push_back(node.parent);
      json["bytes"].push_back(node.bytes);
      json["class"].push_back(is_operator ? static_cast<int>(node.of) : -1);
      json["text"].push_back(node.kind == Kind::kRoot    ? texts_.number("all live bytes")
                             : node.kind == Kind::kOther ? texts_.number("(other)")
                             : node.kind == Kind::kFrame ? line(node.id)
                             : node.id == 0              ? texts_.number("(no operator)")
                                                         : op(node.id));
    }
    return json;
  }
  // Each piece: kind, place from its segment's begin, bytes, class, operator, line.
  [[nodiscard]] Json map(const MemoryMap& map) {
    Json segments = Json::array();
    auto piece = map.pieces.begin();
    for (const auto& [begin, end, by_blocks] : map.segments) {
      Json pieces = Json::array();
      for (; piece != map.pieces.end() && piece->address < end; ++piece) {
        if (piece->address < begin) continue;
        const std::uint32_t frame = lines_.frame_of(piece->place.stack);
        pieces.push_back({static_cast<int>(piece->kind), piece->address - begin, piece->bytes,
                          static_cast<int>(piece->of), op(piece->place.op), line(frame)});
      }
      segments.push_back({{"address", fmt::format("{:#x}", begin)},
                          {"bytes", end - begin},
                          {"by_blocks", by_blocks},
                          {"pieces", std::move(pieces)}});
    }
    return {{"segments", std::move(segments)},
            {"left_out", map.left_out},
            {"left_out_bytes", map.left_out_bytes}};
  }
  [[nodiscard]] Json growth(const trace::Growth& growth) {
    if (!growth.known) return {};
    Json json{{"steps", growth.steps},
              {"per_step", std::llround(growth.bytes_per_step)},
              {"lines", Json::array()}};
    for (const trace::GrowthLine& one : growth.lines) {
      if (json["lines"].size() >= kMostPlaces) break;
      json["lines"].push_back({{"op", op(one.op)},
                               {"line", line(one.frame)},
                               {"per_step", std::llround(one.bytes_per_step)},
                               {"bytes", one.bytes},
                               {"blocks", one.count},
                               {"steps", one.steps}});
    }
    return json;
  }
  [[nodiscard]] Json compression(const DeviceReport& device) {
    const auto reason_text = [](const trace::TrailLine& one) {
      return trace::trail_words(trace::raw_trail(one.trail));
    };
    const auto sums = [](const trace::CompressionSums& of) -> Json {
      return {{"encode_ms", static_cast<double>(of.encode_ns) * 1e-6},
              {"restore_ms", static_cast<double>(of.restore_ns) * 1e-6},
              {"saves", of.saved},
              {"saved", of.saved_bytes},
              {"encoded", of.encoded},
              {"source", of.source_bytes},
              {"to", of.payload_bytes},
              {"raws", of.held},
              {"raw", of.held_bytes},
              {"restores", of.restored},
              {"restored", of.restored_bytes}};
    };
    std::map<std::string, std::pair<std::uint64_t, std::int64_t>> reasons;
    std::map<PlaceKey, std::vector<const trace::TrailLine*>> by_place;
    for (const trace::TrailLine& one : device.held) {
      auto& [records, bytes] = reasons[reason_text(one)];
      records += one.records;
      bytes = trace::wrapping_add(bytes, one.bytes);
      by_place[{one.op, one.frame}].push_back(&one);
    }
    Json json{
        {"all", sums(device.compression)}, {"reasons", Json::array()}, {"lines", Json::array()}};
    for (const auto& [why, one] : reasons)
      json["reasons"].push_back({texts_.number(why), one.first, one.second});
    for (const trace::CompressionLine& one : device.compression_lines) {
      if (json["lines"].size() >= kMostPlaces) break;
      Json row = sums(one.sums);
      row["op"] = op(one.op);
      row["line"] = line(one.frame);
      row["why"] = Json::array();  // pairs: reason, bytes
      const auto found = by_place.find({one.op, one.frame});
      if (found != by_place.end())
        for (const trace::TrailLine* const left : found->second)
          row["why"].push_back({texts_.number(reason_text(*left)), left->bytes});
      json["lines"].push_back(std::move(row));
    }
    return json;
  }

  [[nodiscard]] Json figures(const trace::PartFigures& of) {
    return {{"retained", of.retained()},
            {"live", of.live_bytes()},
            {"saved_in_step", of.saved_in_step},
            {"saved", of.saved.saved_bytes},
            {"left", of.left_bytes()},
            {"temporary", of.temporary},
            {"largest", of.largest},
            {"op", texts_.number(std::string(file_.definitions().string(of.largest_place.op)))},
            {"line", line(lines_.frame_of(of.largest_place.stack))}};
  }
  // Rows in the order of the tree; null: the trace tells of no modules.
  [[nodiscard]] Json modules(const DeviceReport& device) {
    const Layers& layers = *report_.layers;
    if (!layers.has_modules) return {};
    const trace::ModuleTable& table = device.layers.modules;
    Json rows = Json::array();
    for (const trace::ModuleRow& row : table.rows) {
      Json one = figures(row.use.all);
      const bool outside = row.part == trace::ModuleTree::kOutside;
      one["path"] = texts_.number(outside ? std::string() : layers.modules.path_of(row.part));
      one["depth"] = row.depth;
      one["own_retained"] = row.use.own.retained();
      one["own_saved_in_step"] = row.use.own.saved_in_step;
      one["own_temporary"] = row.use.own.temporary;
      rows.push_back(std::move(one));
    }
    return {{"rows", std::move(rows)}, {"left_out", table.left_out}};
  }
  // Null: none were asked for.
  [[nodiscard]] Json groups(const DeviceReport& device) {
    const Layers& layers = *report_.layers;
    if (!layers.has_groups) return {};
    Json rows = Json::array();
    for (std::size_t i = 0; i < device.layers.groups.size(); ++i) {
      Json one = figures(device.layers.groups[i].all);
      one["name"] = texts_.number(layers.groups.names()[i]);
      rows.push_back(std::move(one));
    }
    return rows;
  }
  [[nodiscard]] Json left_alone(const DeviceReport& device) {
    Json rows = Json::array();
    for (const trace::LeftLine& left : device.left) {
      if (rows.size() >= kMostPlaces) break;
      rows.push_back({{"why", texts_.number(left.why)},
                      {"line", line(left.frame)},
                      {"tensors", left.tensors},
                      {"bytes", left.bytes}});
    }
    return rows;
  }

  const TraceReport& report_;
  trace::Lines& lines_;
  const TraceReportRequest& request_;
  const trace::File& file_;
  const Lives& lives_;
  Texts texts_;
};

}  // namespace

Json report_json(const TraceReport& report, trace::Lines& lines,
                 const TraceReportRequest& selection) {
  return Writer(report, lines, selection).json();
}

}  // namespace pleat::cli

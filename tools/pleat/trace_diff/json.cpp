// The difference of two traces for a program: the same as its text. Bytes are whole numbers; an
// unknown or absent value is null.
#include <algorithm>

#include "diff.h"
#include "tools/pleat/profile_output.h"
#include "tools/pleat/trace_command/process.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::PlacePair;
using trace::PlaceSum;

Json side_json(const DiffSide& side) {
  const trace::Lives& lives = side.replay->lives();
  return {{"file", side.path},
          {"process", process_json(side.file->process())},
          {"seconds", lives.seconds(lives.last_time_ns)},
          {"steps", lives.counted_steps},
          {"events", lives.told()},
          {"lost_events", lives.lost_events},
          {"incomplete", side.file->incomplete()},
          {"damaged", side.file->problems().all() + lives.problems.all()},
          {"disagreements", lives.disagreements + side.summary.disagreements}};
}

Json figures_json(const std::vector<DiffFigure>& figures) {
  Json json = Json::object();
  for (const DiffFigure& one : figures) {
    std::string name = one.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    json[name + "_bytes"] = {
        {"a", or_null(one.a)}, {"b", or_null(one.b)}, {"change", one.change()}};
  }
  return json;
}

Json moment_json(const DiffSide& side, const DeviceSummary* device) {
  if (device == nullptr || !device->at.taken) return {};
  const trace::Lives& lives = side.replay->lives();
  return {{"event", device->at.event},
          {"seconds", lives.seconds(device->at.time_ns)},
          {"step", or_null(lives.step_number(device->at.step))},
          {"phase", trace::phase_name(device->at.phase)}};
}

Json place_json(const std::optional<PlaceSum>& sum, bool by_line) {
  if (!sum) return {};
  Json json;
  if (by_line)
    json["line"] = sum->place.file.empty() ? Json() : Json(sum->place.text(/*whole_path=*/true));
  json["bytes"] = sum->all();
  json["blocks"] = sum->blocks;
  Json classes = Json::object();
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    if (sum->bytes[i] != 0) classes[std::string(trace::kClassNames[i])] = sum->bytes[i];
  json["classes"] = std::move(classes);
  return json;
}

Json row_json(const PlacePair& pair, bool by_line) {
  const PlaceSum& known = pair.b ? *pair.b : *pair.a;
  return {{"op", known.place.op.empty() ? Json() : Json(known.place.op)},
          {"change_bytes", pair.change()},
          {"a", place_json(pair.a, by_line)},
          {"b", place_json(pair.b, by_line)}};
}

// Growing places come first, then shrinking ones; as many of both.
Json places_json(const std::vector<PlacePair>& pairs, bool by_line, std::size_t most) {
  Json grew = Json::array();
  Json shrank = Json::array();
  for (auto pair = pairs.begin(); pair != pairs.end() && pair->change() > 0; ++pair)
    if (grew.size() < most) grew.push_back(row_json(*pair, by_line));
  for (auto pair = pairs.rbegin(); pair != pairs.rend() && pair->change() < 0; ++pair)
    if (shrank.size() < most) shrank.push_back(row_json(*pair, by_line));
  return {{"grew", std::move(grew)}, {"shrank", std::move(shrank)}};
}

}  // namespace

bool put_diff_json(const TraceDiff& diff, const TraceDiffRequest& request) {
  Json json;
  json["a"] = side_json(diff.a);
  json["b"] = side_json(diff.b);
  json["devices"] = Json::array();
  for (const DeviceDiff& device : diff.devices) {
    Json row;
    row["device"] = device_text(device.device);
    row["moment"] = {{"a", moment_json(diff.a, device.a)}, {"b", moment_json(diff.b, device.b)}};
    row["peaks"] = figures_json(peak_figures(diff, device));
    row["made_of"] = figures_json(moment_figures(device));
    row["saved"] = figures_json(saved_figures(device));
    row["listed_bytes"] = {
        {"a", device.bytes_a}, {"b", device.bytes_b}, {"change", device.bytes_b - device.bytes_a}};
    row["by_line"] = places_json(device.by_line, true, request.top);
    row["by_operator"] = places_json(device.by_operator, false, request.top);
    json["devices"].push_back(std::move(row));
  }
  return put_json(json);
}

}  // namespace pleat::cli

#include "layers.h"

#include <fmt/format.h>

#include "tools/pleat/text_table.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::ModuleTree;
using trace::PartFigures;
using trace::PartUse;

std::string size_or_none(std::int64_t bytes) { return bytes == 0 ? "" : size_text(bytes); }

std::string place_text(const trace::Origin& place, const trace::Definitions& definitions,
                       trace::Lines& lines) {
  const std::uint32_t frame = lines.frame_of(place.stack);
  const std::string op(definitions.string(place.op));
  if (frame == 0) return bridge::printable(op, kMostWord);
  return bridge::printable(op + (op.empty() ? "" : ", ") + lines.text(frame), kMostWord);
}

class Tables {
 public:
  Tables(const TraceSummary& summary, const DeviceSummary& device, trace::Lines& lines)
      : definitions_(summary.replay->file().definitions()),
        layers_(*summary.layers),
        device_(device),
        lines_(lines) {}

  [[nodiscard]] std::string modules() const {
    TextTable table = with_columns({{"for backward"}, {"own", Align::kRight, false, 2}},
                                   {"module", Align::kLeft, true});
    for (const trace::ModuleRow& row : device_.layers.modules.rows)
      add(table, {size_or_none(row.use.all.retained()), size_or_none(row.use.own.retained())},
          row.use.all, name_of(row));
    return table.text(terminal_columns());
  }

  [[nodiscard]] std::string groups() const {
    const std::int64_t live = device_.at.totals.live();
    TextTable table =
        with_columns({{"live"}, {"of live", Align::kRight, false, 3}, {"for backward"}},
                     {"group", Align::kLeft, true});
    for (std::size_t i = 0; i < device_.layers.groups.size(); ++i) {
      const PartFigures& of = device_.layers.groups[i].all;
      add(table,
          {size_or_none(of.live_bytes()),
           of.live_bytes() == 0 ? "" : share_of(of.live_bytes(), live),
           size_or_none(of.retained())},
          of, bridge::printable(layers_.groups.names()[i], kMostWord));
    }
    return table.text(terminal_columns());
  }

 private:
  static TextTable with_columns(std::vector<Column> first, Column name) {
    first.insert(first.end(), {{"saved a step"},
                               {"left of it", Align::kRight, false, 1},
                               {"temporary"},
                               {"largest", Align::kRight, false, 4},
                               std::move(name),
                               {"largest of", Align::kLeft, true, 5}});
    return TextTable(std::move(first));
  }
  // Below the module that it is a part of, as in a tree.
  [[nodiscard]] std::string name_of(const trace::ModuleRow& row) const {
    if (row.part == ModuleTree::kOutside) return "(in no module)";
    return std::string(2 * (row.depth - 1), ' ') +
           bridge::printable(layers_.modules.name_of(row.part), kMostWord);
  }
  void add(TextTable& table, std::vector<std::string> row, const PartFigures& of,
           std::string name) const {
    row.push_back(size_or_none(of.saved_in_step));
    row.push_back(share_of(of.left_bytes(), of.saved.saved_bytes));
    row.push_back(size_or_none(of.temporary));
    row.push_back(size_or_none(of.largest));
    row.push_back(std::move(name));
    row.push_back(place_text(of.largest_place, definitions_, lines_));
    table.add(std::move(row));
  }

  const trace::Definitions& definitions_;
  const Layers& layers_;
  const DeviceSummary& device_;
  trace::Lines& lines_;
};

}  // namespace

std::string layers_text(const TraceSummary& summary, const DeviceSummary& device,
                        trace::Lines& lines, const TraceSummaryRequest& request) {
  const Tables tables(summary, device, lines);
  const std::string name = device_text(device.lives->device);
  std::string text;
  const trace::ModuleTable& modules = device.layers.modules;
  if (!modules.rows.empty()) {
    text += fmt::format("\n{}, by module\n{}", name, tables.modules());
    text += more_text(modules.rows.size() + modules.left_out, modules.rows.size());
  } else if (request.depth != 0 && !summary.layers->has_modules) {
    text += fmt::format("\n{}, by module\n  none was recorded: modules:1 records them\n", name);
  }
  if (!device.layers.groups.empty())
    text += fmt::format("\n{}, by group\n{}", name, tables.groups());
  return text;
}

// ---- JSON ---------------------------------------------------------------------------------------

namespace {

Json figures(const PartFigures& of, const trace::Definitions& definitions, trace::Lines& lines) {
  Json json;
  json["retained_bytes"] = of.retained();
  json["retained_raw_bytes"] = of.live[static_cast<std::size_t>(trace::ByteClass::kSavedRaw)];
  json["live_bytes"] = of.live_bytes();
  json["saved_in_step_bytes"] = of.saved_in_step;
  json["saved_bytes"] = of.saved.saved_bytes;
  json["source_bytes"] = of.saved.source_bytes;
  json["payload_bytes"] = of.saved.payload_bytes;
  json["restored_bytes"] = of.saved.restored_bytes;
  json["left_bytes"] = of.left_bytes();
  json["temporary_bytes"] = of.temporary;
  const std::uint32_t frame = lines.frame_of(of.largest_place.stack);
  const std::uint32_t op = of.largest_place.op;
  json["largest"] = {{"bytes", of.largest},
                     {"op", op == 0 ? Json() : Json(std::string(definitions.string(op)))},
                     {"line", frame == 0 ? Json() : Json(lines.long_text(frame))}};
  return json;
}

}  // namespace

void put_layers(Json& json, const TraceSummary& summary, const DeviceSummary& device,
                trace::Lines& lines) {
  const trace::Definitions& definitions = summary.replay->file().definitions();
  const Layers& layers = *summary.layers;
  json["modules"] = layers.has_modules ? Json::array() : Json();
  for (const trace::ModuleRow& row : device.layers.modules.rows) {
    Json one = figures(row.use.all, definitions, lines);
    one["module"] =
        row.part == ModuleTree::kOutside ? Json() : Json(layers.modules.path_of(row.part));
    one["depth"] = row.depth;
    one["own"] = figures(row.use.own, definitions, lines);
    json["modules"].push_back(std::move(one));
  }
  json["groups"] = layers.has_groups ? Json::array() : Json();
  for (std::size_t i = 0; i < device.layers.groups.size(); ++i) {
    Json one = figures(device.layers.groups[i].all, definitions, lines);
    one["group"] = layers.groups.names()[i];
    json["groups"].push_back(std::move(one));
  }
}

}  // namespace pleat::cli

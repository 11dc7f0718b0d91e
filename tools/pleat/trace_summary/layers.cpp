// Modules and groups of a device, in a summary.
#include <fmt/format.h>

#include "summary.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::ModuleTree;
using trace::PartFigures;

class LayerTables {
 public:
  LayerTables(const TraceSummary& summary, const DeviceSummary& device, trace::Lines& lines)
      : definitions_(summary.replay->file().definitions()),
        layers_(*summary.layers),
        device_(device),
        lines_(lines),
        places_(definitions_, lines) {}

  [[nodiscard]] Table modules() const {
    Table table = with_columns({figure_column("for backward"), figure_column("own", "own", 2)},
                               name_column("module", "module"));
    for (const trace::ModuleRow& row : device_.layers.modules.rows) {
      const PartFigures& own = row.use.own;
      add(table,
          {size_or_none(row.use.all.retained()), {values_of(own), size_or_none(own.retained())}},
          row.use.all, name_of(row), {{"depth", row.depth}});
    }
    return table;
  }

  [[nodiscard]] Table groups() const {
    const std::int64_t live = device_.at.totals.live();
    Table table = with_columns(
        {figure_column("live"), figure_column("of live", "", 3), figure_column("for backward")},
        name_column("group", "group"));
    for (std::size_t i = 0; i < device_.layers.groups.size(); ++i) {
      const PartFigures& of = device_.layers.groups[i].all;
      const std::string& name = layers_.groups.names()[i];
      add(table,
          {size_or_none(of.live_bytes()),
           of.live_bytes() == 0 ? "" : share_of(of.live_bytes(), live),
           size_or_none(of.retained())},
          of, {name, bridge::printable(name, kMostWord)}, Json::object());
    }
    return table;
  }

 private:
  static Table with_columns(std::vector<Column> first, Column name) {
    first.insert(first.end(), {figure_column("saved a step"), figure_column("left of it", "", 1),
                               figure_column("temporary"), figure_column("largest", "", 4),
                               std::move(name), name_column("largest of", "", 5), json_columns()});
    return Table(std::move(first));
  }
  // Below the module that it is a part of, as in a tree.
  [[nodiscard]] Cell name_of(const trace::ModuleRow& row) const {
    if (row.part == ModuleTree::kOutside) return {Json(), "(in no module)"};
    return {layers_.modules.path_of(row.part),
            std::string(2 * (row.depth - 1), ' ') +
                bridge::printable(layers_.modules.name_of(row.part), kMostWord)};
  }
  void add(Table& table, std::vector<Cell> row, const PartFigures& of, Cell name,
           Json values) const {
    values.update(values_of(of));
    row.emplace_back(size_or_none(of.saved_in_step));
    row.emplace_back(share_of(of.left_bytes(), of.saved.saved_bytes));
    row.emplace_back(size_or_none(of.temporary));
    row.emplace_back(size_or_none(of.largest));
    row.push_back(std::move(name));
    row.emplace_back(largest_text(of));
    row.emplace_back(std::move(values), "");
    table.add(std::move(row));
  }
  [[nodiscard]] std::string largest_text(const PartFigures& of) const {
    const std::uint32_t frame = lines_.frame_of(of.largest_place.stack);
    std::string text(definitions_.string(of.largest_place.op));
    if (frame != 0) text += (text.empty() ? "" : ", ") + lines_.text(frame);
    return bridge::printable(text, kMostWord);
  }
  [[nodiscard]] Json values_of(const PartFigures& of) const {
    return {{"retained_bytes", of.retained()},
            {"retained_raw_bytes", of.live[static_cast<std::size_t>(trace::ByteClass::kSavedRaw)]},
            {"live_bytes", of.live_bytes()},
            {"saved_in_step_bytes", of.saved_in_step},
            {"saved_bytes", of.saved.saved_bytes},
            {"source_bytes", of.saved.source_bytes},
            {"payload_bytes", of.saved.payload_bytes},
            {"restored_bytes", of.saved.restored_bytes},
            {"left_bytes", of.left_bytes()},
            {"temporary_bytes", of.temporary},
            {"largest",
             {{"bytes", of.largest},
              {"op", places_.op(of.largest_place.op).json},
              {"line", places_.line(lines_.frame_of(of.largest_place.stack)).json}}}};
  }

  const trace::Definitions& definitions_;
  const Layers& layers_;
  const DeviceSummary& device_;
  trace::Lines& lines_;
  PlaceCells places_;
};

}  // namespace

void put_layers(Section& to, const TraceSummary& summary, const DeviceSummary& device,
                trace::Lines& lines, const TraceSummaryRequest& request) {
  const LayerTables tables(summary, device, lines);
  const std::string name = device_text(device.lives->device);
  const trace::ModuleTable& modules = device.layers.modules;
  put_table(to, "modules", title_text(name, "by module"), tables.modules(),
            modules.rows.size() + modules.left_out);
  if (!summary.layers->has_modules) to.value("modules", nullptr);
  if (modules.rows.empty() && request.depth != 0 && !summary.layers->has_modules)
    to.text(title_text(name, "by module") + "  none was recorded: modules:1 records them\n");
  to.table("groups", title_text(name, "by group"), tables.groups());
  if (!summary.layers->has_groups) to.value("groups", nullptr);
}

}  // namespace pleat::cli

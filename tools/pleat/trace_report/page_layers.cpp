#include "page_layers.h"

#include "watch.h"

namespace pleat::cli {

using trace::ModuleTree;
using trace::PartFigures;

Json LayersJson::figures(const PartFigures& of) const {
  return {{"retained", of.retained()},
          {"live", of.live_bytes()},
          {"saved_in_step", of.saved_in_step},
          {"saved", of.saved.saved_bytes},
          {"left", of.left_bytes()},
          {"temporary", of.temporary},
          {"largest", of.largest},
          {"op", number_(std::string(definitions_.string(of.largest_place.op)))},
          {"line", line(lines_.frame_of(of.largest_place.stack))}};
}

Json LayersJson::modules(const DeviceReport& device) const {
  if (!layers_.has_modules) return {};
  const trace::ModuleTable& table = device.layers.modules;
  Json rows = Json::array();
  for (const trace::ModuleRow& row : table.rows) {
    Json one = figures(row.use.all);
    const bool outside = row.part == ModuleTree::kOutside;
    one["path"] = number_(outside ? std::string() : layers_.modules.path_of(row.part));
    one["depth"] = row.depth;
    one["own_retained"] = row.use.own.retained();
    one["own_saved_in_step"] = row.use.own.saved_in_step;
    one["own_temporary"] = row.use.own.temporary;
    rows.push_back(std::move(one));
  }
  return {{"rows", std::move(rows)}, {"left_out", table.left_out}};
}

Json LayersJson::groups(const DeviceReport& device) const {
  if (!layers_.has_groups) return {};
  Json rows = Json::array();
  for (std::size_t i = 0; i < device.layers.groups.size(); ++i) {
    Json one = figures(device.layers.groups[i].all);
    one["name"] = number_(layers_.groups.names()[i]);
    rows.push_back(std::move(one));
  }
  return rows;
}

Json LayersJson::left_alone(const DeviceReport& device) const {
  Json rows = Json::array();
  for (const trace::LeftLine& left : device.left) {
    if (rows.size() >= kMostPlaces) break;
    rows.push_back({{"why", number_(left.why)},
                    {"line", line(left.frame)},
                    {"tensors", left.tensors},
                    {"bytes", left.bytes}});
  }
  return rows;
}

}  // namespace pleat::cli

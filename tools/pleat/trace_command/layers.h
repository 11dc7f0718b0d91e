// Modules and groups of a program, as summaries and reports tell of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "request.h"
#include "tools/pleat/trace/groups.h"
#include "tools/pleat/trace/modules.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::cli {

// Of all devices.
struct Layers {
  trace::ModuleTree modules;
  trace::Groups groups;
  bool has_modules = false;  // else the trace tells of none
  bool has_groups = false;   // else the user has named none

  // All must outlive it.
  Layers(const trace::Replay& replay, trace::Lines& lines, const TraceSelection& selection)
      : modules(replay.file().definitions()),
        groups(selection.groups, replay.file().definitions(), lines),
        has_modules(selection.modules && replay.lives().has_modules),
        has_groups(!selection.groups.empty()) {}
};

struct DeviceLayers {
  trace::ModuleTable modules;          // empty: not recorded
  std::vector<trace::PartUse> groups;  // as Groups::names(); empty: none were asked for
};

// Follows the memory of a device's layers, event by event.
class LayerWatch {
 public:
  LayerWatch(int device, Layers& layers) : layers_(layers) {
    if (layers.has_modules) modules_.emplace(device, layers.modules);
    if (layers.has_groups) groups_.emplace(device, layers.groups);
  }
  void take(const PleatTraceEvent& event, const trace::Ledger& ledger) {
    if (modules_) modules_->take(event, ledger);
    if (groups_) groups_->take(event, ledger);
  }
  // Of the moment's entries those that the filter lets through.
  void take_moment(const std::vector<trace::LiveEntry>& live, const trace::Replay& replay);
  // `most`: rows of modules; `depth`: as module_table() has it.
  [[nodiscard]] DeviceLayers layers(std::uint32_t depth, std::size_t most) const;

 private:
  Layers& layers_;
  std::optional<trace::PartBook> modules_, groups_;
};

inline void LayerWatch::take_moment(const std::vector<trace::LiveEntry>& live,
                                    const trace::Replay& replay) {
  for (const trace::LiveEntry& entry : live) {
    if (!passes(entry, replay)) continue;
    if (modules_) modules_->take_moment(entry);
    if (groups_) groups_->take_moment(entry);
  }
}

inline DeviceLayers LayerWatch::layers(std::uint32_t depth, std::size_t most) const {
  DeviceLayers layers;
  if (modules_) layers.modules = module_table(layers_.modules, modules_->uses(), depth, most);
  if (groups_) {
    layers.groups = groups_->uses();
    layers.groups.resize(layers_.groups.names().size());
  }
  return layers;
}

}  // namespace pleat::cli

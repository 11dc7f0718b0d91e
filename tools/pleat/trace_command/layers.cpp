#include "layers.h"

namespace pleat::cli {

void LayerWatch::take_moment(const std::vector<trace::LiveEntry>& live,
                             const trace::Replay& replay) {
  for (const trace::LiveEntry& entry : live) {
    if (!passes(entry, replay)) continue;
    if (modules_) modules_->take_moment(entry);
    if (groups_) groups_->take_moment(entry);
  }
}

DeviceLayers LayerWatch::layers(std::uint32_t depth, std::size_t most) const {
  DeviceLayers layers;
  if (modules_) layers.modules = module_table(layers_.modules, modules_->uses(), depth, most);
  if (groups_) {
    layers.groups = groups_->uses();
    layers.groups.resize(layers_.groups.names().size());
  }
  return layers;
}

}  // namespace pleat::cli

#include "modules.h"

#include <algorithm>
#include <tuple>

namespace pleat::trace {

std::uint32_t ModuleTree::part_of(const Origin& place) {
  if (place.module == 0) return kOutside;
  if (const auto known = known_.find(place.module); known != known_.end()) return known->second;
  if (known_.size() >= kMostModules) return kOutside;
  std::string_view rest = definitions_.string(place.module);
  std::uint32_t part = kOutside;
  while (true) {
    const std::uint32_t depth = nodes_[part].depth + 1;
    const std::size_t dot = depth == kMostDepth ? std::string_view::npos : rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const auto [child, is_new] =
        children_.try_emplace({part, name}, static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) {
      if (nodes_.size() >= kMostModules) {
        children_.erase(child);
        part = kOutside;
        break;
      }
      nodes_.push_back({part == kOutside ? kNone : part, depth, name});
    }
    part = child->second;
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  return known_[place.module] = part;
}

std::string ModuleTree::path_of(std::uint32_t part) const {
  std::string path(nodes_[part].name);
  for (part = nodes_[part].parent; part != kNone; part = nodes_[part].parent)
    path = std::string(nodes_[part].name) + '.' + path;
  return path;
}

namespace {

// What a person looks for first; the larger counts.
auto weight(const PartFigures& of) {
  return std::tuple(of.retained(), of.saved_in_step, of.temporary, of.largest);
}

class TableMaker {
 public:
  TableMaker(const ModuleTree& tree, const std::vector<PartUse>& uses, std::uint32_t depth)
      : tree_(tree), uses_(uses), depth_(depth), children_(uses.size()) {}

  ModuleTable table(std::size_t most) {
    const std::vector<std::uint32_t> shown = chosen(most);
    std::vector<bool> is_shown(uses_.size());
    for (const std::uint32_t part : shown) is_shown[part] = true;
    std::vector<std::uint32_t> roots;
    for (const std::uint32_t part : shown) {
      const std::uint32_t parent = tree_.parent_of(part);
      if (part == ModuleTree::kOutside) continue;
      (parent != kNone && is_shown[parent] ? children_[parent] : roots).push_back(part);
    }
    for (const std::uint32_t root : roots) add(root);
    if (!is_shown.empty() && is_shown[ModuleTree::kOutside]) add(ModuleTree::kOutside);
    return std::move(table_);
  }

 private:
  std::vector<std::uint32_t> chosen(std::size_t most) {
    std::vector<std::uint32_t> parts;
    for (std::uint32_t part = 0; part < uses_.size(); ++part)
      if (!uses_[part].all.empty() && (depth_ == 0 || tree_.depth_of(part) <= depth_))
        parts.push_back(part);
    // A module is never smaller than its parts, and comes before those that are as large.
    std::stable_sort(parts.begin(), parts.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(weight(uses_[b].all), tree_.depth_of(a)) <
             std::tuple(weight(uses_[a].all), tree_.depth_of(b));
    });
    table_.left_out = parts.size() - std::min(parts.size(), most);
    parts.resize(parts.size() - table_.left_out);
    return parts;
  }
  void add(std::uint32_t part) {
    ModuleRow row{part, tree_.depth_of(part), uses_[part]};
    if (depth_ != 0 && row.depth == depth_) row.use.own = row.use.all;
    table_.rows.push_back(row);
    for (const std::uint32_t child : children_[part]) add(child);
  }

  const ModuleTree& tree_;
  const std::vector<PartUse>& uses_;
  const std::uint32_t depth_;
  std::vector<std::vector<std::uint32_t>> children_;  // that are shown
  ModuleTable table_;
};

}  // namespace

ModuleTable module_table(const ModuleTree& tree, const std::vector<PartUse>& uses,
                         std::uint32_t depth, std::size_t most) {
  return TableMaker(tree, uses, depth).table(most);
}

}  // namespace pleat::trace

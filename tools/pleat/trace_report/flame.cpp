#include "flame.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "interpose/trace/wrapping.h"

namespace pleat::cli {
namespace {

using Kind = FlameNode::Kind;

// The whole tree, as entries come.
class FlameTree {
 public:
  FlameTree(const trace::Definitions& definitions, trace::Lines& lines)
      : definitions_(definitions), lines_(lines) {
    nodes_.push_back({});
  }

  void add(const trace::LiveEntry& entry) {
    if (entry.bytes <= 0) return;
    const trace::Origin place = entry.place();
    path_.clear();
    definitions_.walk(place.stack, [&](std::uint32_t frame) {
      path_.push_back(lines_.first_like(frame));
      return true;
    });
    std::uint32_t at = 0;
    count(at, entry.bytes);
    for (auto frame = path_.rbegin(); frame != path_.rend(); ++frame)
      count(at = child(at, Kind::kFrame, *frame, {}), entry.bytes);
    count(child(at, Kind::kOperator, place.op, entry.of), entry.bytes);
  }
  [[nodiscard]] const std::vector<FlameNode>& nodes() const noexcept { return nodes_; }

 private:
  struct Key {
    std::uint64_t parent_and_id, kind_and_class;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return (key.parent_and_id * 0x9e3779b97f4a7c15u) ^ (key.kind_and_class << 7);
    }
  };
  void count(std::uint32_t node, std::int64_t bytes) {
    nodes_[node].bytes = trace::wrapping_add(nodes_[node].bytes, bytes);
  }
  std::uint32_t child(std::uint32_t parent, Kind kind, std::uint32_t id, trace::ByteClass of) {
    const Key key{std::uint64_t{parent} << 32 | id,
                  static_cast<std::uint64_t>(kind) << 8 | static_cast<std::uint64_t>(of)};
    const auto [it, is_new] = children_.try_emplace(key, static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({kind, parent, id, of, 0});
    return it->second;
  }

  const trace::Definitions& definitions_;
  trace::Lines& lines_;
  std::vector<FlameNode> nodes_;
  std::unordered_map<Key, std::uint32_t, Hash> children_;
  std::vector<std::uint32_t> path_;
};

// How many parents have children among those that are dropped, order[kept...].
std::size_t parents_of_dropped(const std::vector<FlameNode>& nodes,
                               const std::vector<std::uint32_t>& order, std::size_t kept,
                               std::vector<bool>& is_kept) {
  is_kept.assign(nodes.size(), false);
  for (std::size_t i = 0; i < kept; ++i) is_kept[order[i]] = true;
  std::vector<bool> counted(nodes.size(), false);
  std::size_t parents = 0;
  for (std::size_t i = kept; i < order.size(); ++i) {
    const std::uint32_t parent = nodes[order[i]].parent;
    if (!is_kept[parent] || counted[parent]) continue;
    counted[parent] = true;
    ++parents;
  }
  return parents;
}

}  // namespace

std::vector<FlameNode> flame_of(const std::vector<trace::LiveEntry>& live,
                                const trace::Definitions& definitions, trace::Lines& lines,
                                std::size_t most) {
  FlameTree tree(definitions, lines);
  for (const trace::LiveEntry& entry : live) tree.add(entry);
  const std::vector<FlameNode>& nodes = tree.nodes();
  // A parent is as large as its child, or larger, and was made before it: it stands before it.
  std::vector<std::uint32_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return nodes[a].bytes > nodes[b].bytes;
  });
  std::vector<bool> is_kept;
  std::size_t kept = std::min(order.size(), most);
  while (true) {
    const std::size_t all = kept + parents_of_dropped(nodes, order, kept, is_kept);
    if (all <= most || kept <= 1) break;
    kept -= std::min(kept - 1, all - most);
  }
  std::vector<FlameNode> shown;
  std::vector<std::uint32_t> place(nodes.size(), 0);
  std::vector<std::uint32_t> others(nodes.size(), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const FlameNode& node = nodes[order[i]];
    const std::uint32_t parent = place[node.parent];
    if (is_kept[order[i]]) {
      place[order[i]] = static_cast<std::uint32_t>(shown.size());
      shown.push_back({node.kind, parent, node.id, node.of, node.bytes});
    } else if (is_kept[node.parent]) {
      std::uint32_t& other = others[node.parent];
      if (other == 0) {
        other = static_cast<std::uint32_t>(shown.size());
        shown.push_back({Kind::kOther, parent, 0, node.of, 0});
      }
      shown[other].bytes = trace::wrapping_add(shown[other].bytes, node.bytes);
    }
  }
  return shown;
}

}  // namespace pleat::cli

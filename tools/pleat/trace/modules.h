// The modules of a program as a tree, by their paths: "GPT.h.0" is a part of "GPT.h", whether
// anybody ever entered that or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parts.h"

namespace pleat::trace {

class ModuleTree final : public Parts {
 public:
  static constexpr std::uint32_t kOutside = 0;           // what is in no module
  static constexpr std::size_t kMostModules = 1u << 16;  // all others are counted as outside
  static constexpr std::uint32_t kMostDepth = 32;        // what is deeper is one name

  explicit ModuleTree(const Definitions& definitions) : definitions_(definitions), nodes_(1) {}

  [[nodiscard]] std::uint32_t part_of(const Origin& place) override;
  [[nodiscard]] std::uint32_t parent_of(std::uint32_t part) const override {
    return nodes_[part].parent;
  }
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  // 1: the outermost; 0: outside of all.
  [[nodiscard]] std::uint32_t depth_of(std::uint32_t part) const { return nodes_[part].depth; }
  [[nodiscard]] std::string path_of(std::uint32_t part) const;
  // The last part of its path.
  [[nodiscard]] std::string_view name_of(std::uint32_t part) const { return nodes_[part].name; }

 private:
  struct Node {
    std::uint32_t parent = kNone;
    std::uint32_t depth = 0;
    std::string_view name;  // of the last part of its path
  };

  const Definitions& definitions_;
  std::vector<Node> nodes_;
  std::map<std::pair<std::uint32_t, std::string_view>, std::uint32_t> children_;
  std::unordered_map<std::uint32_t, std::uint32_t> known_;  // by string
};

// A line of a table of modules.
struct ModuleRow {
  std::uint32_t part = 0;
  std::uint32_t depth = 0;
  PartUse use;  // of what is at the greatest depth that is shown, all is its own
};
struct ModuleTable {
  std::vector<ModuleRow> rows;
  std::size_t left_out = 0;  // rows that had no room
};

// At most `most` rows, in the order of the tree: a module before its parts, of these the largest
// first; what is outside of all comes last. Chosen are those that retain most; modules that have
// nothing are left out. `depth`: what is deeper has no row; 0: all have.
[[nodiscard]] ModuleTable module_table(const ModuleTree& tree, const std::vector<PartUse>& uses,
                                       std::uint32_t depth, std::size_t most);

}  // namespace pleat::trace

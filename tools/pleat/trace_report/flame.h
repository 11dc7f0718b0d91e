// Live bytes by the path of calls that they were made for: the tree of a flame graph. Below the
// frames of a path stands the operator, once for each class of its bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/pleat/trace/definitions.h"
#include "tools/pleat/trace/ledger.h"
#include "tools/pleat/trace/lines.h"

namespace pleat::cli {

struct FlameNode {
  enum class Kind : std::uint8_t {
    kRoot,
    kFrame,     // `id` is a frame
    kOperator,  // `id` is a string, 0: none is known; all bytes are of the class `of`
    kOther,     // frames without a cell below their parent
  } kind = Kind::kRoot;
  std::uint32_t parent = 0;  // its index; smaller than its own, but for the root
  std::uint32_t id = 0;
  trace::ByteClass of = trace::ByteClass::kUnknown;
  std::int64_t bytes = 0;  // with all below
};

// At most `most` nodes, the largest; the root comes first, a parent before its children.
[[nodiscard]] std::vector<FlameNode> flame_of(const std::vector<trace::LiveEntry>& live,
                                              const trace::Definitions& definitions,
                                              trace::Lines& lines, std::size_t most);

}  // namespace pleat::cli

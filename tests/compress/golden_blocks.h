// Golden cases of block payloads: several spans, gaps, exact lines, tiles, in place. Their lines
// follow those of the span payloads in golden.txt.
#pragma once

#include <string>
#include <vector>

#include "compress/block/block_plan.h"

namespace pleat::compress::golden {

struct BlockCase {
  std::string name;
  block::BlockSpec spec;
  bool copy_raw = false;
  bool in_place = false;
  std::vector<unsigned char> source;
  std::vector<block::ByteRange> ranges;
};
[[nodiscard]] std::vector<BlockCase> block_cases();

// What became of a case; no bytes where it was refused.
struct BlockRun {
  std::vector<unsigned char> payload;
  std::vector<unsigned char> restored;
};
[[nodiscard]] BlockRun library_run(const BlockCase& input);

// A line per case, as lines_of(); no device has blocks.
[[nodiscard]] std::vector<std::string> block_lines();

}  // namespace pleat::compress::golden

#include "growth.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "interpose/trace/wrapping.h"

namespace pleat::trace {

Growth find_growth(const std::vector<LiveEntry>& live, const Lives& lives, Lines& lines) {
  Growth growth;
  if (lives.steps.size() < kLeastSteps) return growth;
  const std::size_t last = lives.steps.size() - 3;  // two steps later there still is one
  growth.known = true;
  growth.steps = last - kFirstGrowthStep + 1;
  std::unordered_map<std::uint64_t, std::size_t> found;
  std::vector<std::unordered_set<std::uint32_t>> steps;
  std::vector<GrowthLine> all;
  for (const LiveEntry& entry : live) {
    if (entry.step == kNoStep || entry.step < kFirstGrowthStep || entry.step > last) continue;
    const Origin place = entry.place();
    const std::uint32_t frame = lines.frame_of(place.stack);
    const auto [it, is_new] = found.try_emplace(std::uint64_t{place.op} << 32 | frame, all.size());
    if (is_new) {
      all.push_back({.op = place.op, .frame = frame});
      steps.emplace_back();
    }
    GrowthLine& line = all[it->second];
    line.bytes = wrapping_add(line.bytes, entry.bytes);
    ++line.count;
    steps[it->second].insert(entry.step);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    GrowthLine& line = all[i];
    line.steps = static_cast<std::uint32_t>(steps[i].size());
    line.bytes_per_step = static_cast<double>(line.bytes) / static_cast<double>(growth.steps);
    if (line.steps * std::size_t{2} < growth.steps) continue;
    growth.bytes_per_step += line.bytes_per_step;
    growth.lines.push_back(line);
  }
  std::sort(growth.lines.begin(), growth.lines.end(), [](const GrowthLine& a, const GrowthLine& b) {
    return std::tie(b.bytes, a.op, a.frame) < std::tie(a.bytes, b.op, b.frame);
  });
  return growth;
}

}  // namespace pleat::trace

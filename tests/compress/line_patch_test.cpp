#include "compress/lines/line_patch.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "line_support.h"

namespace pleat::compress::block {
namespace {

using compress::ElementType;
using testing::noise;

// What a codec at a plan's width and the patch give back: the exact lines, and noise elsewhere.
std::vector<float> patched(const std::vector<float>& values, Look look, std::uint32_t length,
                           const LinePlan& plan) {
  std::vector<std::byte> patch(
      patch_bytes(plan, {look, length}, values.size(), ElementType::kFloat32));
  write_patch(plan, {look, length}, values.data(), values.size(), ElementType::kFloat32,
              patch.data());
  std::vector<float> restored(values.size(), 1e9f);
  EXPECT_EQ(check_patch(patch.data(), patch.size(), values.size() * sizeof(float)), patch.size());
  apply_patch(patch.data(), restored.data(), restored.size() * sizeof(float));
  return restored;
}

TEST(Patch, BringsBackTheExactLinesAndNothingElse) {
  auto values = noise(50 * 20);
  const LinePlan p{{{0, 2, 0}, {5, 1, 1}, {17, 3, 0}}};
  for (const Look look : {Look::kRows, Look::kColumns}) {
    const auto restored = patched(values, look, 20, p);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t line = look == Look::kRows ? i / 20 : i % 20;
      const bool exact = line < 2 || (line >= 17 && line < 20);
      EXPECT_EQ(restored[i], line == 5 ? 0 : exact ? values[i] : 1e9f) << i;
    }
  }
}

TEST(Patch, DamageIsSeen) {
  const auto values = noise(50 * 20);
  const LinePlan p{{{1, 2, 0}, {5, 1, 1}}};
  const Lines lines{Look::kColumns, 20};
  std::vector<std::byte> patch(patch_bytes(p, lines, values.size(), ElementType::kFloat32));
  write_patch(p, lines, values.data(), values.size(), ElementType::kFloat32, patch.data());
  const std::size_t target = values.size() * sizeof(float);
  EXPECT_EQ(check_patch(patch.data(), patch.size() + 64, target), patch.size());
  EXPECT_EQ(check_patch(patch.data(), patch.size() - 1, target), 0u);
  EXPECT_EQ(check_patch(patch.data(), patch.size(), target + 4), 0u);
  EXPECT_EQ(check_patch(patch.data(), patch.size(), 0), 0u);
  std::mt19937 generator(2);
  std::vector<float> out(values.size());
  for (int i = 0; i < 20000; ++i) {  // under the sanitizers: no write outside
    auto damaged = patch;
    for (int n = 0; n < 2; ++n) {
      damaged[generator() % 48] = static_cast<std::byte>(generator());
    }
    if (check_patch(damaged.data(), damaged.size(), target) != 0) {
      apply_patch(damaged.data(), out.data(), target);
    }
  }
}

}  // namespace
}  // namespace pleat::compress::block

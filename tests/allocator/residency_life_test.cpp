// Residency's whole life cycle, typed over the memories there are.
#include "residency_life.h"

#include <gtest/gtest.h>

#include "test_support.h"

namespace pleat::allocator::testing {
namespace {

template <class World>
class ResidencyLifeTest : public ::testing::Test {};
using Worlds = ::testing::Types<HostWorld, LateWorld>;
TYPED_TEST_SUITE(ResidencyLifeTest, Worlds);

TYPED_TEST(ResidencyLifeTest, BytesOrderAndBooksAreRightInEveryRun) {
  PLEAT_SEED(first);
  const int seeds = scaled(TypeParam::kLate ? 2000 : 300);
  for (int i = 0; i < seeds; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    ResidencyLife<TypeParam> life(seed);
    for (const std::string& problem : life.run(80))
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    if (this->HasFailure()) return;
  }
}

}  // namespace
}  // namespace pleat::allocator::testing

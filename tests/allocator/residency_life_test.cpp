// Residency's whole life cycle, typed over the memories.
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
  std::uint64_t sent = 0, brought = 0, no_room = 0, refused = 0;
  for (int i = 0; i < seeds; ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    ResidencyLife<TypeParam> life(seed);
    for (const std::string& problem : life.run(80))
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    if (this->HasFailure()) return;
    const TierCounters& tier = life.tier_counters();
    sent += tier.sent;
    brought += tier.brought;
    no_room += tier.no_room;
    refused += tier.refused;
  }
  if (!TypeParam::kLate) return;
  for (const std::uint64_t count : {sent, brought, no_room, refused}) EXPECT_GT(count, 0u);
}

// Holds for every kind of event in a life.
TYPED_TEST(ResidencyLifeTest, SinkIsCalledWithoutLocks) {
  PLEAT_SEED(first);
  ToldKinds told{};
  for (int i = 0; i < scaled(100); ++i) {
    ResidencyLife<TypeParam> life(first + static_cast<std::uint64_t>(i));
    life.take_locks_at_events(told);
    for (const std::string& problem : life.run(80)) ADD_FAILURE() << problem;
  }
  for (const EventKind kind :
       {EventKind::kAllocate, EventKind::kFree, EventKind::kPayloadAllocate,
        EventKind::kPayloadFree, EventKind::kTag, EventKind::kRelease, EventKind::kWait,
        EventKind::kHold, EventKind::kKeep, EventKind::kEncode, EventKind::kRestore,
        EventKind::kRestoredFree, EventKind::kDrop}) {
    EXPECT_GT(told[static_cast<std::size_t>(kind)], 0) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace pleat::allocator::testing

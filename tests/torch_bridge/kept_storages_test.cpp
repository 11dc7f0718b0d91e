#include "torch_bridge/core/kept_storages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace pleat::bridge {
namespace {

using Storage = std::shared_ptr<void>;
using Kept = KeptStorages<Storage>;

// Stands for a record: what was restored of it lives while it is kept.
class Restored {
 public:
  Storage storage() {
    auto made = std::make_shared<int>();
    last_ = made;
    return made;
  }
  [[nodiscard]] bool kept() const { return !last_.expired(); }

 private:
  std::weak_ptr<int> last_;
};

constexpr Kept::Live kPlenty{1 << 20, 1 << 20};

TEST(KeptStorages, OneThatALoopAsksForStaysWhileOthersRestoreLittle) {
  Kept kept;
  Restored sliced, small;
  kept.keep(&sliced, sliced.storage(), 1000, 1000, kPlenty);
  for (int step = 0; step < 100; ++step) {
    for (int other = 0; other < 9; ++other) {
      kept.make_room(&small, 100);
      kept.keep(&small, nullptr, 100, 0, kPlenty);
    }
    ASSERT_TRUE(sliced.kept());
    kept.keep(&sliced, sliced.storage(), 1000, 1000, kPlenty);  // the next slice
  }
}

TEST(KeptStorages, OneThatHasWaitedForAsMuchAsItIsWorthGoesBeforeTheNextIsRestored) {
  Kept kept;
  Restored sliced, other;
  kept.keep(&sliced, sliced.storage(), 1000, 1000, kPlenty);
  kept.make_room(&other, 600);
  EXPECT_TRUE(sliced.kept());
  kept.make_room(&other, 400);
  EXPECT_FALSE(sliced.kept());
}

TEST(KeptStorages, WhatItsOwnRecordRestoresIsNoWait) {
  Kept kept;
  Restored sliced;
  kept.keep(&sliced, sliced.storage(), 1000, 1000, kPlenty);
  kept.make_room(&sliced, 5000);
  EXPECT_TRUE(sliced.kept());
}

TEST(KeptStorages, OfThoseWorthNothingTheLastStaysUntilAnyOtherComes) {
  Kept kept;
  Restored one, two, three;
  kept.keep(&one, one.storage(), 100, 0, kPlenty);
  EXPECT_TRUE(one.kept());
  kept.keep(&two, two.storage(), 100, 0, kPlenty);
  EXPECT_FALSE(one.kept());
  EXPECT_TRUE(two.kept());
  kept.make_room(&three, 1);
  EXPECT_FALSE(two.kept());
}

TEST(KeptStorages, ARecordThatWantsNoneKeptLosesItsOwn) {
  Kept kept;
  Restored one, two;
  kept.keep(&one, one.storage(), 100, 1000, kPlenty);
  kept.keep(&two, two.storage(), 100, 1000, kPlenty);
  kept.keep(&one, nullptr, 100, 0, kPlenty);
  EXPECT_FALSE(one.kept());
  EXPECT_TRUE(two.kept());
  kept.forget(&two);
  EXPECT_FALSE(two.kept());
}

// A process whose other memory takes 1000 bytes at its peak and 300 by now.
TEST(KeptStorages, TogetherTheyTakeNoMoreThanAllElseHasTaken) {
  Kept kept;
  std::vector<Restored> sliced(8);
  std::size_t live = 300;
  std::size_t peak = 1000;
  for (int round = 0; round < 3; ++round) {
    for (Restored& one : sliced) {
      if (!one.kept()) {
        kept.make_room(&one, 300);
        Storage storage = one.storage();
        std::size_t bytes = 300;
        for (const Restored& other : sliced) {
          bytes += &other != &one && other.kept() ? 300 : 0;
        }
        live = 300 + bytes;
        peak = std::max(peak, live);
        kept.keep(&one, std::move(storage), 300, 1 << 20, {live, peak});
      }
      std::size_t together = 0;
      for (const Restored& other : sliced) {
        together += other.kept() ? 300 : 0;
      }
      // One more may stay until the next is restored, as the last always does.
      EXPECT_LE(together, 1000 + 300);
      EXPECT_LE(peak, 2u * 1000 + 300);
    }
  }
}

TEST(KeptStorages, StoragesDieUnderNoLock) {
  Kept kept;
  Restored other, unknown;
  int died = 0;
  const auto storage = [&] {
    return Storage(&died, [&](void*) {
      kept.forget(&unknown);  // would wait for ever if the lock were held
      kept.make_room(&unknown, 0);
      ++died;
    });
  };
  kept.keep(&kept, storage(), 100, 1000, kPlenty);
  kept.keep(&other, storage(), 100, 1000, kPlenty);
  kept.keep(&kept, storage(), 100, 1000, kPlenty);  // in place of the first
  EXPECT_EQ(died, 1);
  kept.make_room(&died, 1000);
  EXPECT_EQ(died, 3);
  kept.keep(&kept, storage(), 100, 0, kPlenty);
  kept.forget_all();
  EXPECT_EQ(died, 4);
}

}  // namespace
}  // namespace pleat::bridge

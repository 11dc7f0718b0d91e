// The trials of huge pages, and the consequences of their cost.
#include "allocator/host/huge_page_price.h"

#include <gtest/gtest.h>

#include <utility>

namespace pleat::allocator {
namespace {

constexpr HugePagePrice::Sample kCheap{200e3, 800e3};
constexpr HugePagePrice::Sample kDear{5e6, 800e3};

// Outcome of requests for `count` huge pages, one at a time.
struct Outcome {
  int tries = 0;
  int taken = 0;
};
Outcome want(HugePagePrice& price, int count, HugePagePrice::Sample sample) {
  Outcome outcome;
  for (int i = 0; i < count; ++i) {
    outcome.taken += price.pays(1, [&] {
      ++outcome.tries;
      return sample;
    });
  }
  return outcome;
}

TEST(HugePagePrice, CheapHugePagesAreAllTakenWithFewTries) {
  HugePagePrice price;
  const Outcome outcome = want(price, 1000, kCheap);
  EXPECT_EQ(outcome.taken, 1000);
  EXPECT_LE(outcome.tries, 20);
}

// At 5 ms a try, the tries cost a tenth as much; small pages for all of it take 800 ms.
TEST(HugePagePrice, ExpensiveHugePagesAreNotTakenAndTriesGetRare) {
  HugePagePrice price;
  const Outcome outcome = want(price, 1000, kDear);
  EXPECT_EQ(outcome.taken, 0);
  EXPECT_LE(outcome.tries, 16);
}

TEST(HugePagePrice, OneExpensiveTryIsRepeated) {
  HugePagePrice price;
  int tries = 0;
  EXPECT_TRUE(price.pays(1, [&] { return ++tries == 1 ? kDear : kCheap; }));
  EXPECT_EQ(tries, 2);
}

TEST(HugePagePrice, PriceChangeIsNoticedInBothDirections) {
  HugePagePrice price;
  want(price, 1000, kCheap);
  EXPECT_LE(want(price, 1000, kDear).taken, 64);
  EXPECT_GE(want(price, 4000, kCheap).taken, 2000);
}

TEST(HugePagePrice, EqualPricePaysAndUnknownPriceDoesNot) {
  for (const auto& [sample, pays] : {std::pair{HugePagePrice::Sample{800e3, 800e3}, true},
                                     std::pair{HugePagePrice::Sample{1700e3, 800e3}, false},
                                     std::pair{HugePagePrice::Sample{}, false}}) {
    HugePagePrice price;
    EXPECT_EQ(price.pays(1, [&sample = sample] { return sample; }), pays) << sample.huge_ns;
  }
}

TEST(HugePagePrice, RequestBeyondTheIntervalIsTriedAgain) {
  HugePagePrice price;
  EXPECT_TRUE(price.pays(1, [] { return kCheap; }));
  EXPECT_FALSE(price.pays(1000, [] { return kDear; }));
}

}  // namespace
}  // namespace pleat::allocator

#include "torch_bridge/measure/book/bits_by_key.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace pleat::bridge {
namespace {

using Entry = BitsByKey::Entry;
using allocator::TensorKey;

TEST(BitsByKey, WithoutATableEveryKeyHasTheUniformWidth) {
  BitsByKey bits;
  for (const std::uint8_t width : {std::uint8_t{4}, std::uint8_t{2}, std::uint8_t{0}}) {
    bits.set_uniform(width);
    EXPECT_EQ(bits.width_of(TensorKey{1}), width);
    EXPECT_EQ(bits.width_of(TensorKey{~std::uint64_t{0}}), width);
  }
}

TEST(BitsByKey, ATableAnswersForItsKeysAndTheUniformWidthForAllOthers) {
  constexpr std::uint8_t kWidths[] = {0, 1, 2, 3, 4, 6, 8};
  std::mt19937_64 random(5);
  std::vector<Entry> entries;
  std::map<std::uint64_t, std::uint8_t> expected;
  for (int i = 0; i < 1000; ++i) {
    const Entry entry{{random() % 2000}, kWidths[random() % std::size(kWidths)]};
    entries.push_back(entry);
    expected[entry.key.value] = entry.width;  // the last of two holds
  }
  BitsByKey bits;
  bits.set_uniform(4);
  bits.set_table(entries);
  for (std::uint64_t key = 0; key < 2000; ++key) {
    const auto found = expected.find(key);
    ASSERT_EQ(bits.width_of(TensorKey{key}), found != expected.end() ? found->second : 4) << key;
  }
}

TEST(BitsByKey, LosslessIsLosslessWhateverTheTableSays) {
  const Entry entries[] = {{{1}, 2}};
  BitsByKey bits;
  bits.set_table(entries);
  bits.set_uniform(0);
  EXPECT_EQ(bits.width_of(TensorKey{1}), 0);
}

TEST(BitsByKey, ANewTableReplacesTheOldOneUnderItsReaders) {
  const Entry old_entries[] = {{{1}, 2}, {{2}, 2}};
  const Entry new_entries[] = {{{1}, 8}};
  BitsByKey bits;
  bits.set_uniform(4);
  bits.set_table(old_entries);
  std::atomic<bool> done{false};
  std::atomic<int> reads{0}, wrong{0};
  std::thread reader([&] {
    while (!done.load()) {
      const std::uint8_t width = bits.width_of(TensorKey{1});
      wrong += width != 2 && width != 8;
      ++reads;
    }
  });
  while (reads.load() == 0) {
    std::this_thread::yield();
  }
  for (int i = 0; i < 100; ++i) {
    bits.set_table(old_entries);
    bits.set_table(new_entries);
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(bits.width_of(TensorKey{1}), 8);
  EXPECT_EQ(bits.width_of(TensorKey{2}), 4);
}

}  // namespace
}  // namespace pleat::bridge

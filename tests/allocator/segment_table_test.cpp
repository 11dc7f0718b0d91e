// Look-ups of addresses: against a search of all segments, and while segments come and go.
#include "allocator/host/segment_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "test_support.h"

namespace pleat::allocator {
namespace {

using namespace testing;

// Addresses in a random order, without memory behind them.
class ScatteredDevice final : public FakeDevice {
 public:
  explicit ScatteredDevice(std::uint64_t seed) : FakeDevice(SIZE_MAX), random_(seed) {}
  void* reserve_segment(std::size_t, std::size_t) noexcept override {
    std::uintptr_t place = 0;
    do {
      place = 1 + random_() % 4096;
    } while (!taken_.insert({place, true}).second);
    return reinterpret_cast<void*>(place * 16_MiB);
  }
  void release_segment(void* base, std::size_t) noexcept override {
    taken_.erase(reinterpret_cast<std::uintptr_t>(base) / 16_MiB);
  }

 private:
  std::mt19937_64 random_;
  std::map<std::uintptr_t, bool> taken_;
};

constexpr std::size_t kGranule = 64_KiB;

TEST(SegmentTable, AgreesWithASearchOfAllSegments) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  ScatteredDevice device(seed);
  SegmentTable table;
  std::map<std::byte*, std::size_t> segments;  // base to bytes
  for (int step = 0; step < scaled(6000); ++step) {
    const bool grows = step / 1500 % 2 == 0;
    const std::size_t rank = segments.empty() ? 0 : random() % segments.size();
    if (segments.empty() || random() % 8 < (grows ? 5u : 3u)) {
      const std::size_t room = 1_MiB << (random() % 5);  // ends at most 16 MiB further on
      if (const Segment* added = table.add(device, 1_MiB, room, kGranule)) {
        segments[added->base] = 1_MiB;
      }  // else every slot has held a segment, and no free slot has that room
    } else if (random() % 3 == 0) {
      Segment& segment = table[rank];
      const std::size_t more = std::min(segment.bytes + kGranule, segment.room);
      if (more > segment.bytes) {
        ASSERT_TRUE(table.extend(device, rank, more, kGranule));
      }
      segments[segment.base] = segment.bytes;
    } else {
      segments.erase(table[rank].base);
      table.remove(device, rank);
    }
    ASSERT_EQ(table.count(), segments.size());
    for (int look = 0; look < 8; ++look) {
      const std::uintptr_t address = random() % (4100 * 16_MiB);
      std::uintptr_t probe = address;
      if (look > 0 && !segments.empty()) {  // near the ends of a segment
        const Segment& segment = table[random() % table.count()];
        probe = reinterpret_cast<std::uintptr_t>(segment.base) + (look % 2) * segment.bytes +
                random() % 3 - 1;
      }
      bool found = false;
      for (const auto& [base, bytes] : segments) {
        const std::uintptr_t offset = probe - reinterpret_cast<std::uintptr_t>(base);
        if (offset >= bytes) continue;
        const SegmentTable::Location where = table.locate(reinterpret_cast<void*>(probe));
        ASSERT_NE(where.slot, SegmentTable::kNone);
        ASSERT_EQ(table.at_slot(where.slot).base, base);
        ASSERT_EQ(where.offset, offset);
        found = true;
      }
      if (!found) {
        ASSERT_EQ(table.locate(reinterpret_cast<void*>(probe)).slot, SegmentTable::kNone);
      }
    }
  }
  EXPECT_GT(segments.size(), static_cast<std::size_t>(scaled(200)));
}

TEST(SegmentTable, LastingSegmentIsFoundWhileOthersComeAndGo) {
  PLEAT_SEED(seed);
  ScatteredDevice device(seed);
  SegmentTable table;
  constexpr std::size_t kStaying = 20;
  std::vector<std::byte*> staying;
  for (std::size_t i = 0; i < kStaying; ++i) {
    staying.push_back(table.add(device, 1_MiB, 2_MiB, kGranule)->base);
  }
  std::atomic<bool> stop{false};
  std::atomic<int> lost{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
      while (!stop) {
        std::byte* const base = staying[random() % kStaying];
        const std::size_t offset = random() % 1_MiB;
        const SegmentTable::Location where = table.locate(base + offset);
        if (where.slot == SegmentTable::kNone || where.offset != offset) ++lost;
      }
    });
  }
  std::mt19937_64 random(seed);
  for (int step = 0; step < scaled(20000); ++step) {
    const std::size_t rank = random() % table.count();
    const bool stays = std::count(staying.begin(), staying.end(), table[rank].base) != 0;
    if (!stays && random() % 2 == 0) {
      table.remove(device, rank);
    } else if (table.count() < 60) {
      ASSERT_NE(table.add(device, 1_MiB, 2_MiB << (random() % 3), kGranule), nullptr);
    }
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace pleat::allocator

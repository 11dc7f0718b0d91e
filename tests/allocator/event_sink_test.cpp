// The guarantees for a recorder: sums, record ids, and that no lock is held while the sink is
// called.
#include "allocator/event_sink.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "allocator/host/host_device.h"
#include "allocator/host/pool.h"
#include "allocator/lifecycle/residency.h"
#include "residency_life.h"
#include "test_support.h"

namespace pleat::allocator::testing {
namespace {

struct EventsTest : ::testing::Test {
  static constexpr std::size_t kBytes = 4096;

  LifeRecord* tag(Block* block) {
    return static_cast<LifeRecord*>(
        residency.with_linked(block, StreamId{}, [](Record* present) -> Record* {
          if (present != nullptr) return present;
          auto* const record = new LifeRecord;
          record->bytes = kBytes;
          record->ranges.add({0, kBytes});
          record->choice = LateCodec::kSure;
          return record;
        }));
  }
  void live_once() {
    Block* const block = pool.allocate(kBytes);
    LifeRecord* const record = tag(block);
    residency.release(block);
    Block* restored = nullptr;
    {
      Residency::RecordGuard guard(residency, *record);
      Residency::RestoreStatus status{};
      restored = residency.restore_locked(guard, *record, StreamId{}, {}, &status);
    }
    residency.release(restored);
    residency.drop(record);
  }

  HostDevice device;
  Statistics statistics;
  SynchronousOrder order;
  Pool pool{device, PoolOptions{}, statistics};
  LateDevice late{/*immediate=*/true};
  std::mt19937_64 random{1};
  LateCodec codec{late, random};
  PayloadArena arena{pool};
  Residency residency{pool, order, arena, codec, ResidencyOptions{}};
};

TEST_F(EventsTest, EventsOfOneLifeShareTheRecordId) {
  struct Sink final : EventSink {
    std::map<std::uint64_t, std::vector<EventKind>> lives;
    void on_event(const Event& event) noexcept override {
      if (event.record.value != 0) lives[event.record.value].push_back(event.kind);
    }
  } sink;
  pool.events().attach(&sink);
  live_once();
  live_once();
  pool.events().attach(nullptr);
  ASSERT_EQ(sink.lives.size(), 2u);
  for (const auto& [number, kinds] : sink.lives) {
    EXPECT_EQ(kinds, (std::vector{EventKind::kTag, EventKind::kRelease, EventKind::kPayloadAllocate,
                                  EventKind::kEncode, EventKind::kRestore, EventKind::kRestoredFree,
                                  EventKind::kDrop}))
        << number;
  }
}

// A recorder can take the interpreter's lock, whose owner can be waiting for a lock of Pleat's. So
// no lock may be held. This sink takes them all itself.
TEST_F(EventsTest, SinkIsCalledWithoutLocks) {
  struct Sink final : EventSink {
    explicit Sink(Residency& of) : residency(of) {}
    Residency& residency;
    ToldKinds told{};
    void on_event(const Event& event) noexcept override {
      ++told[static_cast<std::size_t>(event.kind)];
      expect_no_lock_is_held(residency, event.kind);
    }
  } sink(residency);
  pool.events().attach(&sink);
  live_once();
  Block* const block = pool.allocate(kBytes * 64);
  pool.shrink(block, kBytes);
  pool.free(block);
  pool.trim();
  pool.events().attach(nullptr);
  for (const EventKind kind :
       {EventKind::kSegmentReserve, EventKind::kAllocate, EventKind::kFree, EventKind::kShrink,
        EventKind::kChunkAllocate, EventKind::kPayloadAllocate, EventKind::kEncode,
        EventKind::kRestore, EventKind::kDrop, EventKind::kPagesRelease}) {
    EXPECT_GT(sink.told[static_cast<std::size_t>(kind)], 0) << static_cast<int>(kind);
  }
}

TEST_F(EventsTest, SinkCanAttachAndDetachDuringAllocations) {
  struct Sink final : EventSink {
    std::atomic<int> told{0};
    std::atomic<bool> gone{false};
    void on_event(const Event&) noexcept override {
      EXPECT_FALSE(gone) << "told after it was taken out";
      ++told;
    }
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back([&] {
      while (!stop) pool.free(pool.allocate(kBytes));
    });
  }
  int told = 0;
  for (int i = 0; i < scaled(300) || told == 0; ++i) {
    Sink sink;
    pool.events().attach(&sink);
    std::this_thread::yield();
    pool.events().attach(nullptr);
    sink.gone = true;
    told += sink.told;
  }
  stop = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_EQ(pool.events().lost(), 0u);
}

TEST_F(EventsTest, AnnotatorFillsInUnknownFields) {
  struct Sink final : EventSink {
    Event last;
    void on_event(const Event& event) noexcept override { last = event; }
  } sink;
  pool.events().attach(&sink, [](Event& event) noexcept {
    event.time_ns = 7;
    event.phase = 2;
  });
  Block* const block = pool.allocate(10'000);
  EXPECT_EQ(sink.last.kind, EventKind::kAllocate);
  EXPECT_EQ(sink.last.bytes, 10'000u);
  EXPECT_EQ(sink.last.block, block->id);
  EXPECT_EQ(sink.last.device, device.index());
  EXPECT_EQ(sink.last.time_ns, 7u);
  EXPECT_EQ(sink.last.phase, 2u);
  pool.free(block);
  pool.events().attach(nullptr);
}

}  // namespace
}  // namespace pleat::allocator::testing

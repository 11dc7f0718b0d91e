// Residency and records against a codec that inverts bytes: expected bytes are known without the
// code under test.
#include "allocator/lifecycle/residency.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/heap.h"
#include "allocator/host/host_device.h"
#include "allocator/host/pool.h"
#include "test_support.h"

namespace pleat::allocator {
namespace {

// Replaces a StorageImpl: alive until set otherwise.
struct FakeStorage {
  std::atomic<bool> alive{true};
};

class FakeRecord final : public Record {
 public:
  explicit FakeRecord(FakeStorage& storage, std::atomic<int>* destroyed = nullptr)
      : storage_(storage), destroyed_(destroyed) {}
  ~FakeRecord() override {
    if (destroyed_ != nullptr) {
      ++*destroyed_;
    }
  }
  bool keep_storage() noexcept override {
    if (while_keeping) {
      while_keeping();
    }
    return storage_.alive;
  }
  std::uint32_t hooks_without_block() noexcept override { return storage_.alive ? kEveryHook : 0; }
  Hold waits_for() const noexcept override { return until; }
  Decision decide(Start start) noexcept override {
    started_by = start;
    return {mind_changed ? CodecWords{{7}} : CodecWords{}, follows};
  }
  Hold until = Hold::kNone;
  Reading reading{};
  bool mind_changed = false;
  Start started_by{};
  bool follows = true;
  std::function<void()> while_keeping;

 private:
  FakeStorage& storage_;
  std::atomic<int>* destroyed_;
};

// Payload = the bytes inverted, so that a raw copy is never mistaken for a decoded one.
class InvertingCodec final : public BlockCodec {
 public:
  EncodePlan plan(const EncodeRequest& r) noexcept override {
    EncodePlan plan;
    plan.recomputed = r.function != 0 && is_result(r);
    ++plans;
    thorough_plans += r.thorough ? 1 : 0;
    plan.room =
        refuse || (refuse_thorough && r.thorough) ? 0 : r.source_bytes + (r.thorough ? 4096 : 0);
    plan.in_place = true;
    return plan;
  }
  EncodeResult encode(const EncodeRequest& r, const EncodePlan&, void* payload,
                      std::size_t capacity) noexcept override {
    if (fail || capacity < r.source_bytes) {
      return {};
    }
    if (payload == r.source) {
      ++encodes;
      invert(r.source, payload, r.source_bytes);
      return {.status = CodecStatus::kOk, .payload_bytes = r.source_bytes, .form = kForm};
    }
    if (again && !r.thorough) {
      return {.status = CodecStatus::kPlanAgain};
    }
    if (again && capacity < r.source_bytes + 4096) {
      return {};
    }
    ++encodes;
    last_choice = r.choice.words[0];
    std::this_thread::sleep_for(delay);
    invert(r.source, payload, r.source_bytes);
    EncodeResult result{.status = CodecStatus::kOk, .payload_bytes = r.source_bytes, .form = kForm};
    if (late) {
      result.status = CodecStatus::kQueued;
      result.ticket = {++last_ticket};
    }
    return result;
  }
  // A late encode is decided once a thread waits for it.
  bool is_decided(EncodeTicket ticket) noexcept override { return awaited.contains(ticket.value); }
  EncodeResult verdict(EncodeTicket ticket, bool wait) noexcept override {
    if (wait && !overdue) awaited.insert(ticket.value);
    if (!is_decided(ticket)) return {.status = CodecStatus::kQueued};
    return {.status = CodecStatus::kOk, .payload_bytes = late_bytes, .form = kForm};
  }
  // Decodes, adds the first word of noise to each byte, then `function`.
  CodecStatus decode(const DecodeRequest& r) noexcept override {
    const PayloadView& payload = r.payload;
    auto* const out = static_cast<unsigned char*>(r.target);
    if (payload.data != nullptr) {
      if (damaged || payload.bytes != r.target_bytes || payload.form != kForm) {
        return CodecStatus::kFailed;
      }
      ++decodes;
      invert(payload.data, out, r.target_bytes);
    }
    if (r.noise != nullptr) {
      if (payload.range_count != 1 || (r.scratch == nullptr) != (scratch_bytes == 0)) {
        return CodecStatus::kFailed;
      }
      if (r.scratch != nullptr) std::memset(r.scratch, 0xEE, scratch_bytes);
      noisy_payloads += payload.data != nullptr ? 1 : 0;
    }
    const std::uint64_t more = r.function + (r.noise != nullptr ? r.noise->words[0] : 0);
    for (std::size_t i = 0; i < r.target_bytes; ++i) {
      out[i] = static_cast<unsigned char>(out[i] + more);
    }
    return CodecStatus::kOk;
  }
  std::size_t decode_scratch(const DecodeRequest& r) noexcept override {
    return r.noise != nullptr ? scratch_bytes : 0;
  }
  static void invert(const void* from, void* to, std::size_t bytes) noexcept {
    const auto* const in = static_cast<const unsigned char*>(from);
    auto* const out = static_cast<unsigned char*>(to);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(~in[i]);
  }
  static bool is_result(const EncodeRequest& r) noexcept {
    const auto argument =
        static_cast<unsigned char>(~*static_cast<const unsigned char*>(r.argument.data));
    return *static_cast<const unsigned char*>(r.source) ==
           static_cast<unsigned char>(argument + r.function);
  }
  static constexpr PayloadForm kForm{{1, 2, 3, 4}};  // must come back with the payload
  std::atomic<int> encodes{0}, decodes{0}, plans{0}, thorough_plans{0};
  std::atomic<std::uint64_t> last_choice{0};
  std::atomic<bool> refuse{false}, fail{false}, damaged{false};
  std::atomic<bool> refuse_thorough{false};
  std::atomic<bool> again{false};      // only a thorough plan has enough room
  bool late = false, overdue = false;  // overdue: no wait is long enough
  std::size_t late_bytes = 0;
  std::size_t scratch_bytes = 0;
  int noisy_payloads = 0;
  std::uint64_t last_ticket = 0;
  std::set<std::uint64_t> awaited;
  std::chrono::microseconds delay{0};
};

class ResidencyTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 64 << 10;

  void build(const ResidencyOptions& options = {}) {
    residency.reset();
    arena.reset();
    PoolOptions pool_options;
    pool_options.reserve_bytes = std::size_t{1} << 30;
    pool = std::make_unique<Pool>(device, pool_options, statistics);
    arena = std::make_unique<PayloadArena>(*pool);
    residency = std::make_unique<Residency>(*pool, order, *arena, codec, options);
  }
  void SetUp() override { build(); }

  Block* filled_block(unsigned char value) {
    Block* const block = pool->allocate(kBytes);
    std::memset(block->begin, value, kBytes);
    return block;
  }
  FakeRecord* tag(Block* block, FakeStorage& storage, std::atomic<int>* destroyed = nullptr) {
    return static_cast<FakeRecord*>(
        residency->with_linked(block, {}, [&](Record* present) -> Record* {
          if (present != nullptr) {
            residency->add_reference(*present);
            return present;
          }
          auto* const record = new FakeRecord(storage, destroyed);
          record->bytes = kBytes;
          record->ranges.add({0, kBytes});
          return record;
        }));
  }
  // Tags a new block full of `value`, then frees its storage.
  FakeRecord* tag_and_release(unsigned char value, FakeStorage& storage) {
    Block* const block = filled_block(value);
    FakeRecord* const record = tag(block, storage);
    storage.alive = false;
    residency->release(block);
    return record;
  }
  Block* restore(FakeRecord& record, StreamId stream = {}) {
    Residency::RecordGuard guard(*residency, record);
    Residency::RestoreStatus status{};
    Block* const block = residency->restore_locked(guard, record, stream, record.reading, &status);
    EXPECT_EQ(block != nullptr, status == Residency::RestoreStatus::kOk);
    return block;
  }
  static bool holds(const Block* block, unsigned char value) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (static_cast<unsigned char>(block->begin[i]) != value) {
        return false;
      }
    }
    return true;
  }
  void expect_empty() {
    EXPECT_EQ(statistics.current(StatKind::kRequested), 0);
    EXPECT_EQ(statistics.current(StatKind::kSavedRaw), 0);
    EXPECT_EQ(statistics.current(StatKind::kPayload), 0);
    EXPECT_EQ(statistics.current(StatKind::kRestored), 0);
    EXPECT_STREQ(pool->check_invariants(), "");
  }

  // A graph is being captured on stream 9.
  class Order final : public StreamOrder {
    EventHandle record(StreamId) noexcept override { return {}; }
    void wait(StreamId, EventHandle) noexcept override {}
    bool complete(EventHandle) noexcept override { return true; }
    void synchronize(EventHandle) noexcept override {}
    void release(EventHandle) noexcept override {}
    bool is_captured(StreamId stream) noexcept override { return stream.value == 9; }
  };

  HostDevice device;
  Order order;
  Statistics statistics;
  InvertingCodec codec;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<PayloadArena> arena;
  std::unique_ptr<Residency> residency;
};

TEST_F(ResidencyTest, ReleaseOfUntaggedBlockReturnsItAtOnce) {
  Block* const block = filled_block(1);
  residency->release(block);
  EXPECT_EQ(codec.encodes, 0);
  expect_empty();
}

TEST_F(ResidencyTest, ReleaseOfTaggedBlockCompressesAndReturnsItsBlock) {
  FakeStorage storage;
  Block* const block = filled_block(7);
  const void* const address = block->begin;
  FakeRecord* const record = tag(block, storage);
  EXPECT_EQ(statistics.current(StatKind::kSavedRaw), static_cast<std::int64_t>(kBytes));
  storage.alive = false;
  residency->release(block);
  EXPECT_EQ(record->state, RecordState::kPacked);
  EXPECT_EQ(pool->find(address), nullptr);
  EXPECT_EQ(statistics.current(StatKind::kSavedRaw), 0);
  EXPECT_EQ(statistics.current(StatKind::kPayload), static_cast<std::int64_t>(kBytes));

  Block* const again = restore(*record);
  EXPECT_TRUE(holds(again, 7));
  EXPECT_EQ(record->state, RecordState::kRestored);
  EXPECT_EQ(statistics.current(StatKind::kRestored), static_cast<std::int64_t>(kBytes));
  residency->release(again);
  EXPECT_EQ(record->state, RecordState::kPacked);
  EXPECT_EQ(codec.encodes, 1) << "freeing a restored storage must not encode again";
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, PayloadReadByAGraphStaysForItsReplays) {
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  const std::byte* const payload = payload_of(record->stored)->slot.address();
  residency->release(restore(*record, StreamId{9}));
  residency->drop(record);
  EXPECT_EQ(statistics.current(StatKind::kPayload), static_cast<std::int64_t>(kBytes));
  EXPECT_EQ(payload[0], std::byte{0xF8});
  residency->drop(record);  // drops the graph's reference, so that the test leaves no record
  expect_empty();
}

TEST_F(ResidencyTest, KeptOriginalIsReadIfTheRecordAsksForIt) {
  ResidencyOptions options;
  options.form = StoreForm::kPayloadAndBlock;
  build(options);
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  Block* const original = payload_of(record->stored)->block;
  ASSERT_NE(original, nullptr);
  std::memset(original->begin, 9, kBytes);  // to distinguish it from the payload
  for (const bool of_original : {true, false, true}) {
    record->reading.original = of_original;
    const int decodes = codec.decodes;
    Block* const block = restore(*record);
    EXPECT_TRUE(holds(block, of_original ? 9 : 7));
    EXPECT_EQ(codec.decodes, decodes + (of_original ? 0 : 1));
    residency->release(block);
    EXPECT_EQ(record->state, RecordState::kPacked);
  }
  EXPECT_EQ(statistics.current(StatKind::kSavedRaw), 0);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, NoiseIsAddedToDecodedBytesWithScratchMemory) {
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  const DisturbanceWords noise{{5}};
  record->reading.noise = &noise;
  for (const std::size_t scratch : {std::size_t{0}, std::size_t{100}, std::size_t{1} << 20}) {
    codec.scratch_bytes = scratch;
    Block* const block = restore(*record);
    EXPECT_TRUE(holds(block, 12));
    residency->release(block);
    EXPECT_EQ(statistics.current(StatKind::kRequested), static_cast<std::int64_t>(kBytes))
        << "the payload alone";
  }
  EXPECT_EQ(codec.noisy_payloads, 3);
  codec.scratch_bytes = std::size_t{1} << 45;
  {
    Residency::RecordGuard guard(*residency, *record);
    Residency::RestoreStatus status{};
    EXPECT_EQ(residency->restore_locked(guard, *record, {}, record->reading, &status), nullptr);
    EXPECT_EQ(status, Residency::RestoreStatus::kDamaged);
  }
  record->reading.noise = nullptr;
  Block* const block = restore(*record);
  EXPECT_TRUE(holds(block, 7)) << "the payload is as it was";
  residency->release(block);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, NoiseIsAddedToACopyOfRawBytes) {
  codec.refuse = true;
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  ASSERT_EQ(record->state, RecordState::kHeld);
  const DisturbanceWords noise{{5}};
  record->reading.noise = &noise;
  const auto copy = [&] {
    Residency::RecordGuard guard(*residency, *record);
    Residency::RestoreStatus status{};
    Block* const block = residency->copy_locked(guard, *record, {}, record->reading, &status);
    EXPECT_EQ(block != nullptr, status == Residency::RestoreStatus::kOk);
    return block;
  };
  codec.scratch_bytes = 5000;
  Block* const block = copy();
  EXPECT_TRUE(holds(block, 12));
  residency->release(block);
  codec.scratch_bytes = std::size_t{1} << 45;
  EXPECT_EQ(copy(), nullptr);
  record->reading.noise = nullptr;
  Block* const raw = restore(*record);
  EXPECT_TRUE(holds(raw, 7));
  EXPECT_EQ(codec.noisy_payloads, 0);
  residency->release(raw);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, FailedQuickPlanIsRepeatedThoroughly) {
  codec.again = true;
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  EXPECT_EQ(codec.plans, 2);
  EXPECT_EQ(codec.encodes, 1);
  EXPECT_EQ(record->state, RecordState::kPacked);
  EXPECT_EQ(statistics.current(StatKind::kPayload), static_cast<std::int64_t>(kBytes));
  Block* const block = restore(*record);
  EXPECT_TRUE(holds(block, 7));
  residency->release(block);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, BlockIsHeldIfBothPlansFail) {
  codec.again = codec.refuse_thorough = true;
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  EXPECT_EQ(codec.plans, 2);
  EXPECT_EQ(codec.encodes, 0);
  EXPECT_EQ(record->state, RecordState::kHeld);
  EXPECT_EQ(residency->counters().held, 1u);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, PlanForEncodingInPlaceIsThoroughAtOnce) {
  ResidencyOptions options;
  options.form = StoreForm::kInPlace;
  build(options);
  codec.again = true;
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(7, storage);
  EXPECT_EQ(codec.plans, 1);
  EXPECT_EQ(codec.thorough_plans, 1);
  EXPECT_EQ(residency->counters().encoded_in_place, 1u);
  residency->drop(record);
  expect_empty();
}

// A record whose bytes are a function of another's, with each order of their ends.
class RecomputedTest : public ResidencyTest {
 protected:
  FakeStorage argument_storage, result_storage;
  FakeRecord* argument = nullptr;
  FakeRecord* result = nullptr;

  // Results are 3 more than arguments.
  void save_argument_and_result(unsigned char value, unsigned char result_value) {
    argument = tag_and_release(value, argument_storage);
    Block* const block = filled_block(result_value);
    result = tag(block, result_storage);
    residency->set_argument(*result, *argument, 3);
    result_storage.alive = false;
    residency->release(block);
  }
};

TEST_F(RecomputedTest, ResultHasNoPayloadAndIsRestoredFromTheArguments) {
  save_argument_and_result(7, 10);
  EXPECT_EQ(codec.encodes, 1);
  EXPECT_EQ(residency->counters().recomputed, 1u);
  EXPECT_EQ(result->state, RecordState::kPacked);
  EXPECT_EQ(statistics.current(StatKind::kPayload), static_cast<std::int64_t>(kBytes));
  EXPECT_EQ(statistics.current(StatKind::kSavedRaw), 0);
  for (int again = 0; again < 2; ++again) {
    Block* const block = restore(*result);
    EXPECT_TRUE(holds(block, 10));
    EXPECT_EQ(result->state, RecordState::kRestored);
    residency->release(block);
    EXPECT_EQ(result->state, RecordState::kPacked);
  }
  {
    Residency::RecordGuard guard(*residency, *result);
    Residency::RestoreStatus status{};
    Block* const copy = residency->copy_locked(guard, *result, {}, result->reading, &status);
    ASSERT_NE(copy, nullptr);
    EXPECT_TRUE(holds(copy, 10));
    pool->free(copy);
  }
  Block* const both = restore(*argument);
  EXPECT_TRUE(holds(both, 7));
  residency->release(both);
  residency->drop(result);
  residency->drop(argument);
  expect_empty();
}

TEST_F(RecomputedTest, ResultKeepsItsOwnBlockBesideTheArgumentsPayload) {
  build({.form = StoreForm::kPayloadAndBlock});
  save_argument_and_result(7, 10);
  Block* const kept = block_beside(result->stored);
  ASSERT_TRUE(std::holds_alternative<Recomputed>(result->stored) && kept != nullptr);
  std::memset(kept->begin, 20, kBytes);  // to distinguish it
  for (const bool original : {true, false}) {
    result->reading.original = original;
    Block* const block = restore(*result);
    EXPECT_TRUE(holds(block, original ? 20 : 10));
    residency->release(block);
  }
  residency->drop(result);
  residency->drop(argument);
  expect_empty();
}

TEST_F(RecomputedTest, ArgumentsPayloadLivesAsLongAsTheResult) {
  std::atomic<int> destroyed{0};
  Block* const first = filled_block(7);
  argument = tag(first, argument_storage, &destroyed);
  argument_storage.alive = false;
  residency->release(first);
  Block* const second = filled_block(10);
  result = tag(second, result_storage);
  residency->set_argument(*result, *argument, 3);
  residency->drop(argument);
  EXPECT_EQ(destroyed, 0);
  result_storage.alive = false;
  residency->release(second);
  Block* const block = restore(*result);
  EXPECT_TRUE(holds(block, 10));
  residency->release(block);
  residency->drop(result);
  EXPECT_EQ(destroyed, 1);
  expect_empty();
}

TEST_F(RecomputedTest, WrittenResultIsStoredItself) {
  save_argument_and_result(7, 11);
  EXPECT_EQ(codec.encodes, 2);
  EXPECT_EQ(residency->counters().recomputed, 0u);
  Block* const block = restore(*result);
  EXPECT_TRUE(holds(block, 11));
  residency->release(block);
  residency->drop(argument);
  residency->drop(result);
  expect_empty();
}

TEST_F(RecomputedTest, ResultOfAnUncompressedArgumentIsStored) {
  for (const bool held : {false, true}) {
    SCOPED_TRACE(held);
    codec.refuse = held;
    FakeStorage first_storage, second_storage;
    Block* const first = filled_block(7);
    argument = tag(first, first_storage);
    if (held) {
      first_storage.alive = false;
      residency->release(first);
      EXPECT_EQ(argument->state, RecordState::kHeld);
    }
    codec.refuse = false;
    Block* const second = filled_block(10);
    result = tag(second, second_storage);
    residency->set_argument(*result, *argument, 3);
    second_storage.alive = false;
    residency->release(second);
    EXPECT_EQ(residency->counters().recomputed, 0u);
    Block* const block = restore(*result);
    EXPECT_TRUE(holds(block, 10));
    residency->release(block);
    residency->drop(result);
    if (!held) {
      first_storage.alive = false;
      residency->release(first);
    }
    residency->drop(argument);
  }
  expect_empty();
}

TEST_F(RecomputedTest, RecordCanDeclineToBeRecomputed) {
  argument = tag_and_release(7, argument_storage);
  Block* const block = filled_block(10);
  result = tag(block, result_storage);
  result->follows = false;
  residency->set_argument(*result, *argument, 3);
  result_storage.alive = false;
  residency->release(block);
  EXPECT_EQ(codec.encodes, 2);
  Block* const restored = restore(*result);
  EXPECT_TRUE(holds(restored, 10));
  residency->release(restored);
  residency->drop(result);
  residency->drop(argument);
  expect_empty();
}

TEST_F(RecomputedTest, DamagedPayloadFailsBoth) {
  save_argument_and_result(7, 10);
  codec.damaged = true;
  {
    Residency::RecordGuard guard(*residency, *result);
    Residency::RestoreStatus status{};
    EXPECT_EQ(residency->restore_locked(guard, *result, {}, result->reading, &status), nullptr);
    EXPECT_EQ(status, Residency::RestoreStatus::kDamaged);
  }
  codec.damaged = false;
  residency->drop(argument);
  residency->drop(result);
  expect_empty();
}

TEST_F(RecomputedTest, ThreadsRestoreTheTwoAtOnce) {
  save_argument_and_result(7, 10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      FakeRecord* const record = t % 2 == 0 ? result : argument;
      for (int i = 0; i < 50; ++i) {
        Residency::RecordGuard guard(*residency, *record);
        Residency::RestoreStatus status{};
        Block* const copy = residency->copy_locked(guard, *record, {}, record->reading, &status);
        ASSERT_NE(copy, nullptr);
        EXPECT_TRUE(holds(copy, t % 2 == 0 ? 10 : 7));
        pool->free(copy);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  residency->drop(result);
  residency->drop(argument);
  expect_empty();
}

TEST_F(ResidencyTest, EveryStepOfALifeEmitsAnEvent) {
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place);
    ResidencyOptions options;
    if (in_place) options.form = StoreForm::kInPlace;
    pleat::allocator::testing::CountingSink sink;
    build(options);
    pool->events().attach(&sink);
    FakeStorage storage;
    FakeRecord* const record = tag_and_release(7, storage);
    residency->release(restore(*record));
    residency->drop(record);
    for (const EventKind kind : {EventKind::kTag, EventKind::kRelease, EventKind::kEncode,
                                 EventKind::kRestore, EventKind::kRestoredFree, EventKind::kDrop}) {
      EXPECT_EQ(sink.count[kind], 1) << static_cast<int>(kind);
      EXPECT_EQ(sink.bytes[kind], kBytes) << static_cast<int>(kind);
    }
    pool->events().attach(nullptr);
  }
}

// Also where a verdict comes later, in another thread, with allocations between.
TEST_F(ResidencyTest, TheRoomOfAPayloadNamesItsRecordAndTheEncodeNamesThePlace) {
  struct Sink final : EventSink {
    std::mutex mutex;
    std::vector<Event> all;
    void on_event(const Event& event) noexcept override {
      const std::lock_guard<std::mutex> lock(mutex);
      all.push_back(event);
    }
    Event only(EventKind kind, RecordId record) {
      std::vector<Event> found;
      std::copy_if(all.begin(), all.end(), std::back_inserter(found),
                   [&](const Event& e) { return e.kind == kind && e.record == record; });
      EXPECT_EQ(found.size(), 1u) << static_cast<int>(kind);
      return found.empty() ? Event{} : found.front();
    }
  };
  for (const PayloadPlace place :
       {PayloadPlace::kChunk, PayloadPlace::kOwnBlock, PayloadPlace::kInPlace}) {
    for (const bool late : {false, true}) {
      if (late && place == PayloadPlace::kInPlace) continue;
      SCOPED_TRACE(static_cast<int>(place));
      ResidencyOptions options;
      if (place == PayloadPlace::kInPlace) options.form = StoreForm::kInPlace;
      build(options);
      if (place == PayloadPlace::kOwnBlock) {
        residency.reset();
        arena = std::make_unique<PayloadArena>(*pool, PayloadArena::Options{.chunk_bytes = 4096});
        residency = std::make_unique<Residency>(*pool, order, *arena, codec, options);
      }
      codec.late = late;
      codec.late_bytes = kBytes / 2;
      Sink sink;
      pool->events().attach(&sink);
      FakeStorage storage;
      FakeRecord* const record = tag_and_release(7, storage);
      const std::uint64_t source = sink.only(EventKind::kTag, record->id).block.value;
      Block* const other = pool->allocate(kBytes);
      if (late) std::thread([&] { residency->make_room(SIZE_MAX); }).join();
      const Event encoded = sink.only(EventKind::kEncode, record->id);
      EXPECT_EQ(encoded.place, place);
      EXPECT_EQ(encoded.bytes, late ? kBytes / 2 : kBytes);
      if (place == PayloadPlace::kInPlace) {
        EXPECT_EQ(encoded.block.value, source);
      } else {
        const Event room = sink.only(
            place == PayloadPlace::kChunk ? EventKind::kPayloadAllocate : EventKind::kAllocate,
            record->id);
        EXPECT_EQ(encoded.block, room.block);
        EXPECT_EQ(encoded.address, room.address);
        EXPECT_NE(encoded.block.value, source);
      }
      pool->events().attach(nullptr);
      codec.late = false;
      pool->free(other);
      residency->drop(record);
      expect_empty();
    }
  }
}

TEST_F(RecomputedTest, AnEncodeThatNeedsNoBytesHasNoPlace) {
  struct Sink final : EventSink {
    std::vector<Event> encodes;
    void on_event(const Event& event) noexcept override {
      if (event.kind == EventKind::kEncode) encodes.push_back(event);
    }
  } sink;
  pool->events().attach(&sink);
  save_argument_and_result(7, 10);
  pool->events().attach(nullptr);
  ASSERT_EQ(sink.encodes.size(), 2u);
  const Event& recomputed = sink.encodes[0].bytes == 0 ? sink.encodes[0] : sink.encodes[1];
  EXPECT_EQ(recomputed.bytes, 0u);
  EXPECT_EQ(recomputed.place, PayloadPlace::kNone);
  EXPECT_EQ(recomputed.block, BlockId{});
  EXPECT_EQ(recomputed.address, 0u);
  residency->drop(result);
  residency->drop(argument);
  expect_empty();
}

TEST_F(ResidencyTest, PutAndGetTakeSeveralBlocks) {
  Store store(*pool, order, *arena, codec);
  const ByteRanges all = [] {
    ByteRanges ranges;
    ranges.add({0, kBytes});
    return ranges;
  }();
  std::vector<Put> puts;
  for (unsigned char i = 0; i < 3; ++i) {
    puts.push_back({.block = filled_block(i),
                    .bytes = kBytes,
                    .ranges = &all,
                    .form = i == 1 ? StoreForm::kInPlace : StoreForm::kPayload});
  }
  store.put(puts);
  std::vector<Get> gets;
  for (Put& put : puts) {
    const auto& payload = std::get<Payload>(put.stored);
    EXPECT_EQ(payload.is_in_place(), put.form == StoreForm::kInPlace);
    if (!payload.is_in_place()) pool->free(put.block);
    gets.push_back(
        {.from = &put.stored, .ranges = &all, .target = pool->allocate(kBytes), .bytes = kBytes});
  }
  store.get(gets);
  for (unsigned char i = 0; i < 3; ++i) {
    EXPECT_TRUE(gets[i].status == CodecStatus::kOk && holds(gets[i].target, i));
    pool->free(gets[i].target);
    store.free(puts[i].stored);
  }
  expect_empty();
}

TEST_F(ResidencyTest, RoomIsMadeForTheBytesThatAreAskedFor) {
  codec.late = true;
  codec.late_bytes = kBytes / 2;
  FakeStorage storage;
  std::vector<FakeRecord*> records;
  std::vector<Block*> blocks;
  for (unsigned char i = 0; i < 6; ++i) {
    blocks.push_back(filled_block(i));
    records.push_back(tag(blocks.back(), storage));
    records.back()->until = Hold::kProof;
  }
  storage.alive = false;
  for (Block* const block : blocks) residency->release(block);
  EXPECT_TRUE(residency->make_room(kBytes / 2 + 1));
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i]->state, i < 2 ? RecordState::kPacked : RecordState::kWaiting) << i;
  }
  EXPECT_TRUE(residency->make_room(SIZE_MAX));
  EXPECT_FALSE(residency->make_room(1)) << "nothing is left to do";
  codec.fail = true;
  storage.alive = true;
  Block* const refused = filled_block(9);
  records.push_back(tag(refused, storage));
  records.back()->until = Hold::kProof;
  storage.alive = false;
  residency->release(refused);
  EXPECT_FALSE(residency->make_room(1)) << "its wait ends, but no byte is free";
  EXPECT_EQ(records.back()->state, RecordState::kHeld);
  for (FakeRecord* const record : records) residency->drop(record);
  expect_empty();
}

TEST(HeapTest, AllocationClimbsTheLadderToItsEnd) {
  struct Memory final : BlockMemory {
    explicit Memory(Pool& all) : pool(all) {}
    Statistics& statistics() const noexcept override { return pool.statistics(); }
    EventSource& events() const noexcept override { return pool.events(); }
    Block* allocate(std::size_t bytes, StreamId stream) noexcept override {
      ++tries;
      return refuses > 0 && refuses-- > 0 ? nullptr : pool.allocate(bytes, stream);
    }
    Block* allocate_packed(std::size_t b, StreamId s, RecordId o) noexcept override {
      return pool.allocate_packed(b, s, o);
    }
    Block* allocate_container(std::size_t b, StreamId s) noexcept override {
      return pool.allocate_container(b, s);
    }
    void count_requested(EventScope& scope, std::int64_t bytes) noexcept override {
      pool.count_requested(scope, bytes);
    }
    void free(Block* block) noexcept override { pool.free(block); }
    void shrink(Block* block, std::size_t bytes) noexcept override { pool.shrink(block, bytes); }
    void note_use(Block*, StreamId) noexcept override {}
    bool used_elsewhere(const Block*) const noexcept override { return false; }
    void copy(void* to, const void* from, std::size_t bytes, StreamId) noexcept override {
      std::memcpy(to, from, bytes);
    }
    Block* find(const void* address) const noexcept override { return pool.find(address); }
    void lock_for_fork() noexcept override {}
    void unlock_after_fork() noexcept override {}
    Pool& pool;
    int refuses = 0, tries = 0;
  };
  static int caches = 0;
  HostDevice device;
  Statistics statistics;
  Pool pool(device, PoolOptions{}, statistics);
  Memory memory(pool);
  SynchronousOrder order;
  InvertingCodec codec;
  Heap heap(memory, order, codec, {});
  memory.refuses = 1;
  EXPECT_EQ(heap.allocate(4096), nullptr) << "nothing waits, and there are no caches";
  EXPECT_EQ(memory.tries, 1);
  heap.set_caches([](DeviceIndex) noexcept { return caches > 0 && caches-- > 0; });
  for (const int filled : {0, 1, 3}) {
    caches = filled;
    memory.tries = 0;
    memory.refuses = 3;
    Block* const block = heap.allocate(4096);
    EXPECT_EQ(block != nullptr, filled == 3);
    EXPECT_EQ(memory.tries, filled + 1) << "one more try for each that was freed";
    memory.refuses = 0;
    if (block != nullptr) heap.release(block);
  }
}

// A thread frees the restored block while another thread with a reference restores anew.
TEST_F(ResidencyTest, FreeingASupersededRestoredBlockKeepsTheBytes) {
  enum Case { kArena, kInPlace, kHeldRaw };
  for (const Case which : {kArena, kInPlace, kHeldRaw}) {
    for (const bool second_dies_first : {false, true}) {
      SCOPED_TRACE(std::to_string(which) + (second_dies_first ? " second first" : ""));
      ResidencyOptions options;
      options.form = which == kInPlace   ? StoreForm::kInPlace
                     : which == kHeldRaw ? StoreForm::kRaw
                                         : StoreForm::kPayload;
      residency->set_options(options);
      FakeStorage storage;
      FakeRecord* const record = tag_and_release(7, storage);
      Block* const first = restore(*record);
      ASSERT_TRUE(holds(first, 7));
      std::thread freeing;
      Block* second = nullptr;
      {
        Residency::RecordGuard guard(*residency, *record);
        freeing = std::thread([&] { residency->release(first); });
        while (first->record.load() != nullptr) std::this_thread::yield();
        Residency::RestoreStatus status{};
        second = residency->restore_locked(guard, *record, {}, record->reading, &status);
        ASSERT_NE(second, nullptr);
        EXPECT_TRUE(holds(second, 7));
        EXPECT_EQ(statistics.current(StatKind::kRestored), static_cast<std::int64_t>(kBytes));
      }
      if (second_dies_first) {
        residency->release(second);
        freeing.join();
      } else {
        freeing.join();
        residency->release(second);
      }
      EXPECT_EQ(statistics.current(StatKind::kRestored), 0);
      Block* const third = restore(*record);
      ASSERT_NE(third, nullptr);
      EXPECT_TRUE(holds(third, 7));
      residency->release(third);
      residency->drop(record);
      expect_empty();
    }
  }
}

TEST_F(ResidencyTest, HooksDroppedBeforeReleaseLeaveAnOrdinaryBlock) {
  FakeStorage storage;
  std::atomic<int> destroyed{0};
  Block* const block = filled_block(1);
  FakeRecord* const record = tag(block, storage, &destroyed);
  EXPECT_EQ(tag(block, storage), record);  // a second hook
  residency->drop(record);
  EXPECT_EQ(destroyed, 0);
  residency->drop(record);
  EXPECT_EQ(destroyed, 1);
  storage.alive = false;
  residency->release(block);
  EXPECT_EQ(codec.encodes, 0);
  expect_empty();
}

TEST_F(ResidencyTest, FreeOfALivingStoragesBlockKeepsTheStorageWithoutEncode) {
  FakeStorage storage;  // alive: resize_(0) or a swapped data pointer
  Block* const block = filled_block(1);
  FakeRecord* const record = tag(block, storage);
  residency->release(block);
  EXPECT_EQ(record->state, RecordState::kKept);
  EXPECT_EQ(codec.encodes, 0);
  residency->drop(record);
  expect_empty();
}

// Taking a reference can need the interpreter's lock, whose owner can be waiting to restore.
TEST_F(ResidencyTest, OtherThreadsCanRestoreWhileReferencesAreTaken) {
  FakeStorage storage;
  Block* const block = filled_block(1);
  FakeRecord* const record = tag(block, storage);
  std::future<void> restored;
  bool in_time = false;
  record->while_keeping = [&] {
    restored = std::async(std::launch::async,
                          [&] { const Residency::RecordGuard guard(*residency, *record); });
    in_time = restored.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  };
  residency->release(block);
  EXPECT_TRUE(in_time);
  EXPECT_EQ(record->state, RecordState::kKept);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, RefusedBlockIsHeldRawAndAdoptedAtRestore) {
  codec.refuse = true;
  FakeStorage storage;
  Block* const block = filled_block(9);
  FakeRecord* const record = tag(block, storage);
  storage.alive = false;
  residency->release(block);
  EXPECT_EQ(record->state, RecordState::kHeld);
  EXPECT_EQ(restore(*record), block) << "no copy: the raw block itself is handed out";
  EXPECT_TRUE(holds(block, 9));
  residency->release(block);
  EXPECT_EQ(record->state, RecordState::kHeld);
  EXPECT_EQ(restore(*record), block);
  residency->drop(record);  // the graph is freed first, while the user holds the restored storage
  EXPECT_EQ(statistics.current(StatKind::kRequested), static_cast<std::int64_t>(kBytes));
  residency->release(block);
  expect_empty();
}

TEST_F(ResidencyTest, FailedEncodeKeepsTheBytes) {
  codec.fail = true;
  FakeStorage storage;
  Block* const block = filled_block(5);
  FakeRecord* const record = tag(block, storage);
  storage.alive = false;
  residency->release(block);
  EXPECT_EQ(record->state, RecordState::kHeld);
  EXPECT_TRUE(holds(restore(*record), 5));
  residency->release(block);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, DamagedPayloadIsReportedAndNotReturned) {
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(5, storage);
  codec.damaged = true;
  {
    Residency::RecordGuard guard(*residency, *record);
    Residency::RestoreStatus status{};
    EXPECT_EQ(residency->restore_locked(guard, *record, {}, record->reading, &status), nullptr);
    EXPECT_EQ(status, Residency::RestoreStatus::kDamaged);
  }
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, BlockThatIsNeverFreedIsCopiedWhileItExists) {
  FakeStorage storage;
  Block* const block = filled_block(3);
  FakeRecord* const record = tag(block, storage);
  storage.alive = false;  // freed, but its data pointer was moved elsewhere
  Block* const copy = restore(*record);
  ASSERT_NE(copy, block);
  EXPECT_TRUE(holds(copy, 3));
  std::memset(block->begin, 4, kBytes);  // its new owner writes
  residency->release(copy);
  residency->release(block);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, ForwardEndEncodesEveryHeldBlockOnce) {
  build();
  FakeStorage storage;
  std::vector<FakeRecord*> records;
  for (unsigned char i = 0; i < 8; ++i) {
    Block* const block = filled_block(i);
    records.push_back(tag(block, storage));
    records.back()->until = Hold::kForwardEnd;
    if (i == 7) {
      storage.alive = false;
    }
  }
  // Release in order: all at once, because the fake storage is one flag.
  for (FakeRecord* record : records) {
    residency->release(raw_block(record->stored));
    EXPECT_EQ(record->state, RecordState::kWaiting);
  }
  EXPECT_EQ(codec.encodes, 0);
  residency->drop(records[3]);  // its graph is freed before the forward ends
  residency->forward_end();
  residency->forward_end();
  EXPECT_EQ(codec.encodes, 7);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i == 3) {
      continue;
    }
    EXPECT_EQ(records[i]->state, RecordState::kPacked);
    Block* const block = restore(*records[i]);
    EXPECT_TRUE(holds(block, static_cast<unsigned char>(i)));
    residency->release(block);
    residency->drop(records[i]);
  }
  expect_empty();
}

TEST_F(ResidencyTest, RecordWaitsForItsProofAndDecidesBeforeItsEncode) {
  build();
  FakeStorage storage;
  const auto released = [&](unsigned char value, bool awaits) {
    storage.alive = true;
    Block* const block = filled_block(value);
    FakeRecord* const record = tag(block, storage);
    record->until = awaits ? Hold::kProof : Hold::kNone;
    storage.alive = false;
    residency->release(block);
    return record;
  };
  const auto prove = [&](FakeRecord* record) {
    record->until = Hold::kNone;
    residency->start(*record);
  };
  FakeRecord* const longer = released(1, true);
  FakeRecord* const shorter = released(2, true);
  FakeRecord* const adopted = released(3, true);
  FakeRecord* const dropped = released(4, true);
  FakeRecord* const not_at_all = released(5, false);
  EXPECT_EQ(not_at_all->state, RecordState::kPacked);
  EXPECT_EQ(not_at_all->started_by, Start::kRelease);
  EXPECT_EQ(longer->waiting.hold, Hold::kProof);
  residency->advance();
  residency->forward_end();  // brings no proofs
  EXPECT_EQ(codec.encodes, 1);
  Block* const block = restore(*adopted);
  EXPECT_TRUE(holds(block, 3));
  prove(adopted);  // too late: it is being read
  residency->drop(dropped);
  EXPECT_EQ(codec.encodes, 1);
  EXPECT_TRUE(residency->any_waiting());
  shorter->mind_changed = true;
  prove(shorter);
  EXPECT_EQ(shorter->state, RecordState::kPacked);
  EXPECT_EQ(shorter->started_by, Start::kProof);
  EXPECT_EQ(codec.last_choice, 7u);
  EXPECT_EQ(longer->state, RecordState::kWaiting);
  prove(longer);
  prove(longer);  // a repetition has no effect
  EXPECT_EQ(longer->state, RecordState::kPacked);
  EXPECT_FALSE(residency->any_waiting());
  EXPECT_EQ(codec.last_choice, 0u);

  // A proof that comes before the release ends the wait in advance.
  storage.alive = true;
  Block* const living = filled_block(6);
  FakeRecord* const early = tag(living, storage);
  early->until = Hold::kProof;
  prove(early);
  EXPECT_EQ(early->state, RecordState::kTagged);
  storage.alive = false;
  residency->release(living);
  EXPECT_EQ(early->state, RecordState::kPacked);
  EXPECT_EQ(codec.encodes, 4);
  const std::pair<FakeRecord*, unsigned char> packed[] = {
      {longer, 1}, {shorter, 2}, {not_at_all, 5}, {early, 6}};
  for (const auto& [record, value] : packed) {
    Block* const copy = restore(*record);
    EXPECT_TRUE(holds(copy, value));
    residency->release(copy);
  }
  residency->release(block);
  for (FakeRecord* const record : {longer, shorter, adopted, not_at_all, early}) {
    residency->drop(record);
  }
  expect_empty();
}

TEST_F(ResidencyTest, WaitsForProofsEndOnceTheyTakeTooMuchMemory) {
  for (const std::size_t part : {std::size_t{2}, std::size_t{3}}) {
    SCOPED_TRACE(part);
    build({.waiting_part_of_peak = part});
    std::vector<Block*> blocks;
    for (unsigned char i = 0; i < 12; ++i) {
      blocks.push_back(filled_block(i));
    }
    FakeStorage storage;
    std::vector<FakeRecord*> records;
    for (Block* const block : blocks) {
      storage.alive = true;
      records.push_back(tag(block, storage));
      records.back()->until = Hold::kProof;
      storage.alive = false;
      residency->release(block);
    }
    residency->advance();
    const auto peak = static_cast<std::size_t>(pool->statistics().read(StatKind::kRequested).peak);
    const std::size_t may_wait = peak / part / kBytes;
    ASSERT_GE(may_wait, 4u);
    ASSERT_LT(may_wait, records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (i < records.size() - may_wait) {  // the oldest
        EXPECT_EQ(records[i]->state, RecordState::kPacked) << i;
        EXPECT_EQ(records[i]->started_by, Start::kShortage) << i;
      } else {
        EXPECT_EQ(records[i]->state, RecordState::kWaiting) << i;
      }
    }
    for (FakeRecord* const record : records) {
      residency->drop(record);
    }
    expect_empty();
  }
}

TEST_F(ResidencyTest, OldestVerdictsAreAwaitedOnceTheirSourcesTakeTooMuchMemory) {
  for (const std::size_t part : {std::size_t{0}, std::size_t{3}, std::size_t{16}}) {
    SCOPED_TRACE(part);
    codec.late = true;
    codec.late_bytes = kBytes;
    codec.awaited.clear();
    codec.last_ticket = 0;
    build({.judged_part_of_peak = part});
    std::vector<Block*> blocks;
    for (unsigned char i = 0; i < 12; ++i) blocks.push_back(filled_block(i));
    FakeStorage storage;
    std::vector<FakeRecord*> records;
    for (Block* const block : blocks) {
      storage.alive = true;
      records.push_back(tag(block, storage));
      storage.alive = false;
      residency->release(block);
    }
    const auto peak = static_cast<std::size_t>(pool->statistics().read(StatKind::kRequested).peak);
    const std::size_t may_wait = part == 0 ? 12 : std::max<std::size_t>(2, peak / part / kBytes);
    ASSERT_TRUE(part != 3 || (may_wait > 2 && may_wait < 12)) << may_wait;
    ASSERT_TRUE(part != 16 || may_wait == 2) << "at least two wait, whatever the peak";
    EXPECT_EQ(codec.awaited.size(), 12 - may_wait);
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(records[i]->state == RecordState::kWaiting, i >= 12 - may_wait) << i;
    }
    for (FakeRecord* const record : records) residency->drop(record);
    expect_empty();
  }
}

TEST_F(ResidencyTest, EncodesAndRestoresReportTheirTimeAlsoAfterAVerdict) {
  struct Sink final : EventSink {
    std::map<EventKind, std::uint64_t> took_ns;
    void on_event(const Event& event) noexcept override { took_ns[event.kind] += event.took_ns; }
  };
  for (const bool late : {false, true}) {
    SCOPED_TRACE(late);
    codec.late = late;
    codec.late_bytes = kBytes;
    codec.delay = std::chrono::milliseconds(2);
    build({});
    Sink sink;
    pool->events().attach(&sink);
    FakeStorage storage;
    FakeRecord* const record = tag_and_release(1, storage);
    residency->make_room(SIZE_MAX);
    ASSERT_EQ(record->state, RecordState::kPacked);
    EXPECT_GE(sink.took_ns[EventKind::kEncode], 2'000'000u);
    EXPECT_EQ(sink.took_ns[EventKind::kEncode], residency->counters().encode_ns.load());
    residency->release(restore(*record));
    EXPECT_GT(sink.took_ns[EventKind::kRestore], 0u);
    residency->drop(record);
    // An adopted block needs no work.
    sink.took_ns.clear();
    codec.refuse = true;
    storage.alive = true;
    FakeRecord* const held = tag_and_release(2, storage);
    residency->release(restore(*held));
    EXPECT_EQ(sink.took_ns[EventKind::kRestore], 0u);
    residency->drop(held);
    codec.refuse = false;
    pool->events().attach(nullptr);
  }
}

TEST_F(ResidencyTest, OverdueVerdictIsNotAwaitedAgainAtOnce) {
  codec.late = codec.overdue = true;
  codec.late_bytes = kBytes / 2;
  build({.judged_part_of_peak = 16});
  FakeStorage storage;
  std::vector<FakeRecord*> records;
  for (unsigned char i = 0; i < 5; ++i) {
    storage.alive = true;
    records.push_back(tag_and_release(i, storage));
  }
  EXPECT_FALSE(residency->make_room(SIZE_MAX));
  for (FakeRecord* const record : records) EXPECT_EQ(record->state, RecordState::kWaiting);
  // Decided encodes, and blocks that need no verdict, do not wait behind it.
  codec.awaited.insert(3);
  EXPECT_TRUE(residency->make_room(SIZE_MAX));
  for (std::size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i]->state, i == 2 ? RecordState::kPacked : RecordState::kWaiting) << i;
  }
  codec.overdue = false;
  EXPECT_TRUE(residency->make_room(SIZE_MAX));
  for (FakeRecord* const record : records) {
    EXPECT_EQ(record->state, RecordState::kPacked);
    residency->drop(record);
  }
  expect_empty();
}

TEST_F(ResidencyTest, UnpackBeforeForwardEndAdoptsTheHeldBlock) {
  build();
  FakeStorage storage;
  Block* const block = filled_block(2);
  FakeRecord* const record = tag(block, storage);
  record->until = Hold::kForwardEnd;
  storage.alive = false;
  residency->release(block);
  EXPECT_EQ(restore(*record), block);
  residency->forward_end();
  EXPECT_EQ(codec.encodes, 0);
  residency->release(block);
  residency->drop(record);
  expect_empty();
}

// A thread finds the restored storage dead before the thread that dropped it frees the block.
TEST_F(ResidencyTest, RawBytesOutliveTheFreeOfTheirBlock) {
  build({.form = StoreForm::kRaw});
  for (const bool freed_before_the_copy : {false, true}) {
    FakeStorage storage;
    FakeRecord* const record = tag_and_release(6, storage);
    Block* const adopted = restore(*record);
    Block* const copy = restore(*record);
    ASSERT_NE(copy, adopted);
    EXPECT_TRUE(holds(copy, 6));
    if (freed_before_the_copy) {
      residency->release(adopted);
      Block* const stranger = filled_block(9);  // over the adopted block's bytes
      residency->release(copy);
      residency->release(stranger);
    } else {
      residency->release(copy);
      residency->release(adopted);
      residency->release(filled_block(9));
    }
    for (int i = 0; i < 2; ++i) {
      Block* const again = restore(*record);
      EXPECT_TRUE(holds(again, 6));
      residency->release(again);
    }
    residency->drop(record);
  }
  expect_empty();
}

// The same for a copy whose block was freed.
TEST_F(ResidencyTest, CopyOfBytesOutlivesThePreviousCopy) {
  build({.form = StoreForm::kRaw});
  FakeStorage storage;
  Block* const block = filled_block(7);
  FakeRecord* const record = tag(block, storage);
  storage.alive = false;  // its data pointer was moved out: the block is not freed yet
  Block* const first = restore(*record);
  ASSERT_NE(first, block);
  residency->release(block);
  Block* const second = restore(*record);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(holds(second, 7));
  residency->release(first);
  residency->release(filled_block(9));
  residency->release(second);
  Block* const third = restore(*record);
  EXPECT_TRUE(holds(third, 7));
  residency->release(third);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, InPlacePayloadStaysAtTheHeadOfItsBlock) {
  build({.form = StoreForm::kInPlace});
  FakeStorage storage;
  Block* const block = filled_block(6);
  FakeRecord* const record = tag(block, storage);
  storage.alive = false;
  residency->release(block);
  EXPECT_EQ(record->state, RecordState::kPacked);
  EXPECT_TRUE(payload_of(record->stored)->is_in_place());
  EXPECT_EQ(payload_of(record->stored)->slot.address(), block->begin);
  Block* const copy = restore(*record);
  EXPECT_TRUE(holds(copy, 6));
  residency->release(copy);
  residency->drop(record);
  expect_empty();
}

TEST_F(ResidencyTest, StoppedEncodingHoldsRaw) {
  residency->stop_encoding();
  FakeStorage storage;
  FakeRecord* const record = tag_and_release(6, storage);
  EXPECT_EQ(record->state, RecordState::kHeld);
  EXPECT_EQ(codec.encodes, 0);
  residency->drop(record);
  expect_empty();
}

// A release in one thread races the unpack and the drop of two hooks in other threads.
TEST_F(ResidencyTest, ReleaseRacingUnpackReturnsTheBytes) {
  codec.delay = std::chrono::microseconds(50);
  for (int round = 0; round < 200; ++round) {
    FakeStorage storage;
    const auto value = static_cast<unsigned char>(round);
    Block* const block = filled_block(value);
    FakeRecord* const record = tag(block, storage);
    tag(block, storage);
    std::atomic<int> ready{0};
    std::atomic<bool> good{true};
    const auto unpack = [&] {
      ++ready;
      while (ready < 3) {
      }
      while (storage.alive) {
      }
      Block* mine = nullptr;
      {
        Residency::RecordGuard guard(*residency, *record);
        Residency::RestoreStatus status{};
        mine = residency->restore_locked(guard, *record, {}, record->reading, &status);
        good = good && mine != nullptr && holds(mine, value);
      }
      residency->release(mine);
      residency->drop(record);
    };
    const auto drop_only = [&] {
      ++ready;
      while (ready < 3) {
      }
      while (storage.alive) {
      }
      residency->drop(record);
    };
    std::thread first(unpack);
    std::thread second(drop_only);
    ++ready;
    while (ready < 3) {
    }
    storage.alive = false;
    residency->release(block);
    first.join();
    second.join();
    ASSERT_TRUE(good) << "round " << round;
  }
  expect_empty();
}

// fork() while another thread encodes: the child has the record, but not the thread.
TEST_F(ResidencyTest, ForkWaitsForARunningEncode) {
  codec.delay = std::chrono::milliseconds(300);
  FakeStorage storage;
  Block* const block = filled_block(9);
  FakeRecord* const record = tag(block, storage);
  storage.alive = false;
  std::thread encoding([&] { residency->release(block); });
  while (codec.encodes == 0) std::this_thread::yield();
  residency->lock_for_fork();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a deadlock must not hang the test
    residency->unlock_after_fork(ForkSide::kChild);
    Block* const mine = restore(*record);
    if (mine == nullptr || !holds(mine, 9)) _exit(1);
    residency->release(mine);
    residency->drop(record);
    residency->lock_for_fork();  // a child can fork as well
    residency->unlock_after_fork(ForkSide::kParent);
    _exit(0);
  }
  residency->unlock_after_fork(ForkSide::kParent);
  encoding.join();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Block* const again = restore(*record);
  EXPECT_TRUE(holds(again, 9));
  residency->release(again);
  residency->drop(record);
  expect_empty();
}

// Threads keep encoding their own records and restoring one that the child restores too.
TEST_F(ResidencyTest, ForksAmongEncodesAndRestores) {
  FakeStorage shared_storage;
  FakeRecord* const shared = tag_and_release(5, shared_storage);
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int t = 0; t < 2; ++t) {
    busy.emplace_back([&] {
      while (!stop) {
        FakeStorage storage;
        FakeRecord* const record = tag_and_release(3, storage);
        residency->release(restore(*record));
        residency->drop(record);
        residency->release(restore(*shared));
      }
    });
  }
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    residency->lock_for_fork();
    const pid_t child = fork();
    residency->unlock_after_fork(child == 0 ? ForkSide::kChild : ForkSide::kParent);
    if (child == 0) {
      alarm(20);
      Block* const mine = restore(*shared);
      _exit(mine != nullptr && holds(mine, 5) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "waited in vain";
  stop = true;
  for (std::thread& thread : busy) thread.join();
  residency->drop(shared);
  expect_empty();
}

// A section can wait for a lock of the forking thread: the fork must proceed nevertheless.
TEST(ForkGateTest, CloseEndsItsWaitAfterThePatience) {
  using namespace std::chrono_literals;
  ForkGate gate;
  std::atomic<bool> inside{false}, leave{false}, entered{false};
  std::thread stuck([&] {
    const ForkGate::Section section(gate);
    inside = true;
    while (!leave) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  gate.close(30ms);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
  std::thread late([&] {
    const ForkGate::Section section(gate);
    entered = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(entered) << "a closed gate lets nobody in";
  gate.open(ForkSide::kParent);
  late.join();
  leave = true;
  stuck.join();
  gate.close(10s);  // at once: no section is running
  gate.open(ForkSide::kParent);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(RecordStateTest, OnlyTheTransitionsOfTheTableHappen) {
  using S = RecordState;
  using A = RecordAction;
  S s = S::kTagged;
  EXPECT_FALSE(apply(s, A::kEncode));
  EXPECT_EQ(s, S::kTagged);
  EXPECT_TRUE(apply(s, A::kRelease));
  EXPECT_EQ(s, S::kHeld) << "no thread encodes it yet";
  EXPECT_TRUE(apply(s, A::kWait));
  EXPECT_TRUE(apply(s, A::kEncode));
  EXPECT_FALSE(apply(s, A::kRelease));
  EXPECT_TRUE(apply(s, A::kEncoded));
  EXPECT_FALSE(apply(s, A::kEncode)) << "a payload is never encoded again";
  EXPECT_TRUE(apply(s, A::kRestore));
  EXPECT_TRUE(apply(s, A::kRestoredFreed));
  EXPECT_EQ(s, S::kPacked);
}

}  // namespace
}  // namespace pleat::allocator

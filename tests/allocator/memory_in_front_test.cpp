// Blocks over memory that another allocator hands out.
#include "allocator/cuda/memory_in_front.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

namespace pleat::allocator::cuda {
namespace {

// An allocator beneath that tracks its blocks.
class Beneath final : public RawMemory {
 public:
  bool is_private(DeviceIndex /*device*/, StreamId stream) noexcept override {
    return stream == private_stream;
  }
  StreamId private_stream{~std::uint64_t{0}};
  void* allocate(DeviceIndex device, std::size_t bytes, StreamId stream) noexcept override {
    ++asked;
    if (is_short) return nullptr;
    void* const pointer = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    living[pointer] = {device.value, stream.value};
    return pointer;
  }
  void free(void* pointer) noexcept override {
    EXPECT_EQ(living.erase(pointer), 1u) << "freed twice, or never allocated";
    std::free(pointer);
  }
  void note_use(DeviceIndex, void* pointer, StreamId stream) noexcept override {
    uses.emplace_back(pointer, stream.value);
  }
  std::map<void*, std::pair<int, std::uint64_t>> living;
  std::vector<std::pair<void*, std::uint64_t>> uses;
  int asked = 0;
  bool is_short = false;
};

class MemoryInFrontTest : public ::testing::Test {
 protected:
  static constexpr StreamId kStream{5};
  std::int64_t requested() { return memory.statistics().current(StatKind::kRequested); }

  Beneath beneath;
  BlockTable blocks;
  Driver driver;
  DriverLife life;
  MemoryInFront memory{DeviceIndex{0}, beneath, blocks, driver, life};
  MemoryInFront other{DeviceIndex{1}, beneath, blocks, driver, life};
};

TEST_F(MemoryInFrontTest, StorageSavedTwiceHasOneBlock) {
  void* const storage = beneath.allocate(DeviceIndex{0}, 1000, kStream);
  EXPECT_EQ(blocks.find(storage).block, nullptr);
  Block* const block = memory.adopt(storage, 1000, kStream);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(memory.adopt(storage, 1000, kStream), block);
  EXPECT_EQ(block->begin, storage);
  EXPECT_EQ(block->requested, 1000u);
  EXPECT_EQ(requested(), 1000);
  EXPECT_EQ(blocks.find(storage).memory, &memory);
  EXPECT_EQ(memory.find(storage), block);
  EXPECT_EQ(other.find(storage), nullptr);
  EXPECT_EQ(block->stream, kStream);
  memory.free(block);
  EXPECT_TRUE(beneath.living.empty());
  EXPECT_EQ(blocks.size(), 0u);
  EXPECT_EQ(requested(), 0);
}

TEST_F(MemoryInFrontTest, BlockIsAllocatedForItsStreamAndDevice) {
  Block* const block = other.allocate(3000, kStream);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(beneath.living.at(block->begin), std::pair(1, std::uint64_t{5}));
  EXPECT_EQ(block->stream, kStream);
  other.note_use(block, StreamId{6});
  ASSERT_EQ(beneath.uses.size(), 1u);
  EXPECT_EQ(beneath.uses[0], std::pair(static_cast<void*>(block->begin), std::uint64_t{6}));
  other.free(block);
  EXPECT_TRUE(beneath.living.empty());
}

TEST_F(MemoryInFrontTest, ReusedAddressIsANewBlock) {
  void* const storage = beneath.allocate(DeviceIndex{0}, 1000, kStream);
  const BlockId first = memory.adopt(storage, 1000, kStream)->id;
  memory.free(blocks.find(storage).block);
  void* const again = beneath.allocate(DeviceIndex{0}, 1000, kStream);
  Block* const block = memory.adopt(again, 2000, kStream);
  EXPECT_NE(block->id.value, first.value);
  EXPECT_EQ(block->requested, 2000u);
  EXPECT_EQ(block->record.load(), nullptr);
  memory.free(block);
}

TEST_F(MemoryInFrontTest, PrivatePoolGetsNoPayload) {
  beneath.private_stream = StreamId{7};
  EXPECT_EQ(memory.allocate_packed(100, StreamId{7}, {}), nullptr);
  EXPECT_EQ(memory.allocate_container(100, StreamId{7}), nullptr);
  EXPECT_EQ(beneath.asked, 0);
  Block* const restored = memory.allocate(100, StreamId{7});
  ASSERT_NE(restored, nullptr);
  memory.free(restored);
}

TEST_F(MemoryInFrontTest, AfterAShortageNoPayloadIsTriedUntilAFree) {
  Block* const held = memory.allocate(1000, kStream);
  beneath.is_short = true;
  EXPECT_EQ(memory.allocate_container(1 << 20, kStream), nullptr);
  const int asked = beneath.asked;
  EXPECT_EQ(memory.allocate_container(1 << 20, kStream), nullptr);
  EXPECT_EQ(memory.allocate_packed(100, kStream, {}), nullptr);
  EXPECT_EQ(beneath.asked, asked) << "each try flushes the caches beneath";
  EXPECT_EQ(memory.allocate(100, kStream), nullptr);
  EXPECT_EQ(beneath.asked, asked + 1) << "a restore has no choice";
  beneath.is_short = false;
  memory.free(held);
  Block* const container = memory.allocate_container(1 << 20, kStream);
  ASSERT_NE(container, nullptr);
  EXPECT_EQ(container->requested, 0u);
  EXPECT_EQ(requested(), 0) << "its owner counts piece by piece";
  EXPECT_EQ(memory.statistics().current(StatKind::kActive), 1 << 20);
  memory.free(container);
  EXPECT_EQ(memory.statistics().current(StatKind::kActive), 0);
}

}  // namespace
}  // namespace pleat::allocator::cuda

#include "torch_bridge/cuda/storage_notes.h"

#include <gtest/gtest.h>

namespace pleat::bridge::cuda {
namespace {

using allocator::StreamId;

int memory[4];

TEST(StorageNotes, MemoryIsOfTheStreamItWasAllocatedFor) {
  StorageNotes notes;
  notes.allocated(&memory[0], 0, StreamId{7}, false);
  notes.allocated(&memory[1], 0, StreamId{8}, false);
  notes.allocated(&memory[2], 1, StreamId{8}, false);
  EXPECT_EQ(notes.find(&memory[0], 0).stream, StreamId{7});
  EXPECT_EQ(notes.find(&memory[1], 0).stream, StreamId{8});
  EXPECT_EQ(notes.find(&memory[2], 1).stream, StreamId{8}) << "each device has a first stream";
  notes.freed(&memory[1]);
  notes.allocated(&memory[1], 0, StreamId{7}, false);
  EXPECT_EQ(notes.find(&memory[1], 0).stream, StreamId{7}) << "an address serves again";
}

TEST(StorageNotes, AUseIsKnownUntilTheMemoryIsFreed) {
  StorageNotes notes;
  notes.allocated(&memory[0], 0, StreamId{0}, false);
  notes.allocated(&memory[1], 0, StreamId{5}, false);
  notes.used(&memory[0], 0);
  notes.used(&memory[1], 0);
  EXPECT_TRUE(notes.find(&memory[0], 0).used_elsewhere);
  EXPECT_EQ(notes.find(&memory[0], 0).stream, StreamId{0});
  EXPECT_EQ(notes.find(&memory[1], 0).stream, StreamId{5});
  EXPECT_FALSE(notes.find(&memory[2], 0).used_elsewhere);
  notes.freed(&memory[0]);
  EXPECT_FALSE(notes.find(&memory[0], 0).used_elsewhere);
}

TEST(StorageNotes, MemoryOfAPrivatePoolIsToldFromOther) {
  StorageNotes notes;
  notes.allocated(&memory[0], 0, StreamId{3}, true);
  notes.allocated(&memory[1], 0, StreamId{3}, false);
  EXPECT_TRUE(notes.find(&memory[0], 0).is_private);
  EXPECT_FALSE(notes.find(&memory[1], 0).is_private);
  notes.freed(&memory[0]);
  EXPECT_FALSE(notes.find(&memory[0], 0).is_private);
}

}  // namespace
}  // namespace pleat::bridge::cuda

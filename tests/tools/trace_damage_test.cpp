// The reader against files that are no traces, that are cut, that are damaged, and that lie.
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "tests/tools/trace/reading.h"

namespace pleat::trace {
namespace {

using namespace testing;

// ---- what is no trace ---------------------------------------------------------------------------

TEST(TraceReader, WhatIsNoTraceIsOneClearLine) {
  EXPECT_EQ(open("").error, "this file is empty");
  EXPECT_EQ(open("PleatTr").error, "this trace was cut off before it began");
  EXPECT_EQ(open("hello, this is a text file").error, "this is no trace of Pleat");
  EXPECT_EQ(open(Bytes(100, '\0')).error, "this is no trace of Pleat");
  Bytes newer = TraceWriter().finish();
  newer[8] = 3;
  EXPECT_EQ(open(newer).error, "the trace is of version 3, this pleat reads 2");
  std::string error;
  EXPECT_EQ(File::open("/nonexistent/trace", error), nullptr);
  EXPECT_EQ(error, "No such file or directory");
  EXPECT_EQ(File::open("/tmp", error), nullptr);
  EXPECT_EQ(error, "this is a folder");
  EXPECT_EQ(File::open("/dev/zero", error), nullptr);
  EXPECT_EQ(error, "no plain file");
}

TEST(TraceReader, AGigabyteOfZerosIsRefusedAtOnceAndAfterAHeaderToo) {
  std::string error;
  for (const Bytes& head : {Bytes(), TraceWriter().bytes()}) {
    const MemoryFile memory(head);
    memory.grow(std::int64_t{1} << 30);
    const std::unique_ptr<File> file = File::open(memory.path(), error);
    EXPECT_EQ(file == nullptr, head.empty());
    if (file == nullptr) continue;
    EXPECT_TRUE(file->incomplete());
    EXPECT_EQ(file->records(), 0u);
    EXPECT_EQ(file->problems().damaged_blocks, 1u);
  }
}

// ---- damage -------------------------------------------------------------------------------------

struct Small {
  Bytes bytes;
  std::vector<std::size_t> ends;  // of blocks of records
  Events events;                  // of the block that ends there: 20 each
};

Small small_trace(Packing packing) {
  Small small;
  TraceWriter writer;
  writer.packing = packing;
  writer.process(R"({"pid": 1})");
  for (unsigned i = 0; i < 3; ++i) {
    writer.string("op" + std::to_string(i));
    const Events events = any_events(20, i, 10000 * i);
    writer.records(events);
    small.events.insert(small.events.end(), events.begin(), events.end());
    small.ends.push_back(writer.bytes().size());
  }
  small.bytes = writer.finish();
  return small;
}

TEST(TraceReader, AFileCutAnywhereOpensWithWhatIsWhole) {
  const Small small = small_trace(Packing::kZstd);
  for (std::size_t cut = 0; cut < small.bytes.size(); ++cut) {
    const Opened opened = open(small.bytes.substr(0, cut));
    if (cut < 16) {
      EXPECT_EQ(opened.file, nullptr);
      continue;
    }
    ASSERT_NE(opened.file, nullptr) << cut << ": " << opened.error;
    EXPECT_TRUE(opened.file->incomplete()) << cut;
    EXPECT_EQ(opened.file->problems().all(), 0u) << cut;
    const auto whole = static_cast<std::size_t>(
        std::upper_bound(small.ends.begin(), small.ends.end(), cut) - small.ends.begin());
    expect_same(read(*opened.file),
                Events(small.events.begin(), small.events.begin() + 20 * whole));
  }
}

TEST(TraceReader, ABitThatFlipsCostsAtMostItsBlock) {
  const Small small = small_trace(Packing::kZstd);
  for (std::size_t place = 16; place < small.bytes.size(); ++place) {
    Bytes bytes = small.bytes;
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << (place % 8)));
    const Opened opened = open(bytes);
    ASSERT_NE(opened.file, nullptr);
    EXPECT_GE(read(*opened.file).size(), 40u) << place;
  }
}

TEST(TraceReader, FlipsInWhatIsNotPackedDoNoHarm) {
  const Small small = small_trace(Packing::kNone);
  std::mt19937 random(5);
  for (int turn = 0; turn < 1500; ++turn) {
    Bytes bytes = small.bytes;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << random() % 8);
    const Opened opened = open(bytes);
    if (opened.file == nullptr) continue;
    EXPECT_LE(read(*opened.file).size(), 60u);
  }
}

TEST(TraceReader, ADamagedHeaderIsPassedByItsLengthByTheIndexOrBySearching) {
  for (const bool length_too : {false, true}) {
    for (const bool with_index : {false, true}) {
      TraceWriter writer;
      std::size_t damaged = 0;
      for (unsigned i = 0; i < 3; ++i) {
        if (i == 1) damaged = writer.bytes().size();
        writer.records(at_times({10 * i, 10 * i + 1}, i));
      }
      Bytes bytes = with_index ? writer.finish() : writer.bytes();
      bytes[damaged + 41] = static_cast<char>(~bytes[damaged + 41]);  // the check
      if (length_too) std::memset(&bytes[damaged + 8], 0xff, 4);
      const Opened opened = open(bytes);
      EXPECT_EQ(times(read(*opened.file)), (std::vector<std::uint64_t>{0, 1, 20, 21}));
      EXPECT_EQ(opened.file->problems().damaged_blocks, 1u);
      EXPECT_EQ(opened.file->incomplete(), !with_index);
    }
  }
}

TEST(TraceReader, ABombUnpacksToNoMoreThanItsHeaderSays) {
  TraceWriter writer;
  const Bytes zeros(64u << 20, '\0');
  Bytes packed(ZSTD_compressBound(zeros.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), zeros.data(), zeros.size(), 1));
  BlockHeader header{};
  header.magic = kBlockMagic;
  header.type = 6;
  header.packing = 1;
  header.stored_bytes = static_cast<std::uint32_t>(packed.size());
  header.raw_bytes = 1000;
  header.count = 10;
  writer.block_as_is(header, packed);
  header.raw_bytes = kMostRawBytes + 1;  // a header that is not sound
  writer.block_as_is(header, packed);
  writer.records(at_times({7}, 1));
  Problems problems;
  const Opened opened = open(writer.finish());
  EXPECT_EQ(times(read(*opened.file, &problems)), std::vector<std::uint64_t>{7});
  EXPECT_EQ(problems.damaged_blocks, 1u);
  EXPECT_EQ(opened.file->problems().damaged_blocks, 1u);
}

TEST(TraceReader, ColumnsThatAreNotSoundCostTheirBlock) {
  const Events events = any_events(10, 6);
  const Bytes sound = columns(events, {});
  std::vector<Bytes> wrong{sound + sound,
                           sound + '\x16',
                           "\x01",
                           Bytes("\x01\x02\x7f", 3),
                           Bytes("\x0b\x03\x01\x00", 4),
                           Bytes("\x01\x01\x01\x80", 4),
                           Bytes("\x01\x00\x02\x05\x05", 5),
                           Bytes("\x01\x09\x00", 3)};
  TraceWriter writer;
  for (const Bytes& raw : wrong) writer.block(6, raw, 10);
  writer.block(6, sound, 11, 0, 0);  // more records than the columns have
  writer.records(events);
  Problems problems;
  expect_same(read(*open(writer.finish()).file, &problems), events);
  EXPECT_EQ(problems.damaged_blocks, wrong.size() + 1);
}

TEST(TraceReader, ValuesThatNoRecordHasAreReplacedAndCounted) {
  Bytes raw("\x01\x00\x01\x05\x02\x00\x01\x16\x05\x01\x03\x01\xff\x7f", 14);  // device 16382
  raw += Bytes("\x07\x01\x07\x02\xff\xff\xff\xff\xff\x7f", 10);               // an op of 42 bits
  TraceWriter writer;
  writer.block(6, raw, 2, 5, 5);
  Problems problems;
  const Opened opened = open(writer.finish());
  const Events events = read(*opened.file, &problems);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].device, 127);
  EXPECT_EQ(opened.file->definitions().string(events[1].op), "?");
  EXPECT_EQ(problems.odd_values, 2u);
}

TEST(TraceReader, IdsOfDefinitionsThatAreNotSoundAreCounted) {
  TraceWriter writer;
  const auto numbers = [](std::initializer_list<std::uint64_t> all) {
    Bytes raw;
    for (const std::uint64_t number : all) put_number(raw, number);
    return raw;
  };
  writer.block(2, numbers({1, 1}) + "a", 1);
  writer.block(2, numbers({1, 1}) + "b", 1);  // an id again
  writer.block(2, numbers({~std::uint64_t{0}, 1}) + "c", 1);
  writer.block(2, numbers({10, 1}) + "d", 1);            // a gap: what was between is lost
  writer.block(2, numbers({11, ~std::uint64_t{0}}), 1);  // a length beyond the block
  writer.block(3, numbers({1, 3, 1, 1, 1}), 1);          // a kind there is none of
  writer.block(4, numbers({1, 0, 1}), 1000000);          // more than there are
  writer.block(1, Bytes(100000, '['), 1);
  writer.block(1, "7", 1);
  writer.block(6, Bytes(), 0);
  writer.block(99, "of a later time", 1);
  const Opened opened = open(writer.finish());
  const Definitions& all = opened.file->definitions();
  EXPECT_EQ(all.string(1), "a");
  EXPECT_EQ(all.string(2), "?");
  EXPECT_EQ(all.string(10), "d");
  EXPECT_EQ(all.stack(1)->frame, 1u);
  EXPECT_EQ(opened.file->problems().damaged_blocks, 7u);
}

}  // namespace
}  // namespace pleat::trace

// The reader against files that the test's own writer made: sound ones, and every kind of damage.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <tuple>

#include "tests/tools/trace/writer.h"
#include "tools/pleat/trace/reader.h"

namespace pleat::trace {
namespace {

using testing::Bytes;
using testing::event;
using testing::TraceWriter;
using Events = std::vector<PleatTraceEvent>;

struct Opened {
  std::string error;
  std::unique_ptr<File> file;
};

Opened open(const Bytes& bytes) {
  const std::string path = testing::write_file(bytes);
  Opened opened;
  opened.file = File::open(path, opened.error);
  ::unlink(path.c_str());
  EXPECT_EQ(opened.file == nullptr, !opened.error.empty());
  EXPECT_EQ(opened.error.find('\n'), std::string::npos);
  return opened;
}

Events read(const File& file, Problems* problems = nullptr, Columns wanted = kAllColumns) {
  Events events;
  const Problems found =
      file.for_each([&](const PleatTraceEvent& one) { events.push_back(one); }, wanted);
  if (problems != nullptr) *problems = found;
  return events;
}

std::vector<std::uint64_t> times(const Events& events) {
  std::vector<std::uint64_t> times;
  for (const PleatTraceEvent& one : events) times.push_back(one.time_ns);
  return times;
}

auto all_of(const PleatTraceEvent& e) {
  return std::tuple(
      std::tie(e.time_ns, e.address, e.bytes, e.block, e.record, e.node, e.key),
      std::tie(e.stream, e.op, e.stack, e.thread, e.device, e.kind, e.phase, e.reason),
      std::vector<std::int64_t>(std::begin(e.change), std::end(e.change)));
}

void expect_same(const Events& got, const Events& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(all_of(got[i]), all_of(wanted[i])) << i;
}

// Values of all sizes in every column, times ascending.
Events any_events(std::size_t count, unsigned seed, std::uint64_t start = 1000) {
  std::mt19937_64 random(seed);
  const auto number = [&] { return random() >> (random() % 64); };
  Events events;
  for (std::size_t i = 0; i < count; ++i) {
    PleatTraceEvent one = event(static_cast<std::uint8_t>(random() % 100), start += random() % 50);
    one.address = number();
    one.bytes = number();
    one.block = number();
    one.record = number();
    one.node = number();
    one.key = number();
    one.stream = number();
    for (std::int64_t& change : one.change)
      change = static_cast<std::int64_t>(number() * (random() % 3));
    one.op = static_cast<std::uint32_t>(random());
    one.stack = static_cast<std::uint32_t>(random() % 1000);
    one.thread = static_cast<std::uint32_t>(random() % 70000);
    one.device = static_cast<std::int8_t>(static_cast<int>(random() % 129) - 1);
    one.phase = static_cast<std::uint8_t>(random() % 6);
    one.reason = static_cast<std::uint8_t>(random());
    events.push_back(one);
  }
  return events;
}

Events at_times(const std::vector<std::uint64_t>& all, std::uint64_t block) {
  Events events;
  for (const std::uint64_t time : all) {
    events.push_back(event(PLEAT_TRACE_OTHER, time));
    events.back().block = block;
  }
  return events;
}

// ---- what is sound ------------------------------------------------------------------------------

TEST(TraceReader, WhatWasWrittenIsReadWithEveryCodingAndPacking) {
  const Events events = any_events(2000, 1);
  for (const Packing packing : {Packing::kNone, Packing::kZstd}) {
    for (const Coding coding : {Coding::kPlain, Coding::kDelta, Coding::kOverRow}) {
      TraceWriter writer;
      writer.packing = packing;
      for (int column = 1; column <= 21; ++column)
        writer.codings[column] =
            coding == Coding::kOverRow && column < 16 ? Coding::kPlain : coding;
      writer.records(events);
      const Opened opened = open(writer.finish());
      ASSERT_NE(opened.file, nullptr) << opened.error;
      EXPECT_FALSE(opened.file->incomplete());
      Problems problems;
      expect_same(read(*opened.file, &problems), events);
      EXPECT_EQ(problems.all() + opened.file->problems().all(), 0u);
    }
  }
}

TEST(TraceReader, AColumnOfOneNumberIsThatOfAllRecords) {
  Events events = any_events(700, 2);
  for (PleatTraceEvent& one : events) {
    const std::uint64_t time = one.time_ns;
    one = events[0];
    one.time_ns = time;
  }
  TraceWriter writer;
  for (int column = 2; column <= 21; ++column) writer.codings[column] = Coding::kSame;
  writer.records(events);
  expect_same(read(*open(writer.finish()).file), events);
}

TEST(TraceReader, UnknownColumnsArePassedOverAndMissingOnesAreZero) {
  Bytes raw;
  for (const char* column : {"\x01\x02\x02\x14\x02", "\x63\x07\x03xyz", "\x0b\x01\x02\x05\x06"})
    raw.append(column, 3 + static_cast<unsigned char>(column[2]));
  TraceWriter writer;
  writer.block(6, raw, 2, 10, 11);
  const Events events = read(*open(writer.finish()).file);
  ASSERT_EQ(times(events), (std::vector<std::uint64_t>{10, 11}));
  EXPECT_EQ(events[1].bytes, 6u);
  EXPECT_EQ(events[1].device, -1);
  EXPECT_EQ(events[1].kind, 0);
}

TEST(TraceReader, ColumnsNobodyWantsAreZero) {
  const Events events = any_events(300, 3);
  TraceWriter writer;
  writer.records(events);
  const Events got = read(*open(writer.finish()).file, nullptr, column_bit(Column::kBlock));
  ASSERT_EQ(got.size(), events.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].block, events[i].block);
    EXPECT_EQ(got[i].key, 0u);
  }
}

TEST(TraceReader, BlocksThatOverlapAreMergedAndEqualTimesStandAsInTheFile) {
  std::mt19937 random(4);
  for (int turn = 0; turn < 20; ++turn) {
    TraceWriter writer;
    Events all;
    for (std::uint64_t block = 1; block <= 12; ++block) {
      std::uint64_t time = random() % 40;
      std::vector<std::uint64_t> own;
      for (std::size_t i = random() % 600; i > 0; --i) own.push_back(time += random() % 3);
      if (own.empty()) continue;
      const Events events = at_times(own, block);
      writer.records(events);
      all.insert(all.end(), events.begin(), events.end());
    }
    std::stable_sort(
        all.begin(), all.end(),
        [](const PleatTraceEvent& a, const PleatTraceEvent& b) { return a.time_ns < b.time_ns; });
    expect_same(read(*open(writer.finish()).file), all);
  }
}

TEST(TraceReader, UnsortedRecordsOfABlockAreSorted) {
  TraceWriter writer;
  writer.records(at_times({30, 10, 20, 10}, 1));
  writer.records(at_times({15, 25}, 2));
  Problems problems;
  const Events events = read(*open(writer.finish()).file, &problems);
  EXPECT_EQ(times(events), (std::vector<std::uint64_t>{10, 10, 15, 20, 25, 30}));
  EXPECT_EQ(problems.unsorted_blocks, 1u);
}

TEST(TraceReader, TimesOutsideOfTheHeadersRangeLoseNoRecord) {
  TraceWriter writer;
  writer.records(at_times({10, 50}, 1));
  writer.records(at_times({5, 60}, 2), 40, 45);
  Problems problems;
  const Events events = read(*open(writer.finish()).file, &problems);
  EXPECT_EQ(events.size(), 4u);
  EXPECT_EQ(problems.late_blocks, 1u);
}

TEST(TraceReader, DefinitionsAreFoundByIdAndWhatNothingDefinesIsAQuestionMark) {
  TraceWriter writer;
  writer.process(R"({"pid": 7, "rank": 3, "torch": "2.11", "world_size": "eight", "host": null,
                     "command": ["python", "train.py"], "options": {"bits": 4}})");
  const std::uint32_t outer = writer.python_frame("main", "/me/train.py", 12);
  const std::uint32_t inner = writer.native_frame(writer.module("/lib/libx.so", "\x01\x02"), 99);
  const std::uint32_t stack = writer.stack_of({outer, inner});
  const std::uint32_t circle = writer.stack(stack + 1, outer);  // of itself
  const Opened opened = open(writer.finish());
  const Definitions& all = opened.file->definitions();
  EXPECT_EQ(opened.file->problems().all(), 0u);
  EXPECT_EQ(all.string(1), "main");
  EXPECT_EQ(all.string(0), "");
  EXPECT_EQ(all.string(99), "?");
  EXPECT_EQ(all.string(0xffffffff), "?");
  EXPECT_EQ(all.frame(outer)->where, 12u);
  EXPECT_EQ(all.module(all.frame(inner)->name)->build_id_bytes, 2);
  EXPECT_EQ(all.stack(99), nullptr);
  std::vector<std::uint32_t> walked;
  const auto note = [&](std::uint32_t frame) {
    walked.push_back(frame);
    return true;
  };
  all.walk(stack, note);
  EXPECT_EQ(walked, (std::vector<std::uint32_t>{inner, outer}));
  all.walk(circle, note);
  EXPECT_EQ(walked.size(), 3u);
  const Process& process = opened.file->process();
  EXPECT_EQ(process.pid, 7u);
  EXPECT_EQ(process.rank, 3);
  EXPECT_EQ(process.world_size, -1);
  EXPECT_EQ(process.command, "python train.py");
  EXPECT_EQ(process.options, R"({"bits":4})");
}

// ---- what is no trace ---------------------------------------------------------------------------

TEST(TraceReader, WhatIsNoTraceIsOneClearLine) {
  EXPECT_EQ(open("").error, "this file is empty");
  EXPECT_EQ(open("PleatTr").error, "this trace was cut off before it began");
  EXPECT_EQ(open("hello, this is a text file").error, "this is no trace of Pleat");
  EXPECT_EQ(open(Bytes(100, '\0')).error, "this is no trace of Pleat");
  Bytes newer = TraceWriter().finish();
  newer[8] = 3;
  EXPECT_EQ(open(newer).error, "the trace is of version 3, this pleat reads 1");
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
    const std::string path = testing::write_file(head);
    ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 30), 0);
    const std::unique_ptr<File> file = File::open(path, error);
    ::unlink(path.c_str());
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
  const Bytes sound = testing::columns(events, {});
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
    for (const std::uint64_t number : all) testing::put_number(raw, number);
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

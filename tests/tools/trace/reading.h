// What the tests of the reader share: opening bytes, reading all records, comparing them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/tools/trace/writer.h"
#include "tools/pleat/trace/reader.h"

namespace pleat::trace::testing {

using Events = std::vector<PleatTraceEvent>;

struct Opened {
  std::string error;
  std::unique_ptr<File> file;
};

inline Opened open(const Bytes& bytes) {
  const MemoryFile memory(bytes);
  Opened opened;
  opened.file = File::open(memory.path(), opened.error);
  EXPECT_EQ(opened.file == nullptr, !opened.error.empty());
  EXPECT_EQ(opened.error.find('\n'), std::string::npos);
  return opened;
}

inline Events read(const File& file, Problems* problems = nullptr, Columns wanted = kAllColumns) {
  Events events;
  const Problems found =
      file.for_each([&](const PleatTraceEvent& one) { events.push_back(one); }, wanted);
  if (problems != nullptr) *problems = found;
  return events;
}

inline std::vector<std::uint64_t> times(const Events& events) {
  std::vector<std::uint64_t> times;
  for (const PleatTraceEvent& one : events) times.push_back(one.time_ns);
  return times;
}

inline auto all_of(const PleatTraceEvent& e) {
  return std::tuple(
      std::tie(e.time_ns, e.address, e.bytes, e.block, e.record, e.node, e.key),
      std::tie(e.stream, e.op, e.stack, e.thread, e.device, e.kind, e.phase, e.reason),
      std::vector<std::int64_t>(std::begin(e.change), std::end(e.change)));
}

inline void expect_same(const Events& got, const Events& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(all_of(got[i]), all_of(wanted[i])) << i;
}

// Values of all sizes in every column, times ascending.
inline Events any_events(std::size_t count, unsigned seed, std::uint64_t start = 1000) {
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

inline Events at_times(const std::vector<std::uint64_t>& all, std::uint64_t block) {
  Events events;
  for (const std::uint64_t time : all) {
    events.push_back(event(PLEAT_TRACE_OTHER, time));
    events.back().block = block;
  }
  return events;
}

}  // namespace pleat::trace::testing

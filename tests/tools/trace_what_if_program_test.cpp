// What memory would be with other bits, of whole programs: it is what the same program does with
// these bits.
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "tests/tools/trace/what_if_story.h"

namespace pleat::trace {
namespace {

using namespace testing;

// One program as a run at some bits would tell it, or at bits:off with plans.
class Program {
 public:
  Program(Story& story, std::uint8_t bits, bool codes)
      : story_(story), bits_(bits), codes_(codes) {}
  // After which the program's steps are compared.
  std::vector<std::size_t> ends;

  void run(unsigned seed) {
    std::mt19937 random(seed);
    for (std::uint64_t record = 1; record <= 60; ++record) {
      const std::uint64_t elements = 256 * (1 + random() % 40);
      tensors_[record] = {elements, random() % 3 != 0, 0, false};
      save(record);
      // Backward of some that were saved before, in any order.
      for (unsigned i = random() % 4; i > 0 && tensors_.size() > 1; --i) {
        auto it = tensors_.begin();
        std::advance(it, random() % tensors_.size());
        use(it->first, random() % 2 == 0);
      }
      if (random() % 5 == 0) passing(1000 * (1 + random() % 90));
    }
    while (!tensors_.empty()) use(tensors_.begin()->first, true);
  }

 private:
  struct Tensor {
    std::uint64_t elements;
    bool noisy;
    std::uint64_t block;
    bool held;
  };
  [[nodiscard]] std::uint64_t payload(const Tensor& one) const {
    const std::uint64_t beside = 64 + one.elements / 32;
    return one.noisy ? beside + one.elements * bits_ / 8 : beside + one.elements * 2;
  }
  void end() { ends.push_back(story_.events().size() - 1); }

  void save(std::uint64_t record) {
    Tensor& one = tensors_[record];
    const std::uint64_t raw = 4 * one.elements;
    one.block = ++blocks_;
    story_.allocate(one.block, raw);
    story_.record(PLEAT_TRACE_TAG, record, one.block, raw);
    end();
    story_.record(PLEAT_TRACE_RELEASE, record, one.block, raw);
    decide(story_, record, one.noisy ? bits_ : 0, one.noisy ? one.elements : 0, raw);
    const std::uint64_t bytes = payload(one);
    if (codes_) {
      story_.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, bytes, static_cast<std::int64_t>(bytes));
      story_.encode(record, PLEAT_TRACE_PLACE_CHUNK, kChunk, bytes);
      story_.free(one.block);
    } else {
      plan(story_, record, PLEAT_TRACE_PLAN_CODED, bytes, raw);
      story_.record(PLEAT_TRACE_HOLD, record, one.block, raw);
    }
    end();
  }

  void use(std::uint64_t record, bool last) {
    const Tensor& one = tensors_[record];
    const std::uint64_t raw = 4 * one.elements;
    const std::uint64_t block = codes_ ? ++blocks_ : one.block;
    if (codes_) story_.allocate(block, raw);
    story_.record(PLEAT_TRACE_RESTORE, record, block, raw);
    end();
    passing(raw);
    story_.record(PLEAT_TRACE_RESTORED_FREE, record, block, raw);
    if (codes_) story_.free(block);
    end();
    if (!last) return;
    const std::uint64_t bytes = payload(one);
    if (codes_) {
      story_.slot(PLEAT_TRACE_PAYLOAD_FREE, bytes, -static_cast<std::int64_t>(bytes));
    } else {
      story_.free(block);
    }
    story_.record(PLEAT_TRACE_DROP, record, 0, codes_ ? bytes : 0);
    end();
    tensors_.erase(record);
  }

  void passing(std::uint64_t bytes) {
    const std::uint64_t block = ++blocks_;
    story_.allocate(block, bytes);
    end();
    story_.free(block);
    end();
  }

  Story& story_;
  std::uint8_t bits_;
  bool codes_;
  std::uint64_t blocks_ = 0;
  std::map<std::uint64_t, Tensor> tensors_;
};

struct Done {
  Story story;
  std::vector<std::size_t> ends;
  Done(std::uint8_t bits, bool codes, unsigned seed) {
    Program program(story, bits, codes);
    program.run(seed);
    ends = program.ends;
  }
};

void expect_that(Done& asked, double bits, Done& done, unsigned seed) {
  const Asked would(asked.story, bits);
  const auto file = Story(done.story).open();
  const Replay replay(*file);
  std::vector<std::int64_t> live;
  replay.for_each([&](const PleatTraceEvent&, const Ledger& ledger) {
    live.push_back(ledger.totals(-1).live());
  });
  ASSERT_EQ(asked.ends.size(), done.ends.size());
  for (std::size_t i = 0; i < asked.ends.size(); ++i)
    ASSERT_EQ(would.live[asked.ends[i]], live[done.ends[i]]) << "seed " << seed << ", end " << i;
  EXPECT_EQ(would.what_if->peak().bytes, replay.lives().devices.at(-1).peaks[0].bytes)
      << "seed " << seed;
}

TEST(TraceWhatIf, ARunAtBitsOffTellsWhatARunThatCodesDoes) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    Done off(8, false, seed);
    Done eight(8, true, seed);
    Done four(4, true, seed);
    Done two(2, true, seed);
    expect_that(off, 8, eight, seed);
    expect_that(off, 4, four, seed);
    expect_that(off, 2, two, seed);
  }
}

TEST(TraceWhatIf, ARunAtOtherBitsTellsWhatARunAtTheseDoes) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    Done eight(8, true, seed);
    Done four(4, true, seed);
    Done two(2, true, seed);
    expect_that(eight, 8, eight, seed);
    expect_that(eight, 2, two, seed);
    expect_that(two, 8, eight, seed);
    expect_that(two, 4, four, seed);
  }
}

}  // namespace
}  // namespace pleat::trace

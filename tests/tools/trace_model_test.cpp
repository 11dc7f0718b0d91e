// Random traces: a slow model that keeps every event and looks at the whole future says, from the
// rules as they are written, of which class each byte is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/tools/trace/story.h"
#include "tools/pleat/trace/replay.h"

namespace pleat::trace {
namespace {

using testing::kChunk;
using testing::Story;
using Events = std::vector<PleatTraceEvent>;

constexpr std::size_t kNever = ~std::size_t{0};

// The first event from `from` on of which `is` holds.
template <class Is>
std::size_t first(const Events& events, std::size_t from, Is is) {
  for (std::size_t i = from; i < events.size(); ++i)
    if (is(events[i])) return i;
  return kNever;
}

struct Life {
  std::uint64_t block = 0;
  std::size_t born = 0, died = kNever;
};

class Model {
 public:
  explicit Model(const Events& events) : events_(events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].kind != PLEAT_TRACE_ALLOCATE) continue;
      const std::uint64_t block = events[i].block;
      lives_.push_back({block, i, first(events, i, [&](const PleatTraceEvent& e) {
                          return e.kind == PLEAT_TRACE_FREE && e.block == block;
                        })});
    }
  }

  // What lives after the event, by class.
  [[nodiscard]] std::array<std::int64_t, kByteClasses> at(std::size_t now) const {
    std::array<std::int64_t, kByteClasses> sums{};
    for (std::size_t i = 0; i <= now; ++i)
      if (events_[i].kind >= PLEAT_TRACE_PAYLOAD_ALLOCATE &&
          events_[i].kind <= PLEAT_TRACE_PAYLOAD_FREE)
        sums[static_cast<std::size_t>(ByteClass::kPayloads)] += events_[i].change[0];
    for (const Life& life : lives_)
      if (life.born <= now && now < life.died)
        sums[static_cast<std::size_t>(class_of(life, now))] += size(life, now);
    return sums;
  }

 private:
  [[nodiscard]] std::int64_t size(const Life& life, std::size_t now) const {
    std::int64_t bytes = 0;
    for (std::size_t i = life.born; i <= now; ++i)
      if (events_[i].block == life.block &&
          (events_[i].kind == PLEAT_TRACE_ALLOCATE || events_[i].kind == PLEAT_TRACE_SHRINK))
        bytes = static_cast<std::int64_t>(events_[i].bytes);
    return bytes;
  }
  [[nodiscard]] bool labelled(const Life& life, std::uint8_t label) const {
    return first(events_, life.born, [&](const PleatTraceEvent& e) {
             return e.kind == PLEAT_TRACE_LABEL && e.block == life.block && e.reason == label;
           }) != kNever;
  }
  [[nodiscard]] std::uint64_t tagged_on(std::uint64_t record) const {
    const std::size_t tag = first(events_, 0, [&](const PleatTraceEvent& e) {
      return e.kind == PLEAT_TRACE_TAG && e.record == record;
    });
    return tag == kNever ? 0 : events_[tag].block;
  }

  [[nodiscard]] ByteClass of_life(const Life& life) const {
    const PleatTraceEvent& birth = events_[life.born];
    if (birth.record != 0) return ByteClass::kPayloads;
    if (labelled(life, PLEAT_TRACE_LABEL_PARAMETER)) return ByteClass::kParameters;
    if (labelled(life, PLEAT_TRACE_LABEL_GRADIENT)) return ByteClass::kGradients;
    const bool alive = life.died == kNever;
    const std::size_t any = first(
        events_, life.born, [](const PleatTraceEvent& e) { return e.kind == PLEAT_TRACE_PHASE; });
    const std::size_t own = first(events_, life.born, [&](const PleatTraceEvent& e) {
      return e.kind == PLEAT_TRACE_PHASE && e.thread == birth.thread;
    });
    const bool outlives = any != kNever && any < life.died;
    if (birth.phase == 3 && (alive || own < life.died)) return ByteClass::kOptimizerState;
    if ((birth.phase == 0 || birth.phase == 5) && outlives) return ByteClass::kInputs;
    const std::size_t restored = first(events_, life.born, [&](const PleatTraceEvent& e) {
      return e.kind == PLEAT_TRACE_RESTORE && e.block == life.block &&
             tagged_on(e.record) != life.block;
    });
    if (restored != kNever) return ByteClass::kRestored;
    if (!alive && !outlives) return ByteClass::kTemporary;
    const bool trains = birth.phase == 1 || birth.phase == 2 || birth.phase == 4;
    return trains && (alive || outlives) ? ByteClass::kKept : ByteClass::kUnknown;
  }

  [[nodiscard]] ByteClass class_of(const Life& life, std::size_t now) const {
    const ByteClass whole = of_life(life);
    if (whole <= ByteClass::kInputs || whole == ByteClass::kPayloads) return whole;
    ByteClass present = ByteClass::kUnknown;  // which none ever is for a time
    std::uint64_t record = 0;
    for (std::size_t i = life.born; i <= now; ++i) {
      const PleatTraceEvent& e = events_[i];
      if (e.kind == PLEAT_TRACE_TAG && e.block == life.block) {
        present = ByteClass::kSavedRaw;
        record = e.record;
      }
      if (record == 0 || e.record != record) continue;
      if (e.kind == PLEAT_TRACE_RESTORE && e.block == life.block) present = ByteClass::kRestored;
      if (e.kind == PLEAT_TRACE_RESTORED_FREE && present == ByteClass::kRestored)
        present = ByteClass::kSavedRaw;
      const bool ends = e.kind == PLEAT_TRACE_KEEP || e.kind == PLEAT_TRACE_DROP;
      if (ends && present == ByteClass::kSavedRaw) present = ByteClass::kUnknown;
      if (e.kind != PLEAT_TRACE_ENCODE) continue;
      if (e.reason == PLEAT_TRACE_PLACE_IN_PLACE) {
        present = ByteClass::kPayloads;
      } else if (present == ByteClass::kSavedRaw) {
        present = ByteClass::kUnknown;
      }
    }
    return present == ByteClass::kUnknown ? whole : present;
  }

  const Events& events_;
  std::vector<Life> lives_;
};

// Training of a kind: what a record goes through is always possible, and in any order.
class RandomTraining {
 public:
  explicit RandomTraining(unsigned seed) : random_(seed) {}

  Story tell(std::size_t events) {
    while (story_.events().size() < events) {
      story_.thread = 1 + pick(3);
      story_.phase = phases_[story_.thread];
      move();
    }
    return std::move(story_);
  }

 private:
  struct Record {
    std::uint64_t id, block, bytes;
    bool encoded = false, in_place = false;
    std::uint64_t own = 0, chunked = 0, restored = 0;
  };
  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void move() {
    switch (pick(9)) {
      case 0:
        if (pick(4) == 0) {
          story_.begin(static_cast<std::uint8_t>(pick(6)), step_ += pick(2));
          phases_[story_.thread] = story_.phase;
        }
        break;
      case 1:
      case 2:
        allocate();
        break;
      case 3:
        if (!free_.empty()) {
          const std::size_t which = pick(static_cast<std::uint32_t>(free_.size()));
          story_.free(free_[which].first);
          free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(which));
        }
        break;
      case 4:
        if (!free_.empty() && pick(5) == 0) {
          const auto& [block, bytes] = free_[pick(static_cast<std::uint32_t>(free_.size()))];
          story_.label(block, static_cast<std::uint8_t>(1 + pick(2)), bytes);
        }
        break;
      case 5:
        tag();
        break;
      default:
        if (!records_.empty()) step(pick(static_cast<std::uint32_t>(records_.size())));
    }
  }
  void allocate() {
    const std::uint64_t bytes = 200 + pick(1000);
    story_.allocate(++block_, bytes);
    free_.emplace_back(block_, bytes);
  }
  void tag() {
    if (free_.empty()) return;
    const auto [block, bytes] = free_.back();
    free_.pop_back();
    records_.push_back({++record_, block, bytes});
    story_.record(PLEAT_TRACE_TAG, record_, block, bytes);
  }
  void encode(Record& record) {
    const std::uint64_t payload = 1 + pick(100);
    record.encoded = true;
    switch (pick(3)) {
      case 0:
        record.in_place = true;
        story_.shrink(record.block, payload);
        break;
      case 1:
        record.own = ++block_;
        story_.allocate(block_, payload + 50, record.id);
        between();
        story_.shrink(block_, payload);
        break;
      default:
        record.chunked = payload;
        story_.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, payload + 10,
                    static_cast<std::int64_t>(payload) + 10, record.id);
        between();
        story_.slot(PLEAT_TRACE_PAYLOAD_SHRINK, payload, -10);
    }
    between();
    const bool is_own = record.own != 0;
    story_.encode(record.id,
                  record.in_place ? PLEAT_TRACE_PLACE_IN_PLACE
                  : is_own        ? PLEAT_TRACE_PLACE_OWN_BLOCK
                                  : PLEAT_TRACE_PLACE_CHUNK,
                  record.in_place ? record.block
                  : is_own        ? record.own
                                  : kChunk,
                  payload);
    if (!record.in_place) story_.free(record.block);
  }
  // A queued encode: other blocks come, and another thread may take the verdict.
  void between() {
    if (pick(2) == 0) allocate();
    story_.thread = 1 + pick(3);
    story_.phase = phases_[story_.thread];
  }
  void step(std::size_t which) {
    Record& record = records_[which];
    switch (pick(4)) {
      case 0:
        if (!record.encoded && record.restored == 0) encode(record);
        break;
      case 1:
        if (record.restored != 0) break;
        record.restored = record.encoded ? ++block_ : record.block;  // or the raw block itself
        if (record.encoded) story_.allocate(record.restored, record.bytes);
        story_.record(PLEAT_TRACE_RESTORE, record.id, record.restored, record.bytes);
        break;
      case 2:
        if (record.restored == 0) break;
        story_.record(PLEAT_TRACE_RESTORED_FREE, record.id, record.restored, record.bytes);
        if (record.encoded) story_.free(record.restored);
        record.restored = 0;
        break;
      default:
        end(which);
    }
  }
  void end(std::size_t which) {
    const Record record = records_[which];
    const bool is_raw = !record.encoded;
    if (record.in_place) story_.free(record.block);
    if (record.own != 0) story_.free(record.own);
    if (record.chunked != 0)
      story_.slot(PLEAT_TRACE_PAYLOAD_FREE, record.chunked,
                  -static_cast<std::int64_t>(record.chunked));
    if (record.encoded && record.restored != 0) free_.emplace_back(record.restored, record.bytes);
    if (is_raw && pick(2) == 0)
      story_.record(PLEAT_TRACE_KEEP, record.id, record.block, record.bytes);
    story_.record(PLEAT_TRACE_DROP, record.id, 0, 0);
    if (is_raw) free_.emplace_back(record.block, record.bytes);
    records_.erase(records_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  std::mt19937 random_;
  Story story_;
  std::uint8_t phases_[4] = {};
  std::uint64_t block_ = 0, record_ = 0, step_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> free_;  // blocks no record has, and sizes
  std::vector<Record> records_;
};

TEST(TraceModel, TheReplayAgreesWithASlowModelAtEveryEvent) {
  const char* const told = std::getenv("PLEAT_TEST_SEED");
  const unsigned base = told != nullptr ? static_cast<unsigned>(std::atoi(told)) : 1;
  for (unsigned seed = base; seed < base + (told != nullptr ? 1 : 200); ++seed) {
    SCOPED_TRACE("PLEAT_TEST_SEED=" + std::to_string(seed));
    Story story = RandomTraining(seed).tell(150);
    const Model model(story.events());
    const auto file = story.open();
    const Replay replay(*file);
    std::size_t now = 0;
    replay.for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
      const Totals& totals = ledger.totals(-1);
      EXPECT_EQ(totals.bytes, model.at(now)) << "event " << now << " of kind " << int{event.kind};
      std::int64_t sum = 0;
      for (const std::int64_t bytes : totals.bytes) sum += bytes;
      EXPECT_EQ(sum, totals.live());
      EXPECT_EQ(ledger.disagreements(), 0u);
      ++now;
    });
    EXPECT_EQ(now, story.events().size());
    if (::testing::Test::HasFailure()) return;
  }
}

// Any events at all: nothing crashes, no class is below 0, and both passes count the same.
TEST(TraceModel, EventsThatMakeNoSenseDoNoHarm) {
  std::mt19937_64 random(7);
  for (int turn = 0; turn < 30; ++turn) {
    Story story;
    for (int i = 0; i < 600; ++i) {
      PleatTraceEvent one = testing::event(static_cast<std::uint8_t>(random() % 24), 1000 + i);
      if (random() % 3 == 0) one.kind = static_cast<std::uint8_t>(64 + random() % 36);
      const auto small = [&] { return random() % 8 == 0 ? random() : random() % 12; };
      one.block = small();
      one.record = small();
      one.bytes = small();
      one.node = small();
      one.address = small();
      one.stack = static_cast<std::uint32_t>(small());
      one.op = static_cast<std::uint32_t>(small());
      one.thread = static_cast<std::uint32_t>(small());
      one.device = static_cast<std::int8_t>(static_cast<int>(random() % 3) - 1);
      one.phase = static_cast<std::uint8_t>(random() % 7);
      one.reason = static_cast<std::uint8_t>(random() % 3);
      for (std::int64_t& change : one.change) change = static_cast<std::int64_t>(small() - small());
      story.add(one);
    }
    const auto file = story.open();
    const Replay replay(*file);
    Lines lines(file->definitions());
    std::uint64_t seen = 0;
    replay.for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
      ++seen;
      if (seen % 50 == 0) (void)group(ledger.live(event.device), GroupBy::kLine, replay, lines);
      if (seen % 50 == 0) (void)ledger.gaps(event.device);
    });
    EXPECT_EQ(seen, 600u);
  }
}

}  // namespace
}  // namespace pleat::trace

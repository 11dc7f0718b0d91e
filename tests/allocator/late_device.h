// A device whose work completes late, for tests: streams of jobs that a seeded scheduler runs one
// by one, with a memory and a codec. At every job an oracle checks that the accesses were ordered,
// whatever the values of this run (vector clocks, as in FastTrack: Flanagan and Freund 2009).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/store/block_codec.h"
#include "allocator/store/block_memory.h"
#include "allocator/store/stream_order.h"

namespace pleat::allocator::testing {

class LateDevice {
 public:
  static constexpr std::size_t kUserStreams = 4, kStreams = 5;  // the last is a tier's
  using Clock = std::array<std::uint64_t, kStreams>;

  struct Access {
    const void* begin;
    std::size_t bytes;
    bool write;
  };

  // `immediate`: jobs run when they are submitted, like the host's.
  explicit LateDevice(bool immediate) : immediate_(immediate) {}

  void submit(StreamId stream, std::vector<Access> accesses, std::function<void()> run) {
    Queue& queue = queues_.at(stream.value);
    merge(queue.clock, host_);
    ++queue.clock[stream.value];
    for (const Access& access : accesses) check(stream.value, queue.clock, access);
    queue.jobs.push_back({std::move(run), {}});
    ++queue.given;
    if (immediate_) run_all();
  }

  EventHandle record(StreamId stream) {
    const Queue& queue = queues_.at(stream.value);
    const EventHandle event{++last_event_};
    events_[event.value] = {stream.value, queue.given, queue.clock};
    return event;
  }
  void wait(StreamId stream, EventHandle handle) {
    if (handle.value == 0) return;
    const Point& point = events_.at(handle.value);
    Queue& queue = queues_.at(stream.value);
    merge(queue.clock, point.clock);
    queue.jobs.push_back({[] {}, point});
    ++queue.given;
    if (immediate_) run_all();
  }
  // Jobs that the host saw complete come before all jobs that it submits from now on.
  bool complete(EventHandle handle) {
    if (handle.value == 0) return true;
    const Point& point = events_.at(handle.value);
    if (queues_[point.stream].done < point.given) return false;
    merge(host_, point.clock);
    return true;
  }
  void synchronize(EventHandle handle) {
    while (!complete(handle)) ASSERT_RUNS(run_one());
  }
  void release(EventHandle handle) { events_.erase(handle.value); }
  [[nodiscard]] std::size_t events() const { return events_.size(); }

  // Runs the next job of a stream chosen by `random`, if it can run.
  void advance(std::mt19937_64& random) {
    const std::size_t first = random() % kStreams;
    for (std::size_t i = 0; i < kStreams; ++i) {
      if (run_next((first + i) % kStreams)) return;
    }
  }
  void run_all() {
    while (run_one()) {
    }
  }
  // The host has waited for all jobs.
  void finish() {
    run_all();
    for (const Queue& queue : queues_) merge(host_, queue.clock);
  }
  [[nodiscard]] Clock clock_of(StreamId stream) const { return queues_.at(stream.value).clock; }
  void host_has_seen(const Clock& clock) { merge(host_, clock); }

  void complain(const std::string& what) {
    if (complaints.size() < 8) complaints.push_back(what);
  }
  std::vector<std::string> complaints;
  std::set<std::uint64_t> captured;  // streams

 private:
  struct Point {
    std::size_t stream = 0;
    std::uint64_t given = 0;  // jobs of that stream before it
    Clock clock{};
  };
  struct Job {
    std::function<void()> run;
    Point after{};
  };
  struct Queue {
    std::deque<Job> jobs;
    std::uint64_t given = 0;
    std::uint64_t done = 0;
    Clock clock{};
  };
  struct Shadow {  // one per granule
    std::size_t writer = 0;
    std::uint64_t written = 0;  // the writer's own clock; 0: never
    Clock read{};               // by stream
  };
  static constexpr std::size_t kGranule = 256;

  void ASSERT_RUNS(bool ran) {
    if (!ran) {
      complain("a wait that never ends");
      for (Queue& queue : queues_) {
        queue.done += queue.jobs.size();
        queue.jobs.clear();
      }
    }
  }
  static void merge(Clock& into, const Clock& from) {
    for (std::size_t i = 0; i < kStreams; ++i) into[i] = std::max(into[i], from[i]);
  }
  bool run_next(std::size_t stream) {
    Queue& queue = queues_[stream];
    if (queue.jobs.empty()) return false;
    const Point& after = queue.jobs.front().after;
    if (queues_[after.stream].done < after.given) return false;
    const Job job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    job.run();
    ++queue.done;
    return true;
  }
  bool run_one() {
    for (std::size_t i = 0; i < kStreams; ++i) {
      if (run_next(i)) return true;
    }
    return false;
  }
  void check(std::size_t stream, const Clock& clock, const Access& access) {
    if (immediate_) return;
    if (captured.contains(stream)) complain("work on a stream that is captured");
    const auto begin = reinterpret_cast<std::uintptr_t>(access.begin);
    for (std::uintptr_t g = begin / kGranule; g <= (begin + access.bytes - 1) / kGranule; ++g) {
      Shadow& shadow = shadows_[g];
      if (shadow.written > clock[shadow.writer]) {
        complain((access.write ? "write after write, streams " : "read after write, streams ") +
                 std::to_string(shadow.writer) + " and " + std::to_string(stream));
      }
      if (access.write) {
        for (std::size_t i = 0; i < kStreams; ++i) {
          if (shadow.read[i] > clock[i]) {
            complain("write after read, streams " + std::to_string(i) + " and " +
                     std::to_string(stream));
          }
        }
        shadow.writer = stream;
        shadow.written = clock[stream];
        shadow.read = {};
      } else {
        shadow.read[stream] = clock[stream];
      }
    }
  }

  const bool immediate_;
  std::array<Queue, kStreams> queues_;
  Clock host_{};
  std::uint64_t last_event_ = 0;
  std::map<std::uint64_t, Point> events_;
  std::unordered_map<std::uintptr_t, Shadow> shadows_;
};

class LateOrder final : public StreamOrder {
 public:
  explicit LateOrder(LateDevice& device) : device_(device) {}
  EventHandle record(StreamId stream) noexcept override { return device_.record(stream); }
  void wait(StreamId stream, EventHandle event) noexcept override { device_.wait(stream, event); }
  bool complete(EventHandle event) noexcept override { return device_.complete(event); }
  void synchronize(EventHandle event) noexcept override { device_.synchronize(event); }
  void release(EventHandle event) noexcept override { device_.release(event); }
  bool is_captured(StreamId stream) noexcept override {
    return device_.captured.contains(stream.value);
  }

 private:
  LateDevice& device_;
};

// Free lists by stream, without coalescing: a freed block is reused as soon as the rules allow,
// which exposes a missing order.
class LateMemory final : public BlockMemory {
 public:
  LateMemory(LateDevice& device, LateOrder& order, std::size_t capacity)
      : device_(device), order_(order), bytes_(new std::byte[capacity + kGranule]) {
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.get());
    next_ = bytes_.get() + (kGranule - begin % kGranule) % kGranule;
    end_ = next_ + capacity;
  }

  Statistics& statistics() const noexcept override { return statistics_; }
  EventSource& events() const noexcept override { return events_; }

  Block* allocate(std::size_t bytes, StreamId stream) noexcept override {
    return allocate(bytes, bytes, stream);
  }
  Block* allocate_packed(std::size_t bytes, StreamId stream, RecordId /*owner*/) noexcept override {
    return allocate(bytes, bytes, stream);
  }
  Block* allocate_container(std::size_t bytes, StreamId stream) noexcept override {
    return allocate(bytes, 0, stream);
  }
  void count_requested(EventScope& scope, std::int64_t bytes) noexcept override {
    scope.change_exclusive(StatKind::kRequested, bytes);
  }
  void free(Block* block) noexcept override {
    EventScope scope(events_, statistics_, EventScope::Begin::kIfWanted);
    Held held{{block->begin, block->bytes}, block->stream, {}};
    for (const StreamId stream : uses_[block]) held.events.push_back(order_.record(stream));
    uses_.erase(block);
    tell(scope, EventKind::kFree, *block, -static_cast<std::int64_t>(block->requested),
         -static_cast<std::int64_t>(block->bytes));
    blocks_.erase(block->begin);
    delete block;
    held_.push_back(std::move(held));
    reclaim();
  }
  void shrink(Block* block, std::size_t bytes) noexcept override {
    EventScope scope(events_, statistics_, EventScope::Begin::kIfWanted);
    const std::size_t keep = round(bytes);
    const auto less = static_cast<std::int64_t>(block->requested - bytes);
    const std::size_t tail = block->bytes - keep;
    if (tail > 0) free_[block->stream.value].push_back({block->begin + keep, tail});
    block->bytes = keep;
    block->requested = bytes;
    tell(scope, EventKind::kShrink, *block, -less, -static_cast<std::int64_t>(tail));
  }
  void note_use(Block* block, StreamId stream) noexcept override { uses_[block].insert(stream); }
  bool used_elsewhere(const Block* block) const noexcept override {
    return uses_.contains(const_cast<Block*>(block));
  }
  void copy(void* to, const void* from, std::size_t bytes, StreamId stream) noexcept override {
    device_.submit(stream, {{from, bytes, false}, {to, bytes, true}},
                   [=] { std::memcpy(to, from, bytes); });
  }
  Block* find(const void* address) const noexcept override {
    const auto found = blocks_.find(static_cast<const std::byte*>(address));
    return found == blocks_.end() ? nullptr : found->second;
  }
  void lock_for_fork() noexcept override {}
  void unlock_after_fork() noexcept override {}

  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }
  // The number of next allocations that fail.
  int short_for = 0;

 private:
  struct Range {
    std::byte* begin;
    std::size_t bytes;
  };
  struct Held {
    Range range;
    StreamId stream;
    std::vector<EventHandle> events;
  };
  static constexpr std::size_t kGranule = 256;
  static std::size_t round(std::size_t bytes) {
    return (bytes + kGranule - 1) / kGranule * kGranule;
  }

  Block* allocate(std::size_t bytes, std::size_t requested, StreamId stream) noexcept {
    EventScope scope(events_, statistics_, EventScope::Begin::kIfWanted);
    if (short_for > 0 && short_for-- > 0) return nullptr;
    reclaim();
    const std::size_t need = round(bytes);
    std::vector<Range>& ranges = free_[stream.value];
    auto fits = std::find_if(ranges.begin(), ranges.end(),
                             [=](const Range& range) { return range.bytes >= need; });
    auto* const block = new Block;
    if (fits != ranges.end()) {
      block->begin = fits->begin;
      fits->begin += need;
      fits->bytes -= need;
      if (fits->bytes == 0) ranges.erase(fits);
    } else if (static_cast<std::size_t>(end_ - next_) >= need) {
      block->begin = next_;
      next_ += need;
    } else {
      delete block;
      return nullptr;
    }
    block->bytes = need;
    block->requested = requested;
    block->stream = stream;
    block->id = BlockId{++last_id_};
    blocks_[block->begin] = block;
    tell(scope, EventKind::kAllocate, *block, static_cast<std::int64_t>(requested),
         static_cast<std::int64_t>(need));
    return block;
  }
  void reclaim() {
    std::erase_if(held_, [this](Held& held) {
      for (const EventHandle event : held.events) {
        if (!order_.complete(event)) return false;
      }
      for (const EventHandle event : held.events) order_.release(event);
      free_[held.stream.value].push_back(held.range);
      return true;
    });
  }
  void tell(EventScope& scope, EventKind kind, const Block& block, std::int64_t requested,
            std::int64_t active) noexcept {
    if (requested != 0) scope.change_exclusive(StatKind::kRequested, requested);
    if (active != 0) scope.change_exclusive(StatKind::kActive, active);
    Event event;
    event.kind = kind;
    event.block = block.id;
    event.bytes = block.requested;
    event.stream = block.stream;
    scope.note(event);
  }

  LateDevice& device_;
  LateOrder& order_;
  mutable Statistics statistics_;
  mutable EventSource events_{DeviceIndex{3}};
  std::unique_ptr<std::byte[]> bytes_;
  std::byte* next_;
  std::byte* end_;
  std::uint64_t last_id_ = 0;
  std::map<const std::byte*, Block*> blocks_;
  std::map<std::uint64_t, std::vector<Range>> free_;
  std::vector<Held> held_;
  std::unordered_map<Block*, std::set<StreamId>> uses_;
};

// Payload: the first half of the bytes, inverted; in the tests the second half of a block equals
// the first. The block's choice selects the behaviour.
class LateCodec final : public BlockCodec {
 public:
  LateCodec(LateDevice& device, std::mt19937_64& random) : device_(device), random_(random) {}

  enum Way : std::uint64_t {
    kSure = 0,
    kSureInPlace,
    kVerdictGood,
    kVerdictBad,
    kRefused,
    kGivesUpAtOnce,
    kWays
  };

  EncodePlan plan(const EncodeRequest& r) noexcept override {
    EncodePlan plan;
    plan.recomputed = r.function != 0;  // the tests set it only where it is true
    plan.room = way(r) == kRefused ? 0 : r.source_bytes / 2 + 512;
    plan.in_place = way(r) == kSureInPlace;
    return plan;
  }
  EncodeResult encode(const EncodeRequest& r, const EncodePlan&, void* payload,
                      std::size_t capacity) noexcept override {
    const std::size_t half = r.source_bytes / 2;
    if (way(r) == kGivesUpAtOnce || capacity < half) return {};
    ++encodes[r.nonce];
    if (payload == r.source) {
      auto* const bytes = static_cast<unsigned char*>(payload);
      device_.submit(r.stream, {{bytes, r.source_bytes, true}}, [=] {
        for (std::size_t i = 0; i < half; ++i) bytes[i] = static_cast<unsigned char>(~bytes[i]);
      });
      return {CodecStatus::kOk, half, form_of(r), {}};
    }
    EncodeResult result{CodecStatus::kOk, half, form_of(r), {}};
    const bool queued = way(r) == kVerdictGood || way(r) == kVerdictBad;
    auto verdict = std::make_shared<Verdict>();
    verdict->result = result;
    if (way(r) == kVerdictBad) verdict->result = {};
    const auto* const in = static_cast<const unsigned char*>(r.source);
    auto* const out = static_cast<unsigned char*>(payload);
    // The device can write all of the room.
    device_.submit(r.stream, {{in, r.source_bytes, false}, {out, capacity, true}},
                   [=, lag = random_() % 4] {
                     for (std::size_t i = 0; i < half; ++i) {
                       out[i] = static_cast<unsigned char>(~in[i]);
                     }
                     verdict->lag = static_cast<int>(lag);
                     verdict->written = true;
                   });
    if (!queued) return result;
    verdict->clock = device_.clock_of(r.stream);
    result.status = CodecStatus::kQueued;
    ++last_ticket_;
    result.ticket = {last_ticket_, /*lossy=*/last_ticket_ % 2 == 0};
    verdicts_[last_ticket_] = verdict;
    return result;
  }
  bool is_decided(EncodeTicket ticket) noexcept override {
    const auto found = verdicts_.find(ticket.value);
    if (found == verdicts_.end()) {
      device_.complain("asked for a ticket that is gone");
      return true;
    }
    Verdict& verdict = *found->second;
    return verdict.written && --verdict.lag < 0;
  }
  EncodeResult verdict(EncodeTicket ticket, bool wait) noexcept override {
    const auto found = verdicts_.find(ticket.value);
    if (found == verdicts_.end()) {
      device_.complain("asked for the verdict of a ticket that is gone");
      return {};
    }
    Verdict& verdict = *found->second;
    if (wait) {
      device_.run_all();
      verdict.lag = -1;
    }
    if (!verdict.written || verdict.lag >= 0) return {CodecStatus::kQueued, 0, {}, ticket};
    device_.host_has_seen(verdict.clock);
    const EncodeResult result = verdict.result;
    verdicts_.erase(found);
    return result;
  }
  void forget(EncodeTicket ticket) noexcept override {
    if (verdicts_.erase(ticket.value) == 0) device_.complain("forgot a ticket that is gone");
  }
  CodecStatus decode(const DecodeRequest& r) noexcept override {
    const std::size_t half = r.target_bytes / 2;
    if (r.payload.bytes != half || r.payload.form.words[0] != kMagic) return CodecStatus::kFailed;
    const auto* const in = static_cast<const unsigned char*>(r.payload.data);
    auto* const out = static_cast<unsigned char*>(r.target);
    device_.submit(r.stream, {{in, half, false}, {out, r.target_bytes, true}},
                   [=, function = r.function] {
                     for (std::size_t i = 0; i < half; ++i) {
                       out[i] = out[half + i] = static_cast<unsigned char>(~in[i] + function);
                     }
                   });
    return CodecStatus::kOk;
  }

  [[nodiscard]] std::size_t tickets() const { return verdicts_.size(); }
  std::unordered_map<std::uint64_t, int> encodes;  // by nonce

 private:
  static constexpr std::uint64_t kMagic = 0x1a7e;
  static Way way(const EncodeRequest& r) { return static_cast<Way>(r.choice.words[0] % kWays); }
  static PayloadForm form_of(const EncodeRequest& r) { return {{kMagic, r.nonce, 0, 0}}; }

  struct Verdict {
    EncodeResult result;
    LateDevice::Clock clock{};
    bool written = false;
    int lag = 0;  // further queries until the host sees it
  };
  LateDevice& device_;
  std::mt19937_64& random_;
  std::uint64_t last_ticket_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Verdict>> verdicts_;
};

}  // namespace pleat::allocator::testing

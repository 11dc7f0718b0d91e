// Whole lives of records on any memory: random actions of users, the bridge and autograd, checked
// against a model of every byte. A World has a memory, a stream order and a device that runs the
// jobs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/host/host_device.h"
#include "allocator/host/pool.h"
#include "allocator/lifecycle/residency.h"
#include "late_device.h"
#include "lock_taker.h"
#include "stand_in_tier.h"

namespace pleat::allocator::testing {

struct HostWorld {
  static constexpr bool kLate = false;
  LateDevice device{/*immediate=*/true};
  HostDevice host;
  Statistics statistics;
  SynchronousOrder order;
  Pool memory{host, PoolOptions{}, statistics};
  void run_short(int) {}
  std::string left() { return memory.check_invariants(); }
};

struct LateWorld {
  static constexpr bool kLate = true;
  LateDevice device{/*immediate=*/false};
  LateOrder order{device};
  LateMemory memory{device, order, std::size_t{8} << 20};
  void run_short(int allocations) { memory.short_for = allocations; }
  std::string left() {
    device.finish();
    memory.short_for = 0;
    if (Block* const last = memory.allocate(256, {})) memory.free(last);  // collects freed memory
    if (memory.blocks() != 0) return "blocks are left";
    if (device.events() != 0) return "events are left";
    return {};
  }
};

class LifeRecord final : public Record {
 public:
  bool keep_storage() noexcept override { return storage_lives; }
  std::uint32_t hooks_without_block() noexcept override { return storage_lives ? kEveryHook : 0; }
  Hold waits_for() const noexcept override { return until; }
  Decision decide(Start start) noexcept override {
    started_by = start;
    return {choice, true, tier};
  }
  CodecWords choice{};
  Tier tier = Tier::kDevice;
  bool storage_lives = false;
  bool original_is_read = false;
  std::atomic<Hold> until{Hold::kNone};
  Start started_by{};
};

class SummingSink final : public EventSink {
 public:
  std::array<std::int64_t, kStatKinds> sum{};
  std::function<void(const Event&)> also;
  void on_event(const Event& event) noexcept override {
    for (std::size_t i = 0; i < kStatKinds; ++i) sum[i] += event.change[i];
    if (also) also(event);
  }
};

template <class World>
class ResidencyLife {
 public:
  static constexpr std::size_t kBytes = 4096;
  static constexpr std::size_t kPartOfPeak = 8;  // that may wait
  static constexpr std::uint64_t kFunction = 3;  // adds this to each byte

  explicit ResidencyLife(std::uint64_t seed) : random_(seed) {
    for (std::size_t i = 0; i < kStatKinds; ++i) base_[i] = statistic(i);
    world_.memory.events().attach(&sink_);
    ResidencyOptions options;
    if (chance(3)) options.form = StoreForm::kInPlace;
    if (chance(4)) options.form = StoreForm::kPayloadAndBlock;
    options.waiting_part_of_peak = kPartOfPeak;
    at_forward_end_ = chance(6);
    if (chance(2)) arena_.attach(tier_, world_.order);
    residency_.set_options(options);
  }

  // From now on another thread takes every lock while the sink is called; `told` counts the events.
  void take_locks_at_events(ToldKinds& told) {
    sink_.also = [&](const Event& event) {
      ++told[static_cast<std::size_t>(event.kind)];
      expect_no_lock_is_held(residency_, event.kind);
    };
  }

  // The problems found; empty if none.
  std::vector<std::string> run(int commands) {
    for (int i = 0; i < commands && problems().empty(); ++i) {
      step();
      check_books();
    }
    end();
    world_.memory.events().attach(nullptr);
    return problems();
  }

  [[nodiscard]] const TierCounters& tier_counters() const { return arena_.tier_counters(); }

 private:
  struct Storage {  // alive: it has a reference
    Block* block;
    unsigned char value;
    StreamId writer;
    LifeRecord* record = nullptr;  // the record whose original or restored storage it is
    bool original = true;
  };
  struct Saved {
    LifeRecord* record;
    unsigned char value;
    int hooks;
  };

  [[nodiscard]] bool chance(unsigned one_in) { return random_() % one_in == 0; }
  [[nodiscard]] StreamId stream() {
    if (!World::kLate) return {};
    for (;;) {
      const StreamId s{random_() % LateDevice::kUserStreams};
      if (!world_.device.captured.contains(s.value)) return s;
    }
  }
  template <class List>
  [[nodiscard]] std::size_t any(const List& list) {
    return random_() % list.size();
  }
  void problem(const std::string& what) { problems_.push_back(what); }
  [[nodiscard]] std::vector<std::string> problems() const {
    std::vector<std::string> all = problems_;
    all.insert(all.end(), world_.device.complaints.begin(), world_.device.complaints.end());
    return all;
  }
  [[nodiscard]] std::int64_t statistic(std::size_t kind) const {
    return world_.memory.statistics().current(static_cast<StatKind>(kind));
  }

  // ---- jobs of users ----
  void write(const Block* block, unsigned char value, StreamId on) {
    std::byte* const begin = block->begin;
    world_.device.submit(on, {{begin, kBytes, true}}, [=] { std::memset(begin, value, kBytes); });
  }
  void read(const Block* block, unsigned char value, StreamId on) {
    const auto* const begin = reinterpret_cast<const unsigned char*>(block->begin);
    world_.device.submit(on, {{begin, kBytes, false}}, [this, begin, value] {
      for (std::size_t i = 0; i < kBytes; ++i) {
        if (begin[i] != value) {
          problem("a byte is " + std::to_string(begin[i]) + ", not " + std::to_string(value));
          return;
        }
      }
    });
  }
  // Like a careful user on a stream of their own choice.
  void use(const Storage& storage, StreamId on) {
    world_.order.follow(on, storage.writer);
    read(storage.block, storage.value, on);
  }

  // ---- commands ----
  void step() {
    switch (random_() % 16) {
      case 0:
        return create();
      case 1:
        return chance(3) ? create_result() : create();
      case 2:
      case 3:
        return save();
      case 4:
        return use_elsewhere();
      case 5:
      case 6:
        return free_storage();
      case 7:
      case 8:
      case 9:
        return unpack();
      case 10:
        return drop_hook();
      case 11:
        if (!saved_.empty()) start(saved_[any(saved_)]);
        return;
      case 12:
        if (chance(4)) return forward_end();
        return residency_.advance();
      case 13:
        if (chance(3)) world_.run_short(1 + static_cast<int>(random_() % 3));
        if (chance(6)) residency_.make_room(SIZE_MAX);
        return residency_.collect_verdicts();
      case 14:
        if (World::kLate && chance(4)) capture();
        [[fallthrough]];
      default:
        for (std::uint64_t n = random_() % 6; n > 0; --n) world_.device.advance(random_);
    }
  }
  void create() {
    const StreamId on = stream();
    Block* const block = world_.memory.allocate(kBytes, on);
    if (block == nullptr) return;
    const auto value = static_cast<unsigned char>(random_());
    write(block, value, on);
    storages_.push_back({block, value, on});
  }
  void save() {
    if (storages_.empty()) return;
    Storage& storage = storages_[any(storages_)];
    if (storage.original) save(storage);
  }
  // The result of an activation of a saved argument, saved as well.
  void create_result() {
    if (saved_.empty()) return create();
    const Saved argument = saved_[any(saved_)];
    const StreamId on = stream();
    Block* const block = world_.memory.allocate(kBytes, on);
    if (block == nullptr) return;
    const auto value = static_cast<unsigned char>(argument.value + kFunction);
    write(block, value, on);
    storages_.push_back({block, value, on});
    save(storages_.back());
    residency_.set_argument(*storages_.back().record, *argument.record, kFunction);
  }
  void save(Storage& storage) {
    const StreamId on = stream();
    use(storage, on);  // by the operator that saves it
    Record* const linked =
        residency_.with_linked(storage.block, on, [&](Record* present) -> Record* {
          if (present != nullptr) {
            residency_.add_reference(*present);
            return present;
          }
          auto* const record = new LifeRecord;
          record->bytes = kBytes;
          record->ranges.add({0, kBytes});
          record->choice = random_();
          record->nonce = ++nonce_;
          if (chance(2)) record->until = Hold::kProof;
          if (at_forward_end_) record->until = Hold::kForwardEnd;
          record->storage_lives = chance(20);
          record->original_is_read = chance(2);
          if (chance(2)) record->tier = Tier::kAway;
          return record;
        });
    if (storage.record == nullptr) {
      storage.record = static_cast<LifeRecord*>(linked);
      saved_.push_back({storage.record, storage.value, 1});
    } else {
      for (Saved& saved : saved_) {
        if (saved.record == linked) ++saved.hooks;
      }
    }
  }
  void use_elsewhere() {
    if (storages_.empty()) return;
    const Storage& storage = storages_[any(storages_)];
    const StreamId on = stream();
    use(storage, on);
    if (on != storage.block->stream) world_.memory.note_use(storage.block, on);  // record_stream()
  }
  void free_storage() {
    if (storages_.empty()) return;
    const std::size_t i = any(storages_);
    const Storage storage = storages_[i];
    storages_.erase(storages_.begin() + static_cast<std::ptrdiff_t>(i));
    LifeRecord* const record = storage.original ? storage.record : nullptr;
    const bool waits =
        record != nullptr && record->until != Hold::kNone && record->state == RecordState::kTagged;
    residency_.release(storage.block);
    if (waits && payload_of(record->stored) != nullptr && record->started_by != Start::kShortage) {
      problem("encoded although it should wait");
    }
  }
  void unpack() {
    if (saved_.empty()) return;
    const Saved& saved = saved_[any(saved_)];
    const StreamId on = stream();
    Storage* living = nullptr;
    for (Storage& storage : storages_) {
      if (storage.record == saved.record) living = &storage;
    }
    if (living != nullptr && living->original) return use_elsewhere();
    Block* block = nullptr;
    bool apart = false;
    {
      typename Residency::RecordGuard guard(residency_, *saved.record);
      if (saved.record->state == RecordState::kKept) return;  // reads the living storage
      if (living != nullptr && chance(2)) {
        residency_.share_restored_locked(guard, *saved.record, on);
        read(living->block, saved.value, on);
        return;
      }
      typename Residency::RestoreStatus status{};
      apart = chance(4);
      const Reading reading{.original = saved.record->original_is_read};
      block = apart ? residency_.copy_locked(guard, *saved.record, on, reading, &status)
                    : residency_.restore_locked(guard, *saved.record, on, reading, &status);
      if (block == nullptr) {
        if (status != Residency::RestoreStatus::kOutOfMemory) problem("a restore fails");
        return;
      }
    }
    if (!apart && std::holds_alternative<InFlight>(saved.record->stored)) {
      problem("an adopted block's encode goes on");
    }
    read(block, saved.value, on);
    if (living != nullptr && !apart) living->record = nullptr;  // superseded
    unsigned char value = saved.value;
    if (apart && chance(2)) write(block, value = static_cast<unsigned char>(random_()), on);
    storages_.push_back({block, value, on, apart ? nullptr : saved.record, /*original=*/apart});
  }
  void drop_hook() {
    if (saved_.empty()) return;
    const std::size_t i = any(saved_);
    Saved& saved = saved_[i];
    LifeRecord* const record = saved.record;
    if (--saved.hooks == 0) {
      saved_.erase(saved_.begin() + static_cast<std::ptrdiff_t>(i));
      for (Storage& storage : storages_) {
        if (storage.record == record) storage.record = nullptr;
      }
    }
    residency_.drop(record);
  }
  void start(const Saved& saved) {
    const int before = codec_.encodes[saved.record->nonce];
    if (saved.record->until == Hold::kProof) saved.record->until = Hold::kNone;
    residency_.start(*saved.record);
    residency_.start(*saved.record);
    if (codec_.encodes[saved.record->nonce] > before + 1) problem("started twice");
  }
  void forward_end() {
    const std::size_t proofs = residency_.waiting().count(Hold::kProof);
    residency_.forward_end();
    const WaitingRecords& waiting = residency_.waiting();
    if (waiting.count(Hold::kForwardEnd) != 0) problem("waits although the forward pass is over");
    if (proofs < waiting.count(Hold::kProof)) problem("waits for a proof since forward is over");
  }
  // A graph is captured on a stream: a release meanwhile queues no work there.
  void capture() {
    if (storages_.empty()) return;
    const Storage& storage = storages_[any(storages_)];
    if (storage.record == nullptr || !storage.original) return;
    const StreamId on = storage.record->stream;
    world_.device.captured.insert(on.value);
    const Block* const block = storage.block;
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      if (storages_[i].block != block) continue;
      storages_.erase(storages_.begin() + static_cast<std::ptrdiff_t>(i));
      residency_.release(const_cast<Block*>(block));
      break;
    }
    world_.device.captured.erase(on.value);
  }

  // ---- what must hold ----
  void check_books() {
    for (std::size_t i = 0; i < kStatKinds; ++i) {
      if (sink_.sum[i] != statistic(i) - base_[i]) {
        problem(std::string("events and statistics disagree on ") +
                stat_name(static_cast<StatKind>(i)));
      }
    }
    const WaitingRecords& waiting = residency_.waiting();
    const auto peak = world_.memory.statistics().read(StatKind::kRequested).peak;
    if (waiting.bounded_count() > 2 &&
        waiting.bounded_bytes() > static_cast<std::size_t>(peak) / kPartOfPeak) {
      problem("more waits than may");
    }
  }
  void end() {
    while (residency_.make_room(SIZE_MAX)) {
    }
    if (residency_.any_waiting()) problem("waits for ever");
    while (!storages_.empty()) free_storage();
    while (!saved_.empty()) drop_hook();
    for (const auto& [nonce, encodes] : codec_.encodes) {
      if (encodes > 1) problem("encoded twice");
    }
    if (codec_.tickets() != 0) problem("tickets are left");
    world_.device.run_all();
    residency_.collect_verdicts();  // payloads that were dropped on their way to the tier
    if (!tier_.is_empty()) problem("the tier has payloads left");
    check_books();
    for (const StatKind kind :
         {StatKind::kRequested, StatKind::kSavedRaw, StatKind::kPayload, StatKind::kRestored}) {
      if (world_.memory.statistics().current(kind) != 0) {
        problem(std::string("left: ") + stat_name(kind));
      }
    }
    world_.device.finish();
    if (const std::string left = world_.left(); !left.empty()) problem(left);
  }

  std::mt19937_64 random_;
  World world_;
  LateCodec codec_{world_.device, random_};
  PayloadArena arena_{world_.memory, {.chunk_bytes = 16384, .granule_bytes = 256}};
  StandInTier tier_{world_.device, world_.order, random_};
  Residency residency_{world_.memory, world_.order, arena_, codec_, ResidencyOptions{}};
  SummingSink sink_;
  std::array<std::int64_t, kStatKinds> base_{};
  std::uint64_t nonce_ = 0;
  bool at_forward_end_ = false;
  std::vector<Storage> storages_;
  std::vector<Saved> saved_;
  std::vector<std::string> problems_;
};

}  // namespace pleat::allocator::testing

// EventSource, EventScope and EventSink carry the stream of allocator events to a recorder.
//
// An event describes an action and its changes of the statistics. For every kind of statistic, the
// changes of all events since a sink was attached add up to the difference since then.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/ids.h"
#include "allocator/statistics.h"

namespace pleat::allocator {

enum class EventKind : std::uint8_t {
  kSegmentReserve,
  kSegmentRelease,
  kPagesRelease,   // `bytes` were returned to the system
  kAllocate,       // a block, of `bytes` as requested
  kFree,           // a block; `bytes` as last requested (after shrinks)
  kShrink,         // a block; `bytes` is the remaining size
  kChunkAllocate,  // a block that payloads share; its bytes count as active, not as requested
  kChunkFree,
  kPayloadAllocate,  // a range of a chunk
  kPayloadShrink,    // `bytes` is the remaining size
  kPayloadFree,
  kTag,
  kRelease,  // the last forward use of a saved block is over
  kWait,     // the block stays raw for a reason that will end
  kHold,     // the block stays raw permanently
  kKeep,     // its storage lives on with other bytes; the record keeps the storage itself
  kEncode,   // `bytes` is the size of the payload, `block` and `address` are its place
  kRestore,
  kRestoredFree,  // the restored storage was freed
  kDrop,          // a payload or record was discarded
  kOutOfMemory,
  kOther,       // statistics changed for another reason
  kPagesTouch,  // free pages from `address` on are handed out; `bytes` of them were not resident
  kPagesMove,   // `bytes` of resident pages went to `address`, which had none
  kPlan,        // StoreForm::kPlanned: a block that would have a payload of `planned_bytes`
};

// The place of a payload.
enum class PayloadPlace : std::uint8_t {
  kNone,      // the payload has no bytes
  kChunk,     // in a range of a chunk
  kOwnBlock,  // in a block of its own
  kInPlace,   // in the block that it was encoded from
  kArgument,  // of kPlan: the argument's payload would serve
};

struct Event {
  std::uint64_t time_ns = 0;  // CLOCK_MONOTONIC; 0 unless an annotator sets it
  DeviceIndex device{};
  StreamId stream{};
  EventKind kind = EventKind::kOther;
  BlockId block{};
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t took_ns = 0;      // of kEncode, kHold, kRestore: wall time, if there was work
  std::size_t planned_bytes = 0;  // of kPlan; 0: it would stay raw
  RecordId record{};  // of kAllocate and kPayloadAllocate: the record whose payload goes there
  TensorKey key{};
  std::uint32_t phase = 0;                   // the thread's current phase; 0: unknown
  PayloadPlace place = PayloadPlace::kNone;  // of kEncode and kPlan
  // The change of each kind of statistic by the event, in bytes, indexed by StatKind.
  std::array<std::int64_t, kStatKinds> change{};
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Called in the thread in which the event happened, without any of Pleat's locks. It can take any
  // other lock, the interpreter's included. Its own allocations and frees emit events, too.
  virtual void on_event(const Event& event) noexcept = 0;
};

// Attaches and detaches a sink while events happen.
class EventSource {
 public:
  // Fills in time and phase. Called when the event happens, under Pleat's locks: must be quick and
  // take no lock.
  using Annotate = void (*)(Event& event) noexcept;

  explicit EventSource(DeviceIndex device) noexcept : device_(device) {}
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Attaches `sink` (nullptr: none) for scopes that begin from now on. Returns once no thread calls
  // the previous sink. Not from within on_event(). One thread at a time.
  void attach(EventSink* sink, Annotate annotate = nullptr) noexcept;

  // In a forked child: discards the delivery counts of threads that the child does not have.
  // attach() would wait for them for ever. The forking thread must not be in on_event().
  void forget_other_threads() noexcept { delivering_.store(0, std::memory_order_relaxed); }

  // True while a sink is attached.
  [[nodiscard]] bool wanted() const noexcept {
    return sink_.load(std::memory_order_relaxed) != nullptr;
  }
  [[nodiscard]] DeviceIndex device() const noexcept { return device_; }
  // Number of events lost because memory was short.
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

 private:
  friend class EventScope;
  void deliver(const Event& event) noexcept;

  const DeviceIndex device_;
  std::atomic<EventSink*> sink_{nullptr};
  std::atomic<Annotate> annotate_{nullptr};
  std::atomic<int> delivering_{0};
  std::atomic<std::uint64_t> lost_{0};
};

// Collects events while locks are held and delivers them to the sink after their release. So a
// scope is declared before the locks. A nested scope of the same thread passes its events to the
// outer one.
//
// Statistics change through the scope, so that no event misses a change.
class EventScope {
 public:
  // kIfWanted: without a sink the scope does nothing, and neither do scopes nested in it.
  enum class Begin : bool { kIfWanted, kAlways };
  EventScope(EventSource& source, Statistics& statistics, Begin begin) noexcept
      : source_(source), statistics_(statistics) {
    if (begin == Begin::kAlways || source.wanted()) enter();
  }
  ~EventScope() {
    if (entered_) leave();
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

  [[nodiscard]] bool wanted() const noexcept { return wanted_; }

  // Records an event. It carries the changes of the statistics since the previous event.
  void note(const Event& event) noexcept {
    if (wanted_) [[unlikely]]
      keep(event);
  }
  void change(StatKind kind, std::int64_t bytes) noexcept {
    statistics_.add(kind, bytes);
    pending(kind, bytes);
  }
  // Like Statistics::add_exclusive().
  void change_exclusive(StatKind kind, std::int64_t bytes) noexcept {
    statistics_.add_exclusive(kind, bytes);
    pending(kind, bytes);
  }

 private:
  struct Noted {
    EventSource* source;
    Event event;
  };
  void enter() noexcept;
  void leave() noexcept;
  void keep(const Event& event) noexcept;
  void pending(StatKind kind, std::int64_t bytes) noexcept {
    if (wanted_) [[unlikely]] {
      change_[static_cast<std::size_t>(kind)] += bytes;
      changed_ = true;
    }
  }

  EventSource& source_;
  Statistics& statistics_;
  bool entered_ = false;
  bool wanted_ = false;
  bool changed_ = false;
  EventScope* outer_ = nullptr;
  EventScope* root_ = nullptr;
  std::array<std::int64_t, kStatKinds> change_;  // since the last event; set up by enter()
  std::vector<Noted> noted_;                     // of the root scope only
};

}  // namespace pleat::allocator

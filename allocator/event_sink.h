// The stream of events that a recorder listens to. Nothing here records anything.
//
// An event says what happened and how the statistics changed. For every kind of statistic, the
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
  kPagesRelease,   // `bytes` went back to the system
  kAllocate,       // a block, of `bytes` as requested
  kFree,           // a block; `bytes` as last requested (after shrinks)
  kShrink,         // a block; `bytes` is what is left
  kChunkAllocate,  // a block that payloads share; its bytes count as active, not as requested
  kChunkFree,
  kPayloadAllocate,  // a place in a chunk
  kPayloadShrink,    // `bytes` is what is left
  kPayloadFree,
  kTag,
  kRelease,  // the last forward use of a saved block is over
  kWait,     // the block stays raw for a reason that will end
  kHold,     // the block stays raw for good
  kKeep,     // its storage lives on with other bytes; the storage itself is kept
  kEncode,   // `bytes` is the payload
  kRestore,
  kRestoredFree,  // the restored storage has died
  kDrop,          // a payload or record is gone
  kOutOfMemory,
  kOther,       // statistics changed for none of these reasons
  kPagesTouch,  // free pages from `address` on are handed out; `bytes` of them were not resident
  kPagesMove,   // `bytes` of resident pages went to `address`, which had none
};

// Fixed layout; no pointers to strings: names are interned by whoever sets op and phase.
struct Event {
  std::uint64_t time_ns = 0;  // CLOCK_MONOTONIC; 0 unless an annotator sets it
  std::uint64_t thread = 0;   // set by an annotator, like op, phase and stack
  DeviceIndex device{};
  StreamId stream{};
  EventKind kind = EventKind::kOther;
  BlockId block{};
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  std::uint64_t took_ns = 0;  // of the thread; of kEncode, kHold and kRestore, if there was work
  RecordId record{};
  TensorKey key{};
  std::uint32_t op = 0;
  std::uint32_t phase = 0;  // what the thread was doing; 0: nobody has said
  std::uint32_t stack = 0;
  // What the event added to each kind of statistic, in bytes; StatKind is the index.
  std::array<std::int64_t, kStatKinds> change{};
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Called in the thread in which the event happened, with none of our locks held: it may take any
  // other lock, the interpreter's included. Its own allocations and frees are events, too.
  virtual void on_event(const Event& event) noexcept = 0;
};

// Attaches and detaches a sink while events happen.
class EventSource {
 public:
  // Fills in what the allocator does not know: time, thread, op, phase, stack. Called when the
  // event happens, under our locks: must be quick and take no lock.
  using Annotate = void (*)(Event& event) noexcept;

  explicit EventSource(DeviceIndex device) noexcept : device_(device) {}
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Attaches `sink` (nullptr: none) for scopes that begin from now on. Returns once no thread calls
  // the previous sink. Not from within on_event(). One thread at a time.
  void attach(EventSink* sink, Annotate annotate = nullptr) noexcept;

  // In a forked child: forgets the deliveries of threads that the child does not have; attach()
  // would wait for them for ever. The forking thread must not be in on_event().
  void forget_other_threads() noexcept { delivering_.store(0, std::memory_order_relaxed); }

  // True while a sink is attached.
  [[nodiscard]] bool wanted() const noexcept {
    return sink_.load(std::memory_order_relaxed) != nullptr;
  }
  [[nodiscard]] DeviceIndex device() const noexcept { return device_; }
  // How many events were lost for want of memory.
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

// Collects events while locks are held and tells the sink once they are released. So a scope is
// declared before the locks. A scope within another of the same thread hands its events to the
// outer one.
//
// Statistics are changed through the scope, so that no event misses a change.
class EventScope {
 public:
  // kIfWanted: where no sink is attached the scope does nothing, not even for scopes within it.
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

  // Notes an event that happened. The event carries the changes of the statistics since the last
  // one.
  void note(const Event& event) noexcept {
    if (wanted_) [[unlikely]]
      keep(event);
  }
  void change(StatKind kind, std::int64_t bytes) noexcept {
    statistics_.add(kind, bytes);
    pending(kind, bytes);
  }
  // As Statistics::add_exclusive().
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
  std::vector<Noted> noted_;                     // of the root
};

}  // namespace pleat::allocator

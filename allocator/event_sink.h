// The stream of events that a recorder listens to. Nothing here records anything.
//
// An event says what happened and what it did to the statistics: the changes of all events since a
// sink was put in add up to what the statistics have moved since then, for every kind of them.
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
  kFree,           // a block, of `bytes` as requested at last
  kShrink,         // a block; `bytes` is what is left
  kChunkAllocate,  // a block that payloads share: its own bytes are active, not requested
  kChunkFree,
  kPayloadAllocate,  // a place in a chunk
  kPayloadShrink,    // `bytes` is what is left
  kPayloadFree,
  kTag,
  kRelease,  // a saved block's last forward use is over
  kWait,     // it is held for a reason that will end
  kHold,     // it is held raw for good
  kKeep,     // its storage lives on with other bytes, and is kept itself
  kEncode,   // `bytes` is the payload
  kRestore,
  kRestoredFree,  // the restored storage has died
  kDrop,          // a payload or record is gone
  kOutOfMemory,
  kOther,  // statistics changed for none of these reasons
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
  RecordId record{};
  TensorKey key{};
  std::uint32_t op = 0;
  std::uint32_t phase = 0;  // what the thread was doing; 0: nobody has said
  std::uint32_t stack = 0;
  // What it added to each kind of the statistics; StatKind is the index.
  std::array<std::int64_t, kStatKinds> change{};
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  // Called by the thread in which it happened, with no lock of ours held: it may take any other,
  // the interpreter's too. Must not throw. What it allocates or frees is an event of its own.
  virtual void on_event(const Event& event) noexcept = 0;
};

// Where a sink is put in and taken out, while events happen.
class EventSource {
 public:
  // Fills in what the allocator does not know of: time, thread, op, phase, stack. Called when the
  // event happens, under locks of ours: must be quick and take none.
  using Annotate = void (*)(Event& event) noexcept;

  explicit EventSource(DeviceIndex device) noexcept : device_(device) {}
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Takes effect for what begins from now on. Returns once nobody calls the one before. Not from
  // within on_event(). One thread at a time.
  void attach(EventSink* sink, Annotate annotate = nullptr) noexcept;

  // In a forked child: forgets the deliveries of threads that it does not have, for which attach()
  // would wait for ever. The forking thread must not be in on_event().
  void forget_other_threads() noexcept { delivering_.store(0, std::memory_order_relaxed); }

  [[nodiscard]] bool wanted() const noexcept {
    return sink_.load(std::memory_order_relaxed) != nullptr;
  }
  [[nodiscard]] DeviceIndex device() const noexcept { return device_; }
  // Events for which there was no memory.
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

// Collects what happens while locks are held, and tells it when they are not: declared before them.
// A scope within another of the same thread hands its events to the outer one.
//
// Statistics that a scope is told of are changed through it, so that no event forgets them.
class EventScope {
 public:
  // kIfWanted: does nothing, not even to scopes within, where no sink is in.
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

  // The event happened. It carries what the statistics were changed by since the last one.
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

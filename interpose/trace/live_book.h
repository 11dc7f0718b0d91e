// What lives now, as far as the events of a trace have told: the writer's thread keeps it while the
// program runs, for the page that `pleat trace top` looks at, the page on stderr when memory runs
// out, and the beginning of another part of the file.
//
// The classes are the reader's (docs/trace.md), but of what is to come nothing is known yet. Until
// the next phase begins, what a phase made is temporary; then it is optimizer state, an input or
// kept, as its phase says. What is labelled or restored later is of that class from then on. A
// block that an optimizer's step made waits for the next phase of its own thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "interpose/trace/book_segments.h"
#include "interpose/trace/lifecycle.h"
#include "interpose/trace/node_book.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

struct BookBlock : AgeingBlock {
  std::uint64_t address = 0;
  std::uint64_t stream = 0;
  Origin born, forward;      // forward's stack: 0, nothing is known
  std::uint32_t module = 0;  // a text: where its thread was

  // Where a person looks: forward's place if it is known.
  [[nodiscard]] Origin place() const noexcept { return forward.stack != 0 ? forward : born; }
};

// A record that has not ended.
struct BookRecord : LifeRecord {
  std::int64_t bytes = 0;                           // of the storage
  std::int64_t raw = 0, payload = 0, restored = 0;  // what its events have added to the sums so far
  std::uint64_t restored_block = 0;                 // the last one that it was restored into
  std::uint64_t key = 0, node = 0, stream = 0;
  std::uint64_t noisy_elements = 0;  // that may bear noise
  std::uint64_t planned = 0;         // bytes of the payload that it would have
  Origin origin;                     // of the tag
  std::uint32_t decided = 0;         // a text: how it is to be coded
  std::uint32_t thread = 0, module = 0;
  std::uint8_t phase = 0;
  std::uint8_t bits = 0;   // of an element
  std::uint8_t least = 0;  // bits that an element needs, however few are asked for
  std::uint8_t plan = 0;   // a PleatTracePlan
  std::uint8_t hold_reason = 0;
  bool has_plan = false, is_decided = false;
  bool released = false;  // forward does not need the block any more
  bool kept = false, held = false;
};

struct BookThread {
  std::uint64_t step = 0;
  std::uint32_t module = 0, depth = 0;  // where it is
  std::uint8_t phase = 0;
  bool has_phase = false;
};

struct BookPeak {
  Totals totals;
  std::uint64_t time_ns = 0, step = 0;
  std::int64_t resident = 0, small = 0;  // of the process, as last heard
  std::uint8_t phase = 0;
};

// The last event that asks for a look at the moment.
struct BookAlarm {
  std::uint8_t kind = 0;  // OUT_OF_MEMORY or DUMP; 0: none yet
  int device = -1;
};

struct BookDevice : AgeingDevice<BookBlock, BookRecord, MappedTable, true> {
  bool heard_of = false;
  BookPeak peak;  // of live bytes
  BookSegments segments;
};

class LiveBook : private AgeingLifecycle<LiveBook> {
 public:
  static constexpr int kDevices = 129;  // the host, and any that an event can name

  // Of another trace: nothing lives yet. False: no memory.
  [[nodiscard]] bool begin() noexcept;
  // An event of the trace, in order of time.
  void apply(const PleatTraceEvent& event) noexcept;

  // False: some of what lives is missing, for want of memory. The sums are true all the same.
  [[nodiscard]] bool exact() const noexcept { return exact_; }
  [[nodiscard]] BookDevice& device(int index) noexcept { return devices_[index + 1]; }
  // visit(index, device) of all that were heard of.
  template <class Visit>
  void for_each_device(Visit&& visit) noexcept {
    for (int i = 0; i < kDevices; ++i)
      if (devices_[i].heard_of) visit(i - 1, devices_[i]);
  }
  [[nodiscard]] MappedTable<BookThread>& threads() noexcept { return threads_; }
  // visit(node, origin): those of the present step that forward has recorded.
  template <class Visit>
  void for_each_node(Visit&& visit) noexcept {
    nodes_.for_each_young(visit);
  }

  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] std::uint8_t phase() const noexcept { return phase_; }  // that began last
  [[nodiscard]] std::uint64_t time_ns() const noexcept { return time_ns_; }
  // Of the process, as last heard; 0: nothing yet.
  [[nodiscard]] std::int64_t resident() const noexcept { return resident_; }
  [[nodiscard]] const PleatTraceEvent& small() const noexcept { return small_; }
  [[nodiscard]] const BookAlarm& alarm() const noexcept { return alarm_; }
  // Resident bytes that neither Pleat's memory nor small tensors explain.
  [[nodiscard]] std::int64_t other() const noexcept;

 private:
  friend class Lifecycle<LiveBook>;
  BookBlock* born(BookDevice& device, const PleatTraceEvent& event) noexcept;
  BookBlock* mentioned(BookDevice& device, const PleatTraceEvent& event) noexcept {
    return add_block(device, event, Age::kUnknown);
  }
  BookBlock* add_block(BookDevice& device, const PleatTraceEvent& event, Age age) noexcept;
  static void dies(BookDevice& device, BookBlock& block) noexcept { device.leave(block); }
  static void placed(BookBlock& block, const BookRecord& record) noexcept {
    block.forward = record.origin;
  }
  void tagged(const PleatTraceEvent& event, BookRecord* record) noexcept;
  void lost() noexcept { exact_ = false; }

  void take_memory(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void note_in_record(BookRecord& record, const PleatTraceEvent& event) noexcept;
  void take_mark(const PleatTraceEvent& event) noexcept;
  void take_decision(const PleatTraceEvent& event) noexcept;
  void begin_phase(const PleatTraceEvent& event) noexcept;
  [[nodiscard]] BookThread* thread(std::uint32_t number) noexcept;

  BookDevice* devices_ = nullptr;  // kDevices of them
  MappedTable<BookThread> threads_;
  std::uint64_t last_thread_ = 0;  // that was asked for, and its place
  std::uint32_t last_place_ = 0;
  // Nodes of autograd: those of this step and of the step before, or fewer.
  NodeBook<MappedTable, std::size_t{1} << 16> nodes_;
  std::uint64_t step_ = 0, time_ns_ = 0;
  std::int64_t resident_ = 0;
  PleatTraceEvent small_{};  // the last one
  BookAlarm alarm_;
  std::uint8_t phase_ = 0;
  bool any_step_ = false;
  bool exact_ = true;
};

}  // namespace pleat::trace

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

#include "interpose/byte_class.h"
#include "interpose/recorder/book_segments.h"
#include "interpose/recorder/book_table.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

using BookSums = std::array<std::int64_t, PLEAT_TRACE_CHANGES>;

struct BookOrigin {
  std::uint32_t op = 0, stack = 0;
};

// How far a block's life decides its class.
enum class Age : std::uint8_t {
  kYoung,    // its phase goes on
  kPresent,  // of before the trace
  kState,    // the optimizer made it, and has ended
  kInput,    // made outside of training, which has begun since
  kKept,     // of forward or backward, which has ended
};

// Why a block is not, at present, of the class of its life.
enum class Use : std::uint8_t {
  kNone,
  kSavedRaw,  // tagged; ends with ENCODE, KEEP or DROP
  kInPlace,   // encoded, and the payload is in the block itself
  kAdopted,   // the raw bytes of a record, given back as the restored tensor
};

struct BookBlock {
  std::int64_t bytes = 0;
  std::uint64_t address = 0;
  std::uint64_t stream = 0;
  std::uint64_t record = 0;  // it was tagged for, holds the payload of, or was restored from
  BookOrigin born, forward;  // forward's stack: 0, nothing is known
  std::uint32_t thread = 0;
  std::uint32_t module = 0;  // a text: where its thread was
  std::uint32_t next = BookTable<int>::kNoPlace, previous = BookTable<int>::kNoPlace;  // young ones
  std::uint8_t phase = 0;
  Age age = Age::kYoung;
  Use use = Use::kNone;
  bool parameter = false, gradient = false;
  bool restored = false, payload = false;

  [[nodiscard]] ByteClass now() const noexcept;
  // Where a person looks: forward's place if it is known.
  [[nodiscard]] BookOrigin place() const noexcept { return forward.stack != 0 ? forward : born; }
};

// A record that has not ended.
struct BookRecord {
  std::int64_t bytes = 0;                           // of the storage
  std::int64_t payload_bytes = 0;                   // 0: not encoded, or there is none
  std::int64_t chunk_bytes = 0;  // in a chunk: of the payload, or of the room for it
  std::int64_t raw = 0, payload = 0, restored = 0;  // what its events have added to the sums so far
  std::uint64_t block = 0;                          // it was tagged on
  std::uint64_t own_block = 0;                      // that the payload has for itself
  std::uint64_t restored_block = 0;                 // the last one that it was restored into
  std::uint64_t slot = 0;                           // the address of its payload in a chunk
  std::uint64_t key = 0, node = 0, stream = 0;
  std::uint64_t noisy_elements = 0;  // that may bear noise
  std::uint64_t planned = 0;         // bytes of the payload that it would have
  BookOrigin origin;                 // of the tag
  std::uint32_t decided = 0;         // a text: how it is to be coded
  std::uint32_t thread = 0, module = 0;
  std::uint8_t phase = 0;
  std::uint8_t bits = 0;   // of an element
  std::uint8_t least = 0;  // bits that an element needs, however few are asked for
  std::uint8_t plan = 0;   // a PleatTracePlan
  std::uint8_t hold_reason = 0;
  bool has_plan = false, is_decided = false;
  bool released = false;  // forward does not need the block any more
  bool encoded = false, kept = false, held = false;
};

struct BookChunk {
  std::int64_t bytes = 0;
  std::uint64_t address = 0, stream = 0;
};
struct BookSlot {  // of a payload in a chunk, by its address
  std::int64_t bytes = 0;
  std::uint64_t chunk = 0;
  std::uint64_t record = 0;  // whose payload it is; 0: not known
};

struct BookThread {
  std::uint64_t step = 0;
  std::uint32_t module = 0, depth = 0;  // where it is
  std::uint8_t phase = 0;
  bool has_phase = false;
};

// Of a device, at a moment.
struct BookTotals {
  BookSums sums{};
  std::array<std::int64_t, kByteClasses> classes{};  // add up to live()

  [[nodiscard]] std::int64_t live() const noexcept { return sums[PLEAT_TRACE_REQUESTED]; }
};

struct BookPeak {
  BookTotals totals;
  std::uint64_t time_ns = 0, step = 0;
  std::int64_t resident = 0, small = 0;  // of the process, as last heard
  std::uint8_t phase = 0;
};

// The last event that asks for a look at the moment.
struct BookAlarm {
  std::uint8_t kind = 0;  // OUT_OF_MEMORY or DUMP; 0: none yet
  int device = -1;
};

struct BookDevice {
  bool heard_of = false;
  BookTotals now;
  BookPeak peak;             // of live bytes
  std::int64_t known = 0;    // of all classes but kUnknown
  std::int64_t chunked = 0;  // bytes of payloads in chunks; below 0: of before the trace
  BookTable<BookBlock> blocks;
  BookTable<BookRecord> records;
  BookTable<BookChunk> chunks;
  BookTable<BookSlot> slots;
  BookSegments segments;
  std::uint32_t young = 0;  // the first in the list, of one that was heard of
};

class LiveBook {
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
  [[nodiscard]] BookTable<BookThread>& threads() noexcept { return threads_; }
  // visit(node, origin): those of the present step that forward has recorded.
  template <class Visit>
  void for_each_node(Visit&& visit) noexcept {
    young_nodes_->for_each(visit);
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
  void take_memory(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void take_payload(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void take_record(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void take_tag(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void take_encode(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void take_restore(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void end_saving(BookDevice& device, const PleatTraceEvent& event) noexcept;
  void take_mark(const PleatTraceEvent& event) noexcept;
  void begin_phase(const PleatTraceEvent& event) noexcept;
  void add_changes(BookDevice& device, const PleatTraceEvent& event) noexcept;

  void born(BookDevice& device, const PleatTraceEvent& event, Age age) noexcept;
  BookBlock* known(BookDevice& device, const PleatTraceEvent& event) noexcept;
  static void died(BookDevice& device, std::uint64_t id) noexcept;
  static void own(BookDevice& device, std::uint64_t block, std::uint64_t record) noexcept;
  void note_node(std::uint64_t node, BookOrigin origin) noexcept;
  [[nodiscard]] const BookOrigin* find_node(std::uint64_t node) noexcept;
  [[nodiscard]] BookThread* thread(std::uint32_t number) noexcept;

  BookDevice* devices_ = nullptr;  // kDevices of them
  BookTable<BookThread> threads_;
  std::uint64_t last_thread_ = 0;  // that was asked for, and its place
  std::uint32_t last_place_ = 0;
  // Nodes of autograd: those of this step and of the step before, or fewer.
  static constexpr std::size_t kMostNodes = std::size_t{1} << 16;
  BookTable<BookOrigin> nodes_[2];
  BookTable<BookOrigin>* young_nodes_ = &nodes_[0];
  BookTable<BookOrigin>* old_nodes_ = &nodes_[1];
  std::uint64_t step_ = 0, time_ns_ = 0;
  std::int64_t resident_ = 0;
  PleatTraceEvent small_{};  // the last one
  BookAlarm alarm_;
  std::uint8_t phase_ = 0;
  bool any_step_ = false;
  bool exact_ = true;
};

}  // namespace pleat::trace

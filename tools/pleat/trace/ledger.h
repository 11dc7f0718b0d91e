// The second pass over a trace: what every device has at every event, each live byte in exactly one
// class, and what lives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "class_bytes.h"
#include "interpose/trace/lifecycle.h"
#include "interpose/trace/node_book.h"
#include "live_table.h"
#include "lives.h"
#include "per_thread.h"

namespace pleat::trace {

// A block, or a payload in a chunk, that lives.
struct LiveEntry {
  std::uint64_t block = 0;   // 0: a payload in a chunk, or what no event tells apart
  std::uint64_t record = 0;  // 0: none
  std::uint64_t key = 0;     // of the record
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int64_t would_be = 0;  // bytes with other payloads, once WhatIf::tell() has said so
  std::uint64_t born_ns = 0;  // 0: before the trace
  std::uint32_t step = kNoStep;
  std::uint8_t phase = 0;
  ByteClass of = ByteClass::kUnknown;
  Origin born;     // the operator that ran, and where it was called
  Origin forward;  // where forward made what it belongs to; no stack: nothing is known
  // A string: the path of the module that it belongs to. Of what is saved and of payloads: the one
  // that saved it. In backward: the one whose operator of forward is differentiated.
  std::uint32_t module = 0;
  // Where a person looks: forward's place if it is known.
  [[nodiscard]] Origin place() const noexcept {
    const Origin& of = forward.stack != 0 ? forward : born;
    return {of.op, of.stack, module};
  }
};

// A record that has not ended.
struct LiveRecord : LifeRecord {
  std::int64_t bytes = 0;  // of the storage
  std::uint64_t key = 0;
  std::uint64_t time_ns = 0;
  std::uint32_t step = kNoStep;
  std::uint32_t decided = 0;  // a string: how it was to be coded
  std::uint8_t phase = 0;
  Origin origin;  // of the tag
};

// The record's payload, without its size and its place.
[[nodiscard]] LiveEntry entry_of(std::uint64_t id, const LiveRecord& record) noexcept;

// Room between blocks in the segments that the trace saw being reserved.
struct Gaps {
  std::int64_t segment_bytes = 0;
  std::int64_t free_bytes = 0;
  std::int64_t largest = 0;
};

class Ledger : private Lifecycle<Ledger> {
 public:
  Ledger(const File& file, const Lives& lives);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Events in the order in which the first pass saw them.
  void apply(const PleatTraceEvent& event);

  // Of the device; all 0 if nothing was heard of it yet.
  [[nodiscard]] const Totals& totals(int device) const noexcept;
  // How many events were applied; so the number of the last one, plus 1.
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  [[nodiscard]] std::uint32_t step() const noexcept { return step_; }
  // -1: not known yet.
  [[nodiscard]] std::int64_t resident() const noexcept { return resident_; }
  [[nodiscard]] std::int64_t small() const noexcept { return small_; }
  // Resident bytes of the process that neither Pleat's memory nor small tensors explain.
  [[nodiscard]] std::int64_t other() const noexcept;

  // Adds up to live(). In no order.
  [[nodiscard]] std::vector<LiveEntry> live(int device) const;
  [[nodiscard]] Gaps gaps(int device) const;
  // A block that lives, without its record's key; nothing: it is not known.
  [[nodiscard]] std::optional<LiveEntry> block(int device, std::uint64_t id) const;
  // Begin and end of what the trace saw being reserved, by address; never adjacent.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> segments(int device) const;
  [[nodiscard]] const LiveRecord* record(int device, std::uint64_t id) const noexcept;
  // Chunks that live: addresses and bytes; payloads in them, with their places. In no order.
  [[nodiscard]] std::vector<LiveEntry> chunks(int device) const;
  [[nodiscard]] std::vector<LiveEntry> chunked_payloads(int device) const;
  // Events after which classes did not add up.
  [[nodiscard]] std::uint64_t disagreements() const noexcept { return disagreements_; }

 private:
  struct LiveBlock;
  struct Device;

  Device& device(int index);
  [[nodiscard]] const Device* find(int index) const noexcept;
  void take_memory(Device& device, const PleatTraceEvent& event);
  void take_mark(const PleatTraceEvent& event);
  void take_present(Device& device);

  friend class Lifecycle<Ledger>;
  LiveBlock* born(Device& device, const PleatTraceEvent& event);
  LiveBlock* mentioned(Device& device, const PleatTraceEvent& event);
  // `numbered`: the first pass gave it a number, so that its class is known.
  LiveBlock* add_block(Device& device, const PleatTraceEvent& event, bool numbered);
  static void placed(LiveBlock& block, const LiveRecord& record) noexcept;
  void tagged(const PleatTraceEvent& event, LiveRecord* record);

  [[nodiscard]] static LiveEntry entry_of(const Device& device, std::uint64_t id,
                                          const LiveBlock& block);
  // Where the event's thread is.
  [[nodiscard]] Origin origin_of(const PleatTraceEvent& event);
  [[nodiscard]] std::uint32_t module_of(const Origin& own, const Origin* forward) const;

  const File& file_;
  const Lives& lives_;
  std::map<int, std::unique_ptr<Device>> devices_;
  int last_index_ = 0;
  Device* last_device_ = nullptr;
  NodeBook<LiveTable, std::size_t{1} << 18> nodes_;
  PerThread<std::uint32_t> modules_;  // strings: the module each thread is in
  std::uint64_t events_ = 0;
  std::uint32_t step_ = kNoStep;
  std::int64_t resident_ = -1;
  std::int64_t small_ = 0;
  std::uint64_t disagreements_ = 0;
};

}  // namespace pleat::trace

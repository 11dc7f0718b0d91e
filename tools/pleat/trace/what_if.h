// What a device's memory would have been if saved tensors had been stored with another number of
// bits. Of a trace whose program coded nothing (bits:off) the plans tell it, of others the
// payloads.
//
//   bits:off   a held block goes and its planned payload comes; a restored tensor is beside it
//   else       a payload with noise is scaled to the number of bits asked for
//
// Both are there while a tensor is coded, as in a program that codes. A tensor that forward or the
// script still has is not released, thus has no plan yet and stays what it is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "filter.h"
#include "interpose/trace/payload_width.h"
#include "ledger.h"
#include "live_table.h"
#include "lives.h"

namespace pleat::trace {

// A number of bits of an element. Without loss no payload is known of what was to have noise: it is
// taken to stay raw.
inline constexpr double kLossless = 0;

class WhatIf {
 public:
  // `bits`: 1 to 8, or kLossless. The peak is looked for where `filter` says; it must outlive this.
  WhatIf(int device, double bits, const Filter& filter)
      : device_(device), bits_(bits), filter_(filter) {}
  // After the ledger has applied the event.
  void take(const PleatTraceEvent& event, const Ledger& ledger);

  // The trace says what of this device could be compressed. Else nothing below means anything.
  [[nodiscard]] bool knows() const noexcept {
    return plans_ || noisy_ || (bits_ == kLossless && decisions_);
  }

  // Live bytes, as they would be after the last event of the allocator's; and the most there was
  // within it.
  [[nodiscard]] std::int64_t live() const noexcept { return live_; }
  [[nodiscard]] std::int64_t highest() const noexcept { return highest_; }
  [[nodiscard]] const Peak& peak() const noexcept { return peak_.peak; }
  // What the peak is made of.
  [[nodiscard]] const std::array<std::int64_t, kByteClasses>& classes() const noexcept {
    return peak_.classes;
  }
  // Sets LiveEntry::would_be of all that lives now. Appends entries without bytes for what would
  // live and does not. `live`: of the ledger, at this moment. Returns the sum, which is what would
  // live.
  std::int64_t tell(std::vector<LiveEntry>& live, const Ledger& ledger) const;

 private:
  enum class Plan : std::uint8_t { kNone, kCoded, kRecomputed, kRaw };
  // What a record changes.
  enum class Form : std::uint8_t {
    kNone,      // nothing yet, but perhaps room for a payload
    kPacked,    // it is raw, and would be a payload
    kScaled,    // it is a payload, and would be one of another size
    kUnpacked,  // it is a payload, and would be raw
  };
  struct Change {
    std::int64_t raw = 0;  // of the raw bytes: what a block has less, or there is more
    std::int64_t payload = 0;
    ByteClass of = ByteClass::kSavedRaw;  // where `raw` counts
  };
  struct Record {
    std::int64_t bytes = 0;    // of the storage
    std::int64_t planned = 0;  // bytes of the payload at `bits`
    // kPacked: the block that is held, or was given back. kUnpacked: what stands for the raw bytes
    // now, 0 if they would live on their own.
    std::uint64_t block = 0;
    Change change;
    NoisyElements noisy;
    Plan plan = Plan::kNone;
    Form form = Form::kNone;
  };

  void take_memory(const PleatTraceEvent& event, const Ledger& ledger);
  void take_decision(const PleatTraceEvent& event);
  void take_plan(const PleatTraceEvent& event);
  void take_hold(const PleatTraceEvent& event, const Ledger& ledger);
  void take_encode(const PleatTraceEvent& event, const Ledger& ledger);
  void take_restore(const PleatTraceEvent& event);
  void take_restored_free(const PleatTraceEvent& event, const Ledger& ledger);
  void take_shrink(const PleatTraceEvent& event);
  void block_died(std::uint64_t block);

  // Without the raw block of the event, and with a payload.
  [[nodiscard]] Change without_block(const PleatTraceEvent& event, std::int64_t payload,
                                     const Ledger& ledger) const;
  [[nodiscard]] bool stays_raw(const Record& record) const noexcept {
    return bits_ == kLossless && record.noisy.count > 0;
  }
  [[nodiscard]] std::int64_t scaled(const Record& record, std::int64_t payload) const noexcept {
    return payload_at_width(payload, record.noisy, bits_, record.bytes);
  }
  // The block is of this record from now on, and of no other.
  void bind(std::uint64_t id, Record& record, std::uint64_t block);
  void unbind(std::uint64_t id, Record& record);
  void change(Record& record, const Change& to) noexcept;
  void forget(std::uint64_t id);
  void note(const PleatTraceEvent& event, const Ledger& ledger);
  void note_allocated(const PleatTraceEvent& event, const Ledger& ledger);
  void end_allocated(const PleatTraceEvent& event);
  // A candidate for the peak, and for what was highest.
  struct Moment {
    Peak peak;
    std::array<std::int64_t, kByteClasses> classes{};
  };
  [[nodiscard]] Moment now(const PleatTraceEvent& event, const Ledger& ledger) const;

  int device_;
  double bits_;
  const Filter& filter_;
  LiveTable<Record> records_;
  LiveTable<std::uint64_t> records_of_;  // by block
  std::array<std::int64_t, kByteClasses> changes_{};
  std::int64_t change_ = 0;  // their sum
  std::int64_t live_ = 0, highest_ = 0;
  bool plans_ = false, noisy_ = false, decisions_ = false, unpacks_ = false;
  Moment peak_;
  // Unless the next event restores into this block, which then would not have been needed.
  std::uint64_t allocated_ = 0;
  Moment with_allocated_;
};

}  // namespace pleat::trace

// A snapshot as torch defines it, made from a trace: the memory of a device at a moment, and the
// events before it. Holds live blocks and the latest events.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "formats.h"
#include "tools/pleat/trace/live_table.h"

namespace pleat::cli {

enum class SnapshotAction : std::uint8_t {
  kAlloc,
  kFree,  // torch writes two: asked for, done
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
};

struct SnapshotEntry {
  SnapshotAction action = SnapshotAction::kAlloc;
  trace::ByteClass of = trace::ByteClass::kUnknown;
  bool outside = false;  // of all segments that the trace saw being reserved
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::uint64_t stream = 0;
  std::uint64_t time_ns = 0;
  trace::Origin place;
};

// No device has more. A larger piece of a damaged trace is skipped.
inline constexpr std::uint64_t kMostPieceBytes = std::uint64_t{1} << 50;

// A piece of a segment.
struct SnapshotTile {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int64_t requested = 0;
  std::uint64_t stream = 0;
  trace::ByteClass of = trace::ByteClass::kUnknown;
  enum class State : std::uint8_t { kAllocated, kPendingFree, kFree } state = State::kAllocated;
  trace::Origin place;
};

struct SnapshotSegment {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::vector<SnapshotTile> tiles;  // without gaps, by address
};

// The latest entries; those before them are forgotten.
class SnapshotHistory {
 public:
  explicit SnapshotHistory(std::uint64_t most) : most_(most) {}

  // Returns the entry's number, which stands for it in find().
  std::uint64_t add(const SnapshotEntry& entry);
  [[nodiscard]] SnapshotEntry* find(std::uint64_t number);
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::uint64_t i = 0; i < entries_.size(); ++i)
      visit(entries_[entries_.size() < most_ ? i : (all_ + i) % most_]);
  }

 private:
  std::uint64_t most_;
  std::uint64_t all_ = 0;
  std::vector<SnapshotEntry> entries_;
};

// Follows a device's events up to its moment.
class SnapshotDevice {
 public:
  SnapshotDevice(const TraceExport& to, const trace::DeviceLives& lives);

  // After the event. False: the moment is over.
  bool take(const PleatTraceEvent& event, const trace::Ledger& ledger);

  [[nodiscard]] int device() const noexcept { return lives_.device; }
  [[nodiscard]] bool taken() const noexcept { return taken_; }
  [[nodiscard]] std::uint64_t time_ns() const noexcept { return time_ns_; }
  [[nodiscard]] const std::vector<SnapshotSegment>& segments() const noexcept { return segments_; }
  [[nodiscard]] const SnapshotHistory& history() const noexcept { return history_; }

 private:
  // A block, or a place in a chunk, that lives.
  struct Place {
    std::uint64_t address = 0;
    std::int64_t requested = 0, active = 0;
    std::uint64_t stream = 0;
    std::uint64_t entry = 0;  // of its allocation, or of the last time that it shrank
    std::uint64_t first_entry = 0;
    trace::ByteClass of = trace::ByteClass::kUnknown;
    bool listed = true;  // the filter leaves it in
    bool outside = false;
    trace::Origin origin;
  };
  struct Chunk {
    std::uint64_t address = 0;
    std::int64_t bytes = 0;
  };

  void take_memory(const PleatTraceEvent& event, const trace::Ledger& ledger);
  void take_record(const PleatTraceEvent& event, const trace::Ledger& ledger);
  void take_encode(const PleatTraceEvent& event, const trace::Ledger& ledger);
  void reserve(const PleatTraceEvent& event);
  void release(const PleatTraceEvent& event);
  void add_segment(SnapshotAction action, std::uint64_t begin, std::uint64_t end,
                   const PleatTraceEvent& event);
  [[nodiscard]] bool in_segment(std::uint64_t address) const;
  void begin(Place& place, const PleatTraceEvent& event, const trace::Ledger& ledger);
  void shrink(Place& place, const PleatTraceEvent& event);
  void end(Place& place, const PleatTraceEvent& event);
  void add(SnapshotAction action, Place& place, const PleatTraceEvent& event);
  // Sets the class of the place, in its entry as well.
  void call(Place& place, trace::ByteClass of);
  // Where the place belongs, in all of its entries.
  void attribute(Place& place, trace::Origin origin);

  void take_moment(const PleatTraceEvent& event, const trace::Ledger& ledger);
  [[nodiscard]] std::vector<SnapshotTile> used(const trace::Ledger& ledger) const;
  void add_rest_of_chunks(std::vector<SnapshotTile>& tiles) const;
  [[nodiscard]] std::vector<SnapshotSegment> places_of_segments(
      const std::vector<SnapshotTile>& tiles) const;
  void add_unplaced(const trace::Ledger& ledger);
  [[nodiscard]] bool is_filtered() const;

  const TraceExport& to_;
  const trace::DeviceLives& lives_;
  MomentWatch moment_;
  bool taken_ = false;
  std::uint64_t time_ns_ = 0;
  std::map<std::uint64_t, std::uint64_t> reserved_;  // segments, as they were: begin, end
  trace::LiveTable<Place> blocks_;                   // by id
  trace::LiveTable<Place> payloads_;                 // in chunks, by address
  trace::LiveTable<Chunk> chunks_;                   // by id
  SnapshotHistory history_;
  std::vector<SnapshotSegment> segments_;
};

}  // namespace pleat::cli

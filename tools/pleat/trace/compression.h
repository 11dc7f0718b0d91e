// What compression did over a whole trace: sums over records, by the place that saved them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ledger.h"
#include "lines.h"
#include "live_table.h"
#include "per_thread.h"

namespace pleat::trace {

struct CompressionSums {
  std::uint64_t saved = 0;  // records
  std::int64_t saved_bytes = 0;
  std::uint64_t encoded = 0;
  std::int64_t source_bytes = 0;
  std::int64_t payload_bytes = 0;
  std::uint64_t held = 0;  // raw for good
  std::int64_t held_bytes = 0;
  std::uint64_t restored = 0;
  std::int64_t restored_bytes = 0;
};
// Of these kinds of events the sums are made.
[[nodiscard]] constexpr bool counts_in_sums(std::uint8_t kind) noexcept {
  return kind == PLEAT_TRACE_TAG || kind == PLEAT_TRACE_HOLD || kind == PLEAT_TRACE_ENCODE ||
         kind == PLEAT_TRACE_RESTORE;
}
void add_to(CompressionSums& sums, const PleatTraceEvent& event, const LiveRecord& record) noexcept;

struct CompressionLine {
  std::uint32_t op = 0;
  std::uint32_t frame = 0;
  CompressionSums sums;
  std::uint64_t encode_ns = 0;  // see EncodeTimes
};

// Why records stayed raw.
struct HeldReason {
  std::string reason;
  std::uint64_t records = 0;
  std::int64_t bytes = 0;
};

// What was to be stored without noise, though it could have been lossy: no proof says that noise is
// harmless there.
struct ExactLine {
  std::string why;  // as core/exactness.h names it
  std::uint32_t op = 0;
  std::uint32_t frame = 0;
  std::uint64_t records = 0;
  std::int64_t bytes = 0;
};

// Saves that may bear noise, by the class of node that shows it to be harmless. A storage that is
// saved several times counts each time.
struct ProvedLine {
  std::string by;
  std::uint64_t saves = 0;
  std::int64_t bytes = 0;
};

// What was saved for backward and left alone: it has no record.
struct LeftLine {
  std::string why;
  std::uint32_t frame = 0;
  std::uint64_t tensors = 0;
  std::int64_t bytes = 0;
};

// How long encodes took. A thread decides how to code a record just before it codes it, and tells
// of the payload, or that there will be none, as soon as it is done. Of the host only: elsewhere
// the thread does not wait for the work.
class EncodeTimes {
 public:
  // Nanoseconds that end with the event; 0: none do.
  [[nodiscard]] std::uint64_t take(const PleatTraceEvent& event);

 private:
  struct Begun {
    std::uint64_t record = 0;  // 0: none
    std::uint64_t time_ns = 0;
  };
  PerThread<Begun> begun_;
};

class Compression {
 public:
  Compression(int device, const Definitions& definitions, Lines& lines)
      : device_(device), definitions_(definitions), lines_(lines) {}
  void take(const PleatTraceEvent& event, const Ledger& ledger);

  [[nodiscard]] const CompressionSums& all() const noexcept { return all_.sums; }
  [[nodiscard]] std::uint64_t encode_ns() const noexcept { return all_.encode_ns; }
  // What saved most comes first, in all.
  [[nodiscard]] std::vector<CompressionLine> lines() const;
  [[nodiscard]] std::vector<HeldReason> reasons() const;
  [[nodiscard]] std::vector<ExactLine> exact() const;
  [[nodiscard]] std::vector<LeftLine> left() const;
  [[nodiscard]] std::vector<ProvedLine> proved() const;

 private:
  struct Place {
    CompressionSums sums;
    std::uint64_t encode_ns = 0;
  };
  struct Count {
    std::uint64_t records = 0;
    std::int64_t bytes = 0;
  };
  // Null: there are too many places.
  [[nodiscard]] Place* of(Origin origin);
  void take_decision(const PleatTraceEvent& event, const Ledger& ledger);
  void take_left(const PleatTraceEvent& event);

  int device_;
  const Definitions& definitions_;
  Lines& lines_;
  EncodeTimes times_;
  Place all_;
  LiveTable<Place> by_place_;                                          // operator and frame
  std::map<std::pair<std::uint32_t, std::uint8_t>, HeldReason> held_;  // words, number
  static constexpr std::size_t kMostExact = 65'536, kMostLeft = 65'536, kMostProved = 4096;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Count>
      exact_;                                                      // why, op, frame
  std::map<std::pair<std::uint32_t, std::uint32_t>, Count> left_;  // why, frame
  std::map<std::uint32_t, Count> proved_;                          // by
};

}  // namespace pleat::trace

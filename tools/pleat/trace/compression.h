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
  // Of the threads, also where an encode came to nothing. Where a device does the work, a thread
  // only queues it.
  std::uint64_t encode_ns = 0;
  std::uint64_t restore_ns = 0;
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
};

// Records with one trail (trail.h) from one place.
struct TrailLine {
  std::string trail;
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

class Compression {
 public:
  Compression(int device, const Definitions& definitions, Lines& lines)
      : device_(device), definitions_(definitions), lines_(lines) {}
  void take(const PleatTraceEvent& event, const Ledger& ledger);

  [[nodiscard]] const CompressionSums& all() const noexcept { return all_; }
  // What saved most comes first, in all.
  [[nodiscard]] std::vector<CompressionLine> lines() const;
  // Those that stayed raw.
  [[nodiscard]] std::vector<TrailLine> held() const { return lines_of(held_); }
  // Those that were to be stored without noise, though they could have been lossy: no proof says
  // that noise is harmless there.
  [[nodiscard]] std::vector<TrailLine> exact() const { return lines_of(exact_); }
  [[nodiscard]] std::vector<LeftLine> left() const;
  [[nodiscard]] std::vector<ProvedLine> proved() const;

 private:
  struct Count {
    std::uint64_t records = 0;
    std::int64_t bytes = 0;
  };
  // Null: there are too many places.
  [[nodiscard]] CompressionSums* of(Origin origin);
  void take_decision(const PleatTraceEvent& event, const Ledger& ledger);
  void take_left(const PleatTraceEvent& event);

  int device_;
  const Definitions& definitions_;
  Lines& lines_;
  CompressionSums all_;
  LiveTable<CompressionSums> by_place_;  // operator and frame
  static constexpr std::size_t kMostTrails = 65'536, kMostLeft = 65'536, kMostProved = 4096;
  // By the string of the trail, operator and frame.
  using ByTrail = std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Count>;
  void add_trail(ByTrail& to, std::uint32_t trail, const PleatTraceEvent& event, Origin origin);
  [[nodiscard]] std::vector<TrailLine> lines_of(const ByTrail& trails) const;
  ByTrail held_, exact_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Count> left_;  // why, frame
  std::map<std::uint32_t, Count> proved_;                          // by
};

}  // namespace pleat::trace

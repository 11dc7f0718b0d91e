// What compression did over a whole trace: sums over records, by the place that saved them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
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
};

struct CompressionLine {
  std::uint32_t op = 0;
  std::uint32_t frame = 0;
  CompressionSums sums;
};

// Why records stayed raw.
struct HeldReason {
  std::string reason;
  std::uint64_t records = 0;
  std::int64_t bytes = 0;
};

class Compression {
 public:
  Compression(int device, const Definitions& definitions, Lines& lines)
      : device_(device), definitions_(definitions), lines_(lines) {}
  void take(const PleatTraceEvent& event, const Ledger& ledger);

  [[nodiscard]] const CompressionSums& all() const noexcept { return all_; }
  // What saved most comes first, in both.
  [[nodiscard]] std::vector<CompressionLine> lines() const;
  [[nodiscard]] std::vector<HeldReason> reasons() const;

 private:
  // Null: there are too many places.
  [[nodiscard]] CompressionSums* of(Origin origin);

  int device_;
  const Definitions& definitions_;
  Lines& lines_;
  CompressionSums all_;
  LiveTable<CompressionSums> by_place_;                                // operator and frame
  std::map<std::pair<std::uint32_t, std::uint8_t>, HeldReason> held_;  // words, number
};

}  // namespace pleat::trace

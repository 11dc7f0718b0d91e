// Sums for each place of a program over a whole trace: the bytes that each operator and line
// allocated and saved.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/pleat/trace/ledger.h"
#include "tools/pleat/trace/lines.h"
#include "tools/pleat/trace/live_table.h"

namespace pleat::cli {

struct RunSums {
  std::int64_t allocated_bytes = 0;
  std::uint64_t allocations = 0;
  std::int64_t saved_bytes = 0;
  std::uint64_t saved = 0;
};

// Of an operator and a line of the program; in a table by operator the line is 0.
struct PlaceKey {
  std::uint32_t op = 0;
  std::uint32_t frame = 0;
  friend auto operator<=>(const PlaceKey&, const PlaceKey&) = default;
};

struct RunPlace {
  PlaceKey place;
  RunSums sums;
};

class RunPlaces {
 public:
  RunPlaces(int device, trace::Lines& lines) : device_(device), lines_(lines) {}
  void take(const PleatTraceEvent& event, const trace::Ledger& ledger);

  // In no order.
  [[nodiscard]] std::vector<RunPlace> places() const;

 private:
  [[nodiscard]] PlaceKey key(trace::Origin origin) {
    return {origin.op, lines_.frame_of(origin.stack)};
  }
  // Null: there are too many places.
  [[nodiscard]] RunSums* sums(trace::Origin origin);

  int device_;
  trace::Lines& lines_;
  trace::LiveTable<RunSums> sums_;
};

}  // namespace pleat::cli

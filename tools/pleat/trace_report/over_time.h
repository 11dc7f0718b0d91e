// The page's data next to the curve of a device: the process's resident bytes, and which phase
// training was in. Both keep a bounded number of pieces of time, however long the trace is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tools/pleat/trace/lives.h"
#include "torch_bridge/c_abi.h"

namespace pleat::cli {

// Pieces of one width that cover a trace.
class TimePieces {
 public:
  TimePieces(const trace::Lives& lives, std::size_t most)
      : start_ns_(lives.first_time_ns),
        width_ns_((lives.last_time_ns - lives.first_time_ns) / most + 1),
        most_(most) {}
  [[nodiscard]] std::size_t of(std::uint64_t time_ns) const noexcept {
    if (time_ns <= start_ns_) return 0;
    return std::min<std::size_t>((time_ns - start_ns_) / width_ns_, most_ - 1);
  }
  [[nodiscard]] std::uint64_t begin(std::size_t piece) const noexcept {
    return start_ns_ + piece * width_ns_;
  }
  [[nodiscard]] std::size_t count() const noexcept { return most_; }
  [[nodiscard]] std::uint64_t width_ns() const noexcept { return width_ns_; }

 private:
  std::uint64_t start_ns_, width_ns_;
  std::size_t most_;
};

// The highest sample of each piece of time that has one.
class ResidentCurve {
 public:
  struct Point {
    std::uint64_t time_ns = 0;
    std::int64_t bytes = 0;
  };
  ResidentCurve(const trace::Lives& lives, std::size_t points) : pieces_(lives, points) {}
  void take(const PleatTraceEvent& event);
  [[nodiscard]] const std::vector<Point>& points() const noexcept { return points_; }

 private:
  TimePieces pieces_;
  std::size_t last_piece_ = 0;
  std::vector<Point> points_;
};

// The phases of the thread that runs forward first. In a piece of time with several phases the
// longest counts.
class PhaseBands {
 public:
  struct Band {
    std::uint64_t begin_ns = 0, end_ns = 0;
    std::uint8_t phase = 0;
  };
  PhaseBands(const trace::Lives& lives, std::size_t pieces)
      : pieces_(lives, pieces), last_time_ns_(lives.last_time_ns), spent_(pieces) {}
  void take(const PleatTraceEvent& event);
  // Without what is of no phase.
  [[nodiscard]] std::vector<Band> bands();

 private:
  static constexpr std::size_t kPhases = 6;
  void spend(std::uint64_t until_ns);

  TimePieces pieces_;
  std::uint64_t last_time_ns_;
  std::vector<std::array<std::uint64_t, kPhases>> spent_;
  bool known_ = false;
  std::uint32_t thread_ = 0;
  std::uint8_t phase_ = 0;
  std::uint64_t since_ns_ = 0;
};

}  // namespace pleat::cli

#include "over_time.h"

#include <algorithm>

namespace pleat::cli {

void ResidentCurve::take(const PleatTraceEvent& event) {
  if (event.kind != PLEAT_TRACE_RESIDENT) return;
  const std::size_t piece = pieces_.of(event.time_ns);
  const auto bytes = static_cast<std::int64_t>(event.bytes);
  if (points_.empty() || piece > last_piece_) {
    points_.push_back({event.time_ns, bytes});
    last_piece_ = piece;
  } else if (bytes > points_.back().bytes) {
    points_.back() = {event.time_ns, bytes};
  }
}

void PhaseBands::take(const PleatTraceEvent& event) {
  if (event.kind != PLEAT_TRACE_PHASE || event.phase >= kPhases) return;
  if (!known_) {
    if (event.phase != PLEAT_TRACE_PHASE_FORWARD) return;
    known_ = true;
    thread_ = event.thread;
    since_ns_ = event.time_ns;
  }
  if (event.thread != thread_) return;
  spend(event.time_ns);
  phase_ = event.phase;
}

void PhaseBands::spend(std::uint64_t until_ns) {
  const std::size_t last = pieces_.of(until_ns);
  for (std::size_t piece = pieces_.of(since_ns_); piece <= last && since_ns_ < until_ns; ++piece) {
    const std::uint64_t end =
        piece == last ? until_ns : std::min(until_ns, pieces_.begin(piece + 1));
    if (end > since_ns_) {
      spent_[piece][phase_] += end - since_ns_;
      since_ns_ = end;
    }
  }
}

std::vector<PhaseBands::Band> PhaseBands::bands() {
  if (known_) spend(last_time_ns_);
  std::vector<Band> bands;
  for (std::size_t piece = 0; piece < spent_.size(); ++piece) {
    const auto longest = std::max_element(spent_[piece].begin(), spent_[piece].end());
    const auto phase = static_cast<std::uint8_t>(longest - spent_[piece].begin());
    if (*longest == 0 || phase == PLEAT_TRACE_PHASE_OTHER) continue;
    const std::uint64_t begin = pieces_.begin(piece);
    const std::uint64_t end = std::min(pieces_.begin(piece + 1), last_time_ns_);
    if (!bands.empty() && bands.back().phase == phase && bands.back().end_ns == begin) {
      bands.back().end_ns = end;
    } else {
      bands.push_back({begin, end, phase});
    }
  }
  return bands;
}

}  // namespace pleat::cli

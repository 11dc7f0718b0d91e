// The part of SensitivityBook that decides whose turn a backward pass is.
#include <limits>

#include "torch_bridge/measure/book/sensitivity_book.h"

namespace pleat::bridge {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kFirstBurst = 10;     // pass of a graph
constexpr std::uint64_t kSecondBurst = 1000;  // then 3000, 7000, 15000, ...
// In between a few passes look whether the early measurement still holds: at first, networks learn
// fast what their gradients depend on.
constexpr std::uint64_t kWatchAfter = 4;  // times as many passes: 40, 160, 640
constexpr std::uint64_t kRowsAt = 3;      // by then proofs and leaves are learned
constexpr std::size_t kMostGraphs = 4096;
constexpr unsigned kMostAttempts = 5;
// Extra passes may be so many, and so large a part of the passes of the script: graphs that change
// from step to step would be measured without end.
constexpr std::uint64_t kFreePasses = 64;
constexpr double kPartOfPasses = 0.012;

}  // namespace

void SensitivityBook::plan_next(Graph& graph) noexcept {
  if (graph.next == 0) {
    graph.next = kFirstBurst;
    graph.interval = options_.refresh.value_or(kSecondBurst - kFirstBurst);
    return;
  }
  if (graph.interval == 0) {
    graph.next = kNever;
    return;
  }
  graph.next += graph.interval;
  if (!options_.refresh) {
    graph.interval = graph.next == kSecondBurst ? 2 * kSecondBurst : 2 * graph.interval;
  }
}

bool SensitivityBook::checks_widths() const noexcept {
  return options_.mode == Mode::kLossy && !is_of_gact(options_.sensitivity);
}

void SensitivityBook::plan_watch(Graph& graph) const noexcept {
  const std::uint64_t at = kWatchAfter * graph.passes;
  graph.watch = checks_widths() && !options_.refresh && at < kSecondBurst ? at : 0;
}

bool SensitivityBook::has_passes_left() const noexcept {
  const auto steps = static_cast<double>(own_steps_.load(std::memory_order_relaxed));
  return static_cast<double>(counted_passes_) <
         static_cast<double>(kFreePasses) + kPartOfPasses * steps;
}

SensitivityBook::Turn SensitivityBook::turn_of(Graph& graph) noexcept {
  ++graph.passes;
  if (options_.sensitivity == Sensitivity::kOff) {
    // Graphs that change from step to step would have rows without end.
    constexpr unsigned kMostTurns = 64;
    const bool rows = graph.passes >= kRowsAt && !graph.has_rows && rows_turns_ < kMostTurns;
    rows_turns_ += rows ? 1 : 0;
    graph.has_rows = graph.has_rows || rows;
    return rows ? Turn::kRows : Turn::kNone;
  }
  if (graph.next == 0) {
    plan_next(graph);
  }
  if (graph.to_check) {
    return Turn::kCheck;
  }
  const bool measures = graph.passes >= graph.next || graph.is_stale;
  if (!measures && (graph.watch == 0 || graph.passes < graph.watch)) {
    return Turn::kNone;
  }
  return takes_tensors_singly(options_.sensitivity) || has_passes_left()
             ? (measures ? Turn::kMeasure : Turn::kWatch)
             : Turn::kNone;
}

SensitivityBook::Turn SensitivityBook::take_turn(std::uint64_t structure) noexcept {
  steps_.fetch_add(1, std::memory_order_relaxed);
  own_steps_.fetch_add(1, std::memory_order_relaxed);
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return Turn::kNone;
  }
  Turn turn = Turn::kNone;
  try {
    const std::lock_guard guard(mutex_);
    if (graphs_.size() < kMostGraphs || graphs_.contains(structure)) {
      turn = turn_of(graphs_[structure]);
      extra_passes_in_step_ = extra_passes_in_step_ || (turn != Turn::kNone && turn != Turn::kRows);
    }
  } catch (...) {  // no memory for another graph
  }
  if (turn == Turn::kNone) {
    end_turn();
  }
  return turn;
}

void SensitivityBook::refuse(std::uint64_t structure, const std::string& why, bool again) {
  const std::lock_guard guard(mutex_);
  Graph& graph = graphs_[structure];
  graph.has_rows = !again;
  if (!again || ++graph.attempts == kMostAttempts) {  // else the turn comes again
    if (!again) {
      graph.next = kNever;
    } else if (graph.passes >= graph.next) {
      plan_next(graph);
    }
    graph.attempts = 0;
    graph.watch = 0;
    graph.to_check = graph.is_stale = false;
  }
  add_refusal(why);
}

}  // namespace pleat::bridge

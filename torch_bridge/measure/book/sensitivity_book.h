// Holds the sensitivity of the saved tensors: the profile, the times to measure, and the resulting
// bits. Decides whose turn a backward pass is; measure/probe.h measures in it. Torch-free.
//
// A *graph* is named by the structure of its root: the same in every step that runs the same code.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sensitivity/sensitivity.h"
#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/options.h"
#include "torch_bridge/measure/book/bits_by_key.h"

namespace pleat::bridge {

class SensitivityBook {
 public:
  // The widths that follow are put in force in `bits`.
  explicit SensitivityBook(BitsByKey& bits) : bits_(bits) {}

  // The version that runs; before the first pass.
  void set_torch(std::string version) { torch_ = std::move(version); }
  // New options: reads the file once, the first time that it is named. A file that cannot be used
  // is one line on stderr, and is left as it is. `rank`: for names of files.
  void ask(const Options& options, std::uint64_t rank);

  // A pass may be of interest. Any thread, at no cost.
  [[nodiscard]] bool watching() const noexcept { return watching_.load(std::memory_order_relaxed); }
  // Noise is measured, though the mode be lossless.
  [[nodiscard]] bool measures() const noexcept { return measures_.load(std::memory_order_relaxed); }

  // ---- turns ----
  enum class Turn : std::uint8_t {
    kNone,
    kRows,     // note what the pass reads
    kMeasure,  // run extra passes first, and note what they read
    kCheck,    // run two: does the noise that was assigned do what was predicted?
    kWatch,    // run three: is it still as far below that of one width for all?
  };
  // A pass that accumulates gradients begins over that graph. The caller that gets a turn ends it.
  // No other caller gets one meanwhile.
  [[nodiscard]] Turn take_turn(std::uint64_t graph) noexcept;
  void end_turn() noexcept { busy_.store(false, std::memory_order_release); }
  // The pass whose turn it was, or the last one: counted from 1, over all graphs.
  [[nodiscard]] std::uint64_t step() const noexcept {
    return steps_.load(std::memory_order_relaxed);
  }

  // ---- what was found; by whoever has the turn ----
  // Rows of what a pass has read, in that order.
  void add_rows(std::vector<sensitivity::Unit> rows);

  // The effect of the noise of a unit on the gradient of one leaf: at 4 bits, over the squared norm
  // of the gradient of all leaves.
  struct Share {
    std::uint64_t key;
    double noise;
  };
  struct Burst {
    std::vector<sensitivity::Unit> rows;  // with a measurement each, where noise was measured
    std::vector<std::vector<Share>> of_leaf;
    std::vector<double> weight_of_leaf;  // by the objective, of its noise; none: 1
    double unsteady = 0;  // of the gradient's squared norm: by how much two equal passes differ
    std::uint64_t passes = 0;
    double seconds = 0;
    std::uint64_t bytes = 0;  // of the gradients and sketches that the passes took
  };
  void add_burst(std::uint64_t graph, Burst burst);
  // The shares that the last burst over the graph has found, as the objective weighs them.
  struct Predicted {
    std::vector<std::vector<Share>> of_leaf;
    std::vector<double> weight_of_leaf;
  };
  [[nodiscard]] Predicted predicted_by(std::uint64_t graph) const;

  // An optimizer steps, of a class of that name. Its kind of step is the objective from now on,
  // unless an option names one. Any thread.
  void note_optimizer(std::string_view name) noexcept;
  [[nodiscard]] sensitivity::Objective objective() const;

  struct Check {
    double predicted = 0, measured = 0;     // noise of all leaves, by the objective
    std::vector<std::uint64_t> distrusted;  // units that get the default from now on
    std::uint64_t passes = 0;
    double seconds = 0;
  };
  void add_check(std::uint64_t graph, const Check& check);
  // A watch has run so many passes. `stale`: the measurements hold no longer, and the next pass of
  // the graph measures again.
  void add_watch(std::uint64_t graph, bool stale, std::uint64_t passes, double seconds);

  // ---- a budget ----
  [[nodiscard]] bool has_budget() const noexcept {
    return has_budget_.load(std::memory_order_relaxed);
  }
  // The memory taken since the start of the last step: `requested` bytes at the peak, of which
  // `payload` were payloads; at most `reserved`.
  struct Peak {
    std::uint64_t requested = 0, payload = 0, reserved = 0;
    std::uint64_t beside = 0;  // that the process takes beside all that
  };
  // True if widths have just changed: pages of wider payloads may be free.
  bool note_peak(const Peak& peak);
  // The most noise that the budget may cause, by the objective, where one width for all has
  // `uniform`. Infinite where widths do not follow from a budget.
  [[nodiscard]] double noise_ceiling(double uniform) const;

  // A turn has come to nothing. One line on stderr for each reason, the first time. It comes again
  // in the next pass if `again`, but not for ever.
  void refuse(std::uint64_t graph, const std::string& why, bool again);
  // A tensor is saved through hooks of the script's own, as a checkpoint has them: their effects at
  // unpacking must not happen twice. Any thread.
  void note_foreign_hooks() noexcept {
    foreign_hooks_at_.store(step() + 1, std::memory_order_relaxed);
  }
  // It happened not long ago: which graph it was in is not known.
  [[nodiscard]] bool any_foreign_hooks() const noexcept {
    constexpr std::uint64_t kLong = 8;
    const std::uint64_t at = foreign_hooks_at_.load(std::memory_order_relaxed);
    return at != 0 && step() <= at + kLong;
  }
  // A pass begins that Pleat cannot run beforehand: Pleat was switched on by hand. One line, once.
  void note_unseen_pass() noexcept;

  // The width that a key has now; the width for its row.
  [[nodiscard]] std::uint8_t width_of(std::uint64_t key) const noexcept {
    return bits_.width_of({key});
  }

  // The process ends, or a reader wants the newest: writes the file.
  void write() noexcept;

  // ---- for reports ----
  struct Summary {
    bool any = false;          // there is a profile
    std::string file;          // empty: none
    std::size_t units = 0;     // whose width could be chosen
    std::size_t measured = 0;  // of these
    double bits = 0;           // mean, of what is measured
    sensitivity::Objective objective = sensitivity::Objective::kGradient;  // what the noise is of
    double noise = 0;          // predicted, of what is measured
    double uniform_noise = 0;  // if all had the uniform width
    std::uint64_t bytes = 0, uniform_bytes = 0;
    std::uint64_t bursts = 0, passes = 0;
    double seconds = 0;
    std::uint64_t burst_bytes = 0;  // that the largest burst took, of gradients and sketches
    std::size_t distrusted = 0;
    double unsteady = 0;                // in the last burst
    double predicted = 0, checked = 0;  // of the last check; 0: none
    std::vector<std::string> refusals;
  };
  [[nodiscard]] Summary summary() const;
  [[nodiscard]] double unsteady() const;  // Summary::unsteady alone
  // The profile as it is now.
  [[nodiscard]] sensitivity::Profile profile() const;

 private:
  struct Graph {
    std::uint64_t passes = 0;
    std::uint64_t next = 0;  // the pass to measure in; 0: not worked out yet; ~0: never
    std::uint64_t interval = 0;
    unsigned attempts = 0;  // that came to nothing, one after the other
    bool to_check = false;
    unsigned checks = 0;      // that distrusted something, since the last measurement
    std::uint64_t watch = 0;  // the pass to watch in; 0: none
    bool is_stale = false;
    bool has_rows = false;
    Predicted predicted;
  };
  [[nodiscard]] Turn turn_of(Graph& graph) noexcept;
  void plan_next(Graph& graph) noexcept;
  // True if the widths follow from our measurements, so that passes can refute them.
  [[nodiscard]] bool checks_widths() const noexcept;
  void plan_watch(Graph& graph) const noexcept;
  void enter(std::vector<sensitivity::Unit> rows);
  void match_with_file(const std::vector<sensitivity::Unit>& rows);
  void forget_measurements(const std::vector<sensitivity::Unit>& rows);
  [[nodiscard]] sensitivity::Objective objective_locked() const noexcept;
  [[nodiscard]] sensitivity::Profile seen_units() const;
  [[nodiscard]] bool has_passes_left() const noexcept;
  [[nodiscard]] bool goes_by_budget(const sensitivity::Profile& profile) const;
  [[nodiscard]] double most_noise(const sensitivity::Profile& profile) const;
  [[nodiscard]] sensitivity::Assignment assignment_of(const sensitivity::Profile& profile,
                                                      std::optional<std::uint64_t> bytes) const;
  void assign();
  [[nodiscard]] std::uint64_t bytes_within_budget() const noexcept;
  void distrust(Graph& graph, const std::vector<std::uint64_t>& units);
  [[nodiscard]] double fixed_payloads() const noexcept;
  void forget_budget() noexcept;
  [[nodiscard]] bool note_noise_of_budget(const Check& check);
  bool fit_budget(const Peak& peak, double all, double payload_part);
  bool give_up_budget(double all);
  void note_unmet(const Peak& peak, double all, double payload_part);
  void say_met(const Peak& peak, double all);
  void read_file();
  void complain(const std::string& why);
  void add_refusal(const std::string& why);
  void write_locked() noexcept;

  BitsByKey& bits_;
  std::atomic<bool> has_budget_{false};
  std::atomic<bool> watching_{false}, measures_{false}, busy_{false};
  std::atomic<bool> unseen_{false};
  std::atomic<std::uint64_t> steps_{0}, own_steps_{0}, foreign_hooks_at_{0};
  mutable std::mutex mutex_;
  ForkLock fork_lock_{ForkPlace::kSensitivity, mutex_};
  Options options_;
  std::string file_;  // expanded; empty: none, or one that may not be written
  std::string torch_;
  std::string named_;      // as the option had it when it was read
  bool changed_ = false;   // since the file was written
  bool to_match_ = false;  // nothing has been found yet that could be in the file that was read
  std::atomic<Objective> of_optimizer_{Objective::kAuto};  // that was seen; kAuto: none was
  sensitivity::Profile profile_;
  sensitivity::Assignment assignment_;
  std::unordered_set<std::uint64_t> seen_;  // keys of units that some pass of this run has read
  std::unordered_map<std::uint64_t, Graph> graphs_;
  bool widths_are_new_ = true;  // the last peak is not theirs
  bool extra_passes_in_step_ = false;
  unsigned first_steps_ = 0;
  // ---- a budget ----
  std::optional<std::uint64_t> budget_bytes_;  // as the last peaks have it
  std::optional<std::uint64_t> met_bytes_;     // the same, that has kept the budget for a while
  unsigned met_steps_ = 0;                     // in a row, with these widths
  bool by_budget_ = false;                     // the widths in force follow from it
  // No widths below the ceiling keep the budget. The widths are those from before it was exceeded.
  struct Unmet {
    double given_up_at = 0;  // peak
    double least_peak = 0;   // with the fewest bytes below the ceiling; 0: not tried
    double least_bytes = 0;  // these
    double noise = 0;        // with these
    double highest = 0;      // peak since then
    unsigned steps = 0;      // since then
    unsigned fitting = 0;    // steps in a row that were within the budget all the same
  };
  std::optional<Unmet> unmet_;
  double beyond_prediction_ = 1;  // measured noise over predicted, where that was above the ceiling
  bool said_unknown_ = false, said_unmet_ = false;
  double said_noise_ = -1;  // when a line said that the budget is met; negative: none did
  // Passes of which users have asked for one for each tensor do not count for the limit.
  unsigned rows_turns_ = 0;
  std::uint64_t bursts_ = 0, extra_passes_ = 0, counted_passes_ = 0;
  double seconds_ = 0;
  std::uint64_t burst_bytes_ = 0;
  double predicted_ = 0, checked_ = 0, unsteady_ = 0;
  std::vector<std::string> refusals_;
};

}  // namespace pleat::bridge

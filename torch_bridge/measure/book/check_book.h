// Collects the results of `pleat check`: gradients with and without noise, and tensors exact for
// want of a proof. One line of JSON after each pass that was looked at. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/reasons.h"

namespace pleat::bridge {

enum class Verdict : std::uint8_t {
  kGood,
  kSmall,      // its gradient is below a thousandth of the largest: noise says nothing
  kSurprise,   // noise is larger than the rule allows
  kUnsteady,   // the pass differs from its own repetition
  kNotFinite,  // it had no finite gradient in any pass
};
[[nodiscard]] const char* verdict_name(Verdict verdict) noexcept;

// Squares of norms of one parameter's gradient, summed over passes. The gradient itself is that
// of a pass over what was saved.
struct GradientErrors {
  double gradient = 0;
  double noisy = 0;      // of the difference: from the payloads, as in every run
  double yardstick = 0;  // with the noise that widths alone give: PassValues::kYardstick
  double repeated = 0;   // another pass over what was saved
  double batch = 0;      // the pass before: of so many pairs of passes
  unsigned pairs = 0;
  GradientErrors& operator+=(const GradientErrors& other) noexcept;
};

// Of a parameter with these errors; `largest`: the largest gradient's norm, squared. A surprise is
// an error that is at once over 3.5 times the yardstick and over a fifth of the gradient's norm;
// or over half of the norm. At less than 4 bits these parts grow as the codec's steps do.
[[nodiscard]] Verdict judge(const GradientErrors& errors, double largest, unsigned bits) noexcept;

class CheckBook {
 public:
  // Asks for so many passes; 0: none, ever again. Results go to the end of `file`, if it has a
  // name.
  void ask(unsigned passes, std::string file);
  // Passes are still to be looked at. Any thread, at no cost.
  [[nodiscard]] bool watching() const noexcept { return watching_.load(std::memory_order_relaxed); }

  // ---- what was exact ----
  // The number of a place that saves; the same text has the same number. 0: no memory.
  [[nodiscard]] std::uint32_t place(const std::string& text) noexcept;
  // While watching: a storage that place `at` has saved was stored.
  void add_exactness(Exactness why, std::uint32_t at, std::size_t bytes) noexcept;

  // ---- passes ----
  // Takes the turn to look at a pass, if one is still asked for and no other thread has the turn.
  [[nodiscard]] bool begin_look() noexcept {
    return watching() && !looking_.exchange(true, std::memory_order_acquire);
  }
  void end_look() noexcept { looking_.store(false, std::memory_order_release); }
  // State that a pass leaves to the next one. Only in the turn to look.
  [[nodiscard]] std::shared_ptr<void>& between_passes() noexcept { return between_passes_; }
  struct Parameter {
    const void* leaf = nullptr;  // compare only; null: matched by name and place in the list
    std::string name;
    GradientErrors errors;
    std::shared_ptr<const void> keeps_address = {};  // while it lives, no other leaf has `leaf`
  };
  // A pass was looked at. With the last one asked for, watching ends.
  void add_pass(std::span<const Parameter> parameters, unsigned bits);
  // A pass could not be looked at. A line for each reason, as it is met first.
  void add_refusal(const std::string& why);
  // The process ends: a line, if there is none yet.
  void finish() noexcept;

  [[nodiscard]] std::string json();

 private:
  struct Row {
    std::string name;
    std::shared_ptr<const void> keeps_address;
    GradientErrors errors;
    unsigned passes = 0;
  };
  [[nodiscard]] std::string json_locked() const;
  void write_locked();

  std::atomic<bool> watching_{false}, looking_{false};
  std::shared_ptr<void> between_passes_;
  mutable std::mutex mutex_;
  ForkLock fork_lock_{ForkPlace::kCheck, mutex_};
  unsigned asked_ = 0;
  unsigned looked_at_ = 0;
  unsigned bits_ = 0;
  std::string file_;
  std::vector<Row> rows_;
  std::map<std::pair<const void*, std::string>, std::size_t> row_of_;
  std::map<std::string, unsigned> refusals_;
  std::vector<std::string> places_;
  std::map<std::string, std::uint32_t> place_numbers_;
  struct Stored {
    std::uint64_t storages = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::pair<std::uint32_t, Exactness>, Stored> stored_;
};

}  // namespace pleat::bridge

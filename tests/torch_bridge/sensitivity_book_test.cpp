// Tests whose turn a backward pass is, and the use of its measurements, with passes without torch.
#include "torch_bridge/measure/book/sensitivity_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace pleat::bridge {
namespace {

using sensitivity::Unit;
using Turn = SensitivityBook::Turn;
using Turns = std::vector<std::pair<std::uint64_t, Turn>>;

constexpr std::uint64_t kGraph = 7;

Unit unit(std::uint64_t key, std::uint64_t step, double noise) {
  Unit found;
  found.key = key;
  found.producer = "ReluBackward0";
  found.reader = "ConvolutionBackward0";
  found.type = "float32";
  found.bytes = 4096;
  found.costs = {{2, 300, 25}, {4, 550, 1}, {8, 1050, 0.003}, {0, 4096, 0}};
  found.measurements = {{step, noise}};
  return found;
}

// A script that measures by the book.
struct Script {
  explicit Script(Sensitivity how = Sensitivity::kOn, std::optional<std::uint64_t> refresh = {}) {
    options.sensitivity = how;
    options.refresh = refresh;
    options.bits = 5;  // half way from 4 to the next width that is a candidate
    bits.set_uniform(4);
    book.ask(options, 0);
  }

  // Passes over one graph up to the last-th. Returns the turns there were.
  //   stale(pass)   whether a watch in that pass finds what was measured stale
  //   refused(pass) whether the gradients of that pass are not finite
  template <class Stale, class Refused>
  Turns run(std::uint64_t last, Stale stale, Refused refused, std::uint64_t graph = kGraph) {
    Turns turns;
    while (pass < last) {
      ++pass;
      const Turn turn = book.take_turn(graph);
      if (turn == Turn::kNone) {
        continue;
      }
      turns.emplace_back(pass, turn);
      if (refused(pass)) {
        book.refuse(graph, "gradients are not finite", true);
      } else if (turn == Turn::kMeasure) {
        SensitivityBook::Burst burst;
        burst.rows = {unit(1, book.step(), 1e-3), unit(2, book.step(), 1e-6)};
        burst.of_leaf = {{{1, 1e-3}, {2, 1e-6}}};
        burst.passes = 16;
        book.add_burst(graph, std::move(burst));
      } else if (turn == Turn::kCheck) {
        SensitivityBook::Check check;
        check.passes = 2;
        book.add_check(graph, check);
      } else if (turn == Turn::kWatch) {
        book.add_watch(graph, stale(pass), 3, 0.1);
      }
      book.end_turn();
    }
    return turns;
  }
  Turns run(std::uint64_t last) {
    return run(
        last, [](std::uint64_t) { return false; }, [](std::uint64_t) { return false; });
  }

  Options options;
  BitsByKey bits;
  SensitivityBook book{bits};
  std::uint64_t pass = 0;
};

TEST(SensitivityBook, MeasuresInPasses10And1000And3000And7000AndWatchesEarlyOnes) {
  EXPECT_EQ(Script().run(8000), (Turns{{10, Turn::kMeasure},
                                       {11, Turn::kCheck},
                                       {40, Turn::kWatch},
                                       {160, Turn::kWatch},
                                       {640, Turn::kWatch},
                                       {1000, Turn::kMeasure},
                                       {1001, Turn::kCheck},
                                       {3000, Turn::kMeasure},
                                       {3001, Turn::kCheck},
                                       {7000, Turn::kMeasure},
                                       {7001, Turn::kCheck}}));
}

TEST(SensitivityBook, RefreshFixesTheIntervalAndThenNothingIsWatched) {
  EXPECT_EQ(Script(Sensitivity::kOn, 0).run(5000),
            (Turns{{10, Turn::kMeasure}, {11, Turn::kCheck}}));
  EXPECT_EQ(Script(Sensitivity::kOn, 500).run(1100), (Turns{{10, Turn::kMeasure},
                                                            {11, Turn::kCheck},
                                                            {510, Turn::kMeasure},
                                                            {511, Turn::kCheck},
                                                            {1010, Turn::kMeasure},
                                                            {1011, Turn::kCheck}}));
}

TEST(SensitivityBook, WhatIsStaleIsMeasuredInTheNextPassAndTheCalendarStays) {
  Script script;
  const Turns turns = script.run(
      1001, [](std::uint64_t pass) { return pass == 40; }, [](std::uint64_t) { return false; });
  EXPECT_EQ(turns, (Turns{{10, Turn::kMeasure},
                          {11, Turn::kCheck},
                          {40, Turn::kWatch},
                          {41, Turn::kMeasure},
                          {42, Turn::kCheck},
                          {164, Turn::kWatch},
                          {656, Turn::kWatch},
                          {1000, Turn::kMeasure},
                          {1001, Turn::kCheck}}));
  EXPECT_EQ(script.book.profile().units.at(0).measurements.size(), 3u);
}

TEST(SensitivityBook, ATurnThatABadPassRefusesComesAgain) {
  for (const std::uint64_t bad : {10u, 11u, 40u, 41u}) {
    const Turns turns = Script().run(
        50, [](std::uint64_t pass) { return pass < 45; },
        [bad](std::uint64_t pass) { return pass == bad; });
    ASSERT_GE(turns.size(), 6u) << bad;
    for (std::size_t i = 0; i + 1 < turns.size(); ++i) {
      if (turns[i].first == bad) {
        EXPECT_EQ(turns[i + 1], (std::pair<std::uint64_t, Turn>{bad + 1, turns[i].second}));
      }
    }
  }
}

TEST(SensitivityBook, AGraphThatIsNeverFiniteIsTriedFiveTimes) {
  const Turns turns = Script().run(
      900, [](std::uint64_t) { return false; }, [](std::uint64_t) { return true; });
  EXPECT_EQ(turns.size(), 5u);
  EXPECT_EQ(turns.back().first, 14u);
}

TEST(SensitivityBook, GraphsThatChangeFromStepToStepAreNotMeasuredWithoutEnd) {
  Script script;
  std::uint64_t passes = 0;
  for (std::uint64_t graph = 100; graph < 200; ++graph) {
    script.pass = 0;
    for (const auto& [pass, turn] : script.run(
             12, [](std::uint64_t) { return false; }, [](std::uint64_t) { return false; }, graph)) {
      passes += turn == Turn::kMeasure ? 16 : 2;
    }
  }
  EXPECT_LE(passes, 64 + 1200 * 0.012 + 18);
}

TEST(SensitivityBook, WhereUnitsAreDistrustedOthersAreCheckedAgain) {
  Script script;
  (void)script.run(10);
  for (const std::uint64_t pass : {11u, 12u, 13u}) {
    ASSERT_EQ(script.book.take_turn(kGraph), Turn::kCheck) << pass;
    SensitivityBook::Check check;
    check.distrusted = {2};
    script.book.add_check(kGraph, check);
    script.book.end_turn();
  }
  EXPECT_EQ(script.book.take_turn(kGraph), Turn::kNone);
  EXPECT_EQ(script.book.summary().distrusted, 1u);
  EXPECT_EQ(script.book.width_of(2), 4) << "the default";
}

TEST(SensitivityBook, AModeThatChangesForgetsTurnsThatWaited) {
  Script script;
  (void)script.run(10);
  script.options.sensitivity = Sensitivity::kGact;
  script.book.ask(script.options, 0);
  EXPECT_EQ(script.run(60), (Turns{{11, Turn::kMeasure}})) << "GACT's modes are not checked";
}

TEST(SensitivityBook, TheOptimizerSaysWhichNoiseCounts) {
  const auto objective_with = [](std::vector<std::string> steps,
                                 Objective asked = Objective::kAuto) {
    Script script;
    script.options.objective = asked;
    script.book.ask(script.options, 0);
    for (const std::string& name : steps) {
      script.book.note_optimizer(name);
    }
    return script.book.objective();
  };
  constexpr auto kGradient = sensitivity::Objective::kGradient;
  constexpr auto kUpdate = sensitivity::Objective::kUpdate;
  EXPECT_EQ(objective_with({}), kGradient) << "none of torch's: a script that steps by hand";
  EXPECT_EQ(objective_with({"SGD"}), kGradient);
  EXPECT_EQ(objective_with({"DPSGD"}), kGradient);
  EXPECT_EQ(objective_with({"AdamW"}), kUpdate);
  EXPECT_EQ(objective_with({"Adafactor", "SGD"}), kUpdate) << "of two kinds";
  EXPECT_EQ(objective_with({"SGD", "Adam"}), kUpdate);
  EXPECT_EQ(objective_with({"Adam"}, Objective::kGradient), kGradient);
  EXPECT_EQ(objective_with({"SGD"}, Objective::kUpdate), kUpdate);
}

TEST(SensitivityBook, WidthsGoWithTheObjective) {
  Script script;
  SensitivityBook::Burst burst;
  burst.rows = {unit(1, 1, 1e-3), unit(2, 1, 1e-6)};
  burst.rows[0].measurements[0].update_noise = 1e-6;
  burst.rows[1].measurements[0].update_noise = 1e-3;
  script.book.add_burst(kGraph, std::move(burst));
  EXPECT_GT(script.book.width_of(1), script.book.width_of(2));
  script.book.note_optimizer("AdamW");
  EXPECT_LT(script.book.width_of(1), script.book.width_of(2));
  EXPECT_EQ(script.book.summary().objective, sensitivity::Objective::kUpdate);
  EXPECT_EQ(script.book.profile().objective, sensitivity::Objective::kUpdate);
}

TEST(SensitivityBook, WidthsGoWithTheNoise) {
  Script script;
  (void)script.run(12);
  EXPECT_GT(script.book.width_of(1), script.book.width_of(2));
  EXPECT_LE(script.book.summary().bytes, script.book.summary().uniform_bytes);
}

// ---- a budget ----

constexpr std::uint64_t kMega = 1'000'000;

// A script whose payloads, of two tensors, take 110 MB at 4 bits. `at_peak` of them are there at
// the peak of a step, beside 400 MB. The noise of 4 bits is 5 % of the gradient, that of 2 bits 25
// %.
struct Budgeted {
  explicit Budgeted(double part, double at_peak, std::optional<std::uint64_t> max_noise = {})
      : payload_part(at_peak) {
    options.sensitivity = Sensitivity::kOn;
    options.refresh = 0;
    options.budget = static_cast<std::size_t>(part * peak_of(payloads_at_4));
    options.max_noise = max_noise;
    bits.set_uniform(4);
    book.ask(options, 0);
  }
  [[nodiscard]] static Unit large_unit(std::uint64_t key, std::uint64_t step) {
    Unit found = unit(key, step, 0.05 * 0.05 / 2);
    for (sensitivity::WidthCost& cost : found.costs) {
      cost.bytes *= kMega / 10;
    }
    return found;
  }
  [[nodiscard]] double peak_of(double payloads) const { return beside + payload_part * payloads; }
  // The bytes of the widths that a forward pass finds.
  [[nodiscard]] double payloads() const {
    double bytes = 0;
    for (const std::uint64_t key : {1, 2}) {
      bytes += static_cast<double>(large_unit(key, 1).cost_at(book.width_of(key)).bytes);
    }
    return bytes;
  }
  [[nodiscard]] double noise() const {
    double sum = 0;
    for (const std::uint64_t key : {1, 2}) {
      const Unit found = large_unit(key, 1);
      sum += found.noise() * found.cost_at(book.width_of(key)).error;
    }
    return std::sqrt(sum);
  }

  // Passes with the forward pass before each. `beyond`: the noise that checks measure, over the
  // predicted one. Returns the lines about the budget.
  std::vector<std::string> run(unsigned passes, double beyond = 1) {
    ::testing::internal::CaptureStderr();
    while (passes-- != 0) {
      const double taken = payloads();
      const auto peak = static_cast<std::uint64_t>(peak_of(std::max(taken, before)));
      (void)book.note_peak(
          {peak, static_cast<std::uint64_t>(payload_part * std::max(taken, before)), peak});
      before = taken;
      const Turn turn = book.take_turn(kGraph);
      if (turn == Turn::kMeasure) {
        SensitivityBook::Burst burst;
        burst.rows = {large_unit(1, book.step()), large_unit(2, book.step())};
        burst.of_leaf = {{{1, 0.05}, {2, 0.05}}};
        book.add_burst(kGraph, std::move(burst));
      } else if (turn == Turn::kCheck) {
        SensitivityBook::Check check;
        check.predicted = noise() * noise();
        check.measured = beyond * check.predicted;
        book.add_check(kGraph, check);
      }
      if (turn != Turn::kNone) {
        book.end_turn();
      }
      loudest = std::max(loudest, noise());
    }
    std::vector<std::string> lines;
    std::istringstream text(::testing::internal::GetCapturedStderr());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("pleat: budget ") && !line.ends_with("until sensitivity is known")) {
        lines.push_back(line);
      }
    }
    return lines;
  }

  static constexpr double payloads_at_4 = 110.0 * kMega;
  double beside = 400.0 * kMega;
  double payload_part;
  Options options;
  BitsByKey bits;
  SensitivityBook book{bits};
  double before = 0;   // bytes of the last pass
  double loudest = 0;  // noise of the widths in force after any pass
};

TEST(SensitivityBook, ABudgetIsMetByTheLeastNoise) {
  Budgeted job(0.99, 1);
  const std::vector<std::string> lines = job.run(30);
  EXPECT_LE(job.peak_of(job.payloads()), static_cast<double>(job.options.budget));
  EXPECT_NEAR(job.noise(), std::sqrt(0.00125 * 26), 1e-6) << "one of the two has 2 bits";
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("the peak is 485 MB, and noise is 18 % of the gradient"),
            std::string::npos)
      << lines[0];
}

TEST(SensitivityBook, ABudgetThatOnlyTooMuchNoiseWouldMeetChangesNoBits) {
  for (const double at_peak : {1.0, 0.05}) {
    Budgeted job(0.8, at_peak);
    const std::vector<std::string> lines = job.run(30);
    EXPECT_EQ(job.payloads(), Budgeted::payloads_at_4);
    EXPECT_NEAR(job.loudest, 0.05, 1e-6);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find(at_peak == 1 ? "cannot be met: at 4 bits the peak is 510 MB"
                                         : "cannot be met: at 4 bits the peak is 406 MB"),
              std::string::npos)
        << lines[0];
  }
}

TEST(SensitivityBook, ABudgetThatCanBeMetNoLongerLeavesNoMoreBitsThanTheDefault) {
  Budgeted job(1.3, 1);
  EXPECT_EQ(job.run(40).size(), 1u);
  EXPECT_GT(job.payloads(), Budgeted::payloads_at_4) << "there was room";
  job.beside += 400.0 * kMega;
  EXPECT_EQ(job.run(20).size(), 1u);
  EXPECT_EQ(job.payloads(), Budgeted::payloads_at_4);
}

TEST(SensitivityBook, ALargeBatchNowAndThenLeavesTheBitsThatKeepTheBudget) {
  Budgeted job(0.99, 1);
  (void)job.run(40);
  const double payloads = job.payloads();
  EXPECT_LT(payloads, Budgeted::payloads_at_4);
  for (const double more : {400.0 * kMega, -400.0 * kMega}) {
    job.beside += more;
    (void)job.run(4);
    EXPECT_EQ(job.payloads(), payloads);
  }
  EXPECT_LE(job.peak_of(payloads), static_cast<double>(job.options.budget));
}

// Next to no payloads are there at the peak, so that fewer bits hardly move it.
TEST(SensitivityBook, FewerBitsThatDoNotMeetABudgetAreTakenBack) {
  Budgeted job(0.99, 0.05);
  const std::vector<std::string> lines = job.run(40);
  EXPECT_EQ(job.payloads(), Budgeted::payloads_at_4);
  EXPECT_GT(job.loudest, 0.1) << "they were tried";
  ASSERT_EQ(lines.size(), 1u);
}

TEST(SensitivityBook, TheBudgetThatALineNamesIsMet) {
  for (const double at_peak : {1.0, 0.3, 0.05}) {
    Budgeted job(0.7, at_peak);
    const std::string line = job.run(30).at(0);
    const std::size_t at = line.find("; budget:");
    ASSERT_NE(at, std::string::npos) << line;
    Budgeted second(0.7, at_peak);
    second.options.budget = std::stoull(line.substr(at + 9)) << 20;
    second.book.ask(second.options, 0);
    for (const std::string& other : second.run(30)) {
      EXPECT_EQ(other.find("cannot be met"), std::string::npos) << other;
    }
    EXPECT_LE(second.peak_of(second.payloads()), static_cast<double>(second.options.budget));
  }
}

TEST(SensitivityBook, MaxNoiseSaysHowMuchABudgetMayCause) {
  const auto payloads_with = [](std::optional<std::uint64_t> max_noise) {
    Budgeted job(0.91, 1, max_noise);
    (void)job.run(30);
    EXPECT_LE(job.loudest,
              max_noise ? std::max(static_cast<double>(*max_noise) / 100, 0.0501) : 0.3);
    return job.payloads();
  };
  EXPECT_EQ(payloads_with({}), 60.0 * kMega);
  EXPECT_EQ(payloads_with(20), Budgeted::payloads_at_4);
  EXPECT_EQ(payloads_with(0), Budgeted::payloads_at_4);
}

// Before a step has had it: the check is in the pass that chooses the widths.
TEST(SensitivityBook, ACheckThatFindsTooMuchNoiseGivesBitsBack) {
  Budgeted job(0.91, 1);
  const std::vector<std::string> lines = job.run(40, /*beyond=*/4);
  EXPECT_LE(2 * job.loudest, 0.3);
  EXPECT_EQ(job.payloads(), Budgeted::payloads_at_4);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("cannot be met"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace pleat::bridge

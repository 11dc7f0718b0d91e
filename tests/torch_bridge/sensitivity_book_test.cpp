// Tests whose turn a backward pass is, and the use of its measurements, with passes without torch.
#include "torch_bridge/measure/book/sensitivity_book.h"

#include <gtest/gtest.h>

#include <cmath>
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

}  // namespace
}  // namespace pleat::bridge

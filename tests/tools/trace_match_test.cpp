// Which place of one trace is which of another.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tools/pleat/trace/match.h"

namespace pleat::trace {
namespace {

PlaceSum place(std::string op, std::string function, std::string file, std::uint64_t line,
               std::int64_t bytes = 1) {
  PlaceSum sum;
  sum.place = {std::move(op), std::move(function), std::move(file), line, false};
  sum.bytes[static_cast<std::size_t>(ByteClass::kKept)] = bytes;
  sum.blocks = 1;
  return sum;
}

PlaceSum main_line(std::uint64_t line, std::int64_t bytes = 1, std::string op = "add") {
  return place(std::move(op), "main", "/me/train.py", line, bytes);
}

using Lines = std::multimap<std::uint64_t, std::uint64_t>;  // of A, of B; 0: it has none

Lines lines_of(const std::vector<PlacePair>& pairs) {
  Lines lines;
  for (const PlacePair& pair : pairs)
    lines.emplace(pair.a ? pair.a->place.line : 0, pair.b ? pair.b->place.line : 0);
  return lines;
}

TEST(TraceMatch, LinesThatStayedAreThemselves) {
  const auto pairs = match_places({main_line(10), main_line(12)}, {main_line(12), main_line(14)});
  EXPECT_EQ(lines_of(pairs),
            (Lines{{10, 12}, {12, 14}}));  // two moved: better than one that stayed
  const auto stayed = match_places({main_line(10), main_line(12)}, {main_line(12), main_line(90)});
  EXPECT_EQ(lines_of(stayed), (Lines{{12, 12}, {10, 90}}));
}

TEST(TraceMatch, AFunctionMovesAsAWholeUpOrDown) {
  for (const std::uint64_t up : {7, 0}) {
    std::vector<PlaceSum> a;
    std::vector<PlaceSum> b;
    Lines expected;
    for (std::uint64_t line = 100; line < 110; ++line) {  // each a line of its own, of one operator
      a.push_back(main_line(line + up));
      b.push_back(main_line(line + 7 - up));
      expected.emplace(line + up, line + 7 - up);
    }
    EXPECT_EQ(lines_of(match_places(a, b)), expected);
  }
}

TEST(TraceMatch, WhatIsLeftIsInOrderOfLinesAndTheRestIsNewOrGone) {
  const auto pairs = match_places({main_line(1), main_line(50), main_line(70, 1, "mul")},
                                  {main_line(1), main_line(58), main_line(90)});
  EXPECT_EQ(lines_of(pairs), (Lines{{1, 1}, {50, 58}, {70, 0}, {0, 90}}));
}

TEST(TraceMatch, OperatorsFunctionsAndFilesDoNotMix) {
  const std::vector<PlaceSum> a = {place("add", "f", "x.py", 1), place("add", "f", "y.py", 2),
                                   place("add", "g", "x.py", 3), place("mul", "f", "x.py", 4)};
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.size(); ++j)
      EXPECT_EQ(match_places({a[i]}, {a[j]}).size(), i == j ? 1u : 2u);
}

TEST(TraceMatch, AFileIsTheOneOfItsNameWhosePathEndsMostAlike) {
  const auto pairs = match_places(
      {place("add", "f", "/a/models/net.py", 1), place("add", "f", "/a/data/net.py", 2)},
      {place("add", "f", "/b/data/net.py", 3), place("add", "f", "/b/models/net.py", 4)});
  EXPECT_EQ(lines_of(pairs), (Lines{{1, 4}, {2, 3}}));
  // A file that both have is no other's, and one file of A is but one of B's.
  const auto same =
      match_places({place("add", "f", "/a/net.py", 1), place("add", "f", "/c/net.py", 2)},
                   {place("add", "f", "/a/net.py", 3), place("add", "f", "/d/net.py", 4),
                    place("add", "f", "/e/net.py", 5)});
  EXPECT_EQ(lines_of(same), (Lines{{1, 3}, {2, 4}, {0, 5}}));
}

TEST(TraceMatch, WithoutASourceOperatorsAreMatchedByName) {
  const auto pairs = match_places({place("add", "", "", 0, 5), place("mul", "", "", 0, 3)},
                                  {place("mul", "", "", 0, 4), place("sin", "", "", 0, 2)});
  std::map<std::string, std::int64_t> changes;
  for (const PlacePair& pair : pairs)
    changes[pair.a ? pair.a->place.op : pair.b->place.op] = pair.change();
  EXPECT_EQ(changes, (std::map<std::string, std::int64_t>{{"add", -5}, {"mul", 1}, {"sin", 2}}));
}

TEST(TraceMatch, EachPlaceIsInOnePair) {
  std::mt19937 random(7);
  const auto any = [&](int below) {
    return static_cast<int>(std::uniform_int_distribution<>(0, below - 1)(random));
  };
  const auto make = [&](const std::string& folder) {
    std::map<NamedPlace, PlaceSum> places;
    for (int i = any(60); i > 0; --i) {
      PlaceSum sum = place(std::to_string(any(3)), std::to_string(any(3)),
                           folder + std::to_string(any(2)) + "/" + std::to_string(any(2)) + ".py",
                           static_cast<std::uint64_t>(any(30)), any(100));
      sum.place.native = any(4) == 0;
      places.emplace(sum.place, sum);
    }
    std::vector<PlaceSum> list;
    for (const auto& [name, sum] : places) list.push_back(sum);
    return list;
  };
  for (int round = 0; round < 300; ++round) {
    const std::vector<PlaceSum> a = make("/a/");
    const std::vector<PlaceSum> b = make(any(2) == 0 ? "/a/" : "/b/");
    std::vector<NamedPlace> of_a;
    std::vector<NamedPlace> of_b;
    for (const PlacePair& pair : match_places(a, b)) {
      ASSERT_TRUE(pair.a || pair.b);
      if (pair.a) of_a.push_back(pair.a->place);
      if (pair.b) of_b.push_back(pair.b->place);
      if (!pair.a || !pair.b) continue;
      EXPECT_EQ(pair.a->place.op, pair.b->place.op);
      EXPECT_EQ(pair.a->place.function, pair.b->place.function);
      EXPECT_EQ(pair.a->place.native, pair.b->place.native);
    }
    const auto is_all = [](std::vector<NamedPlace> found, const std::vector<PlaceSum>& given) {
      std::sort(found.begin(), found.end());
      return std::equal(found.begin(), found.end(), given.begin(), given.end(),
                        [](const NamedPlace& x, const PlaceSum& y) { return x == y.place; });
    };
    EXPECT_TRUE(is_all(of_a, a)) << "round " << round;
    EXPECT_TRUE(is_all(of_b, b)) << "round " << round;
  }
}

}  // namespace
}  // namespace pleat::trace

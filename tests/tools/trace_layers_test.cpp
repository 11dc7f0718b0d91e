// Modules and groups: which bytes belong to them, in forward and in backward.
#include <algorithm>
#include <string>

#include "tests/tools/trace/told.h"
#include "tools/pleat/trace/groups.h"
#include "tools/pleat/trace/modules.h"

namespace pleat::trace {
namespace {

using namespace testing;

constexpr std::uint64_t kKiB = 1024;

// Tells which module the story's thread is in.
void enter(Story& story, std::string_view path) {
  const std::uint32_t before = story.op;
  story.op = path.empty() ? 0 : story.writer.string(path);
  story.mark(PLEAT_TRACE_MODULE);
  story.op = before;
}

struct Layered {
  Told told;
  ModuleTree tree;
  std::vector<PartUse> uses;

  // The moment is that after the event `at`.
  Layered(Story& story, std::size_t at) : told(story), tree(told.file->definitions()) {
    PartBook book(-1, tree);
    told.replay->for_each([&](const PleatTraceEvent& event, const Ledger& ledger) {
      book.take(event, ledger);
      if (ledger.events() - 1 != at) return;
      for (const LiveEntry& entry : ledger.live(-1)) book.take_moment(entry);
    });
    uses = book.uses();
  }
  [[nodiscard]] const PartUse& of(std::string_view path) const {
    static const PartUse kNothing;
    for (std::uint32_t part = 0; part < uses.size(); ++part)
      if (tree.path_of(part) == path) return uses[part];
    return kNothing;
  }
  [[nodiscard]] std::vector<std::string> rows(std::uint32_t depth, std::size_t most) const {
    std::vector<std::string> paths;
    for (const ModuleRow& row : module_table(tree, uses, depth, most).rows)
      paths.push_back(tree.path_of(row.part));
    return paths;
  }
};

// Two layers: the first saves 100 KiB, which is coded in 25, and the second 60, which stays raw.
struct TwoLayers {
  Story story;
  std::size_t peak = 0;

  TwoLayers() {
    story.begin(kForward, 0);
    enter(story, "GPT");
    enter(story, "GPT.h.0");
    story.allocate(1, 100 * kKiB);
    story.record(PLEAT_TRACE_TAG, 11, 1, 100 * kKiB);
    story.allocate(2, 30 * kKiB);
    story.allocate(3, 10 * kKiB);
    story.free(2);
    story.free(3);
    enter(story, "GPT.h.1");
    // The payload is made while the next layer runs.
    story.slot(PLEAT_TRACE_PAYLOAD_ALLOCATE, 25 * kKiB, 25 * kKiB);
    story.encode(11, PLEAT_TRACE_PLACE_CHUNK, testing::kChunk, 25 * kKiB);
    story.free(1);
    story.allocate(4, 60 * kKiB);
    peak = story.record(PLEAT_TRACE_TAG, 12, 4, 60 * kKiB);
    enter(story, "GPT");
    enter(story, "");
    story.allocate(5, 5 * kKiB);
    story.free(5);
    story.begin(kBackward, 0);
    story.free(4);
    story.record(PLEAT_TRACE_DROP, 12, 0, 0);
    story.slot(PLEAT_TRACE_PAYLOAD_FREE, 25 * kKiB, -static_cast<std::int64_t>(25 * kKiB));
    story.record(PLEAT_TRACE_DROP, 11, 0, 25 * kKiB);
  }
};

TEST(TraceLayers, AModuleRetainsWhatItSavedWhoeverRunsWhenItIsCoded) {
  TwoLayers two;
  const Layered found(two.story, two.peak);
  EXPECT_EQ(found.of("GPT.h.0").own.retained(), 25 * kKiB);
  EXPECT_EQ(found.of("GPT.h.1").own.retained(), 60 * kKiB);
  EXPECT_EQ(found.of("GPT.h").own.retained(), 0);
  EXPECT_EQ(found.of("GPT.h").all.retained(), 85 * kKiB);
  EXPECT_EQ(found.of("GPT").all.retained(), 85 * kKiB);
  EXPECT_EQ(found.of("GPT").all.saved_in_step, 160 * kKiB);
  EXPECT_EQ(found.of("GPT").own.saved_in_step, 0);
  EXPECT_EQ(found.of("GPT.h.0").all.left_bytes(), 25 * kKiB);
  EXPECT_EQ(found.of("GPT").all.left_bytes(), 85 * kKiB);  // of 160
  EXPECT_EQ(found.of("").own.retained(), 0);
}

TEST(TraceLayers, TemporariesAreTheMostThatLivedAtOnceWithoutWhatIsSaved) {
  TwoLayers two;
  const Layered found(two.story, two.peak);
  // Block 1 is temporary before it is saved and after it is coded: 100; with 2 and 3 it is saved.
  EXPECT_EQ(found.of("GPT.h.0").own.temporary, 100 * kKiB);
  EXPECT_EQ(found.of("").own.temporary, 5 * kKiB);  // block 4 outlives forward
  EXPECT_EQ(found.of("GPT.h.1").own.temporary, 0);
  EXPECT_EQ(found.of("GPT").all.temporary, 100 * kKiB);
  EXPECT_EQ(found.of("GPT").own.temporary, 0);
}

TEST(TraceLayers, TemporariesOfTwoPartsThatNeverMeetDoNotAddUp) {
  Story story;
  story.begin(kForward, 0);
  enter(story, "Net.a");
  story.allocate(1, 7 * kKiB);
  story.free(1);
  enter(story, "Net.b");
  story.allocate(2, 5 * kKiB);
  story.allocate(3, 4 * kKiB);
  story.shrink(3, 1 * kKiB);
  story.free(3);
  story.free(2);
  const Layered found(story, 0);
  EXPECT_EQ(found.of("Net.a").own.temporary, 7 * kKiB);
  EXPECT_EQ(found.of("Net.b").own.temporary, 9 * kKiB);
  EXPECT_EQ(found.of("Net").all.temporary, 9 * kKiB);
}

TEST(TraceLayers, BackwardBelongsToTheModuleOfItsForward) {
  Story story;
  story.begin(kForward, 0);
  enter(story, "Net.a");
  story.op = story.writer.string("aten::mm");
  story.node = 5;
  story.mark(PLEAT_TRACE_NODE);
  story.node = 0;
  enter(story, "Net");
  enter(story, "");
  story.begin(kBackward, 0);
  story.thread = 9;  // a device's thread, which is in no module
  story.node = 5;
  const std::size_t largest = story.allocate(1, 40 * kKiB);
  story.free(1);
  story.node = 6;  // nobody has told of it
  story.allocate(2, 8 * kKiB);
  story.free(2);
  const Layered found(story, largest);
  EXPECT_EQ(found.of("Net.a").own.largest, 40 * kKiB);
  EXPECT_EQ(found.of("Net.a").own.temporary, 40 * kKiB);
  EXPECT_EQ(found.of("Net").all.largest, 40 * kKiB);
  EXPECT_EQ(found.told.file->definitions().string(found.of("Net").all.largest_place.op),
            "aten::mm");
  EXPECT_EQ(found.of("").own.largest, 8 * kKiB);
}

TEST(TraceLayers, InBackwardAModuleThatRunsAgainCountsButNotOneThatEnclosesTheForward) {
  Story story;
  story.begin(kForward, 0);
  enter(story, "Net.a");
  story.node = 5;
  story.mark(PLEAT_TRACE_NODE);
  story.node = 0;
  story.begin(kBackward, 0);
  story.node = 5;
  enter(story, "Net.a.inner");  // a checkpoint
  story.allocate(1, 3 * kKiB);
  story.free(1);
  enter(story, "Net.b");  // a checkpoint that began elsewhere
  story.allocate(2, 4 * kKiB);
  story.free(2);
  enter(story, "Net");  // which differentiates what it has done
  story.allocate(3, 5 * kKiB);
  story.free(3);
  enter(story, "Ne");  // no part of it, though its name begins so
  story.allocate(4, 6 * kKiB);
  story.free(4);
  const Layered found(story, 0);
  EXPECT_EQ(found.of("Net.a.inner").own.largest, 3 * kKiB);
  EXPECT_EQ(found.of("Net.b").own.largest, 4 * kKiB);
  EXPECT_EQ(found.of("Net.a").own.largest, 5 * kKiB);
  EXPECT_EQ(found.of("Ne").own.largest, 6 * kKiB);
}

TEST(TraceLayers, ThreadsAreInModulesOfTheirOwn) {
  Story story;
  story.begin(kForward, 0);
  enter(story, "A");
  story.thread = 2;
  story.allocate(1, 1 * kKiB);
  enter(story, "B");
  story.allocate(2, 2 * kKiB);
  story.thread = 1;
  story.allocate(3, 3 * kKiB);
  const Layered found(story, story.events().size() - 1);
  EXPECT_EQ(found.of("A").own.live_bytes(), 3 * kKiB);
  EXPECT_EQ(found.of("B").own.live_bytes(), 2 * kKiB);
  EXPECT_EQ(found.of("").own.live_bytes(), 1 * kKiB);
}

TEST(TraceLayers, WhatIsSavedIsCountedByStep) {
  Story story;
  for (std::uint64_t step = 0; step < 3; ++step) {
    story.begin(kForward, step);
    enter(story, "A");
    for (std::uint64_t i = 0; i <= step % 2; ++i)
      story.record(PLEAT_TRACE_TAG, 10 * step + i + 1, 0, 4 * kKiB);
    story.begin(kBackward, step);
  }
  const Layered found(story, 0);
  EXPECT_EQ(found.of("A").own.saved_in_step, 8 * kKiB);  // of the second step
  EXPECT_EQ(found.of("A").own.saved.saved_bytes, 16 * kKiB);
  EXPECT_EQ(found.of("A").own.saved.saved, 4u);
}

TEST(TraceLayers, RowsAreThoseThatRetainMostInTheOrderOfTheTree) {
  TwoLayers two;
  const Layered found(two.story, two.peak);
  EXPECT_EQ(found.rows(0, 10),
            (std::vector<std::string>{"GPT", "GPT.h", "GPT.h.1", "GPT.h.0", ""}));
  EXPECT_EQ(found.rows(0, 3), (std::vector<std::string>{"GPT", "GPT.h", "GPT.h.1"}));
  EXPECT_EQ(module_table(found.tree, found.uses, 0, 3).left_out, 2u);
  const ModuleTable folded = module_table(found.tree, found.uses, 2, 10);
  ASSERT_EQ(folded.rows.size(), 3u);
  EXPECT_EQ(folded.rows[0].use.own.retained(), 0);
  EXPECT_EQ(folded.rows[1].use.own.retained(), 85 * kKiB);  // of all that lies deeper
}

TEST(TraceLayers, HostilePathsAreBounded) {
  Story story;
  std::string deep = "a";
  for (int i = 0; i < 200; ++i) deep += ".a";
  for (const std::string& path : {deep, std::string("..."), std::string("\xff.\n")}) {
    enter(story, path);
    story.allocate(story.events().size() + 1, kKiB);
  }
  const Layered found(story, story.events().size() - 1);
  std::uint32_t deepest = 0;
  for (std::uint32_t part = 0; part < found.uses.size(); ++part)
    deepest = std::max(deepest, found.tree.depth_of(part));
  EXPECT_EQ(deepest, ModuleTree::kMostDepth);
  EXPECT_EQ(found.of(deep).own.live_bytes(), kKiB);
  EXPECT_EQ(found.of("...").own.live_bytes(), kKiB);
}

// ---- groups -------------------------------------------------------------------------------------

TEST(TraceGroups, TheFirstRuleThatMatchesTheModuleElseTheLineElseTheOperatorCounts) {
  TraceWriter writer;
  const std::uint32_t op = writer.string("aten::softmax");
  const std::uint32_t attention = writer.string("GPT.h.0.attention.q");
  const std::uint32_t mlp = writer.string("GPT.h.0.mlp");
  const std::uint32_t stack = writer.stack_of({writer.python_frame("attention", "/me/net.py", 5)});
  const MemoryFile memory((writer.flush(), writer.finish()));
  std::string problem;
  const auto file = File::open(memory.path(), problem);
  Lines lines(file->definitions());
  std::vector<GroupRule> rules;
  for (const char* text :
       {"attn=.*attention.*", "mlp=mlp$", "attn=soft(max)?", "net=net\\.py:[0-9]+ "})
    rules.push_back(*parse_group(text, problem));
  Groups groups(rules, file->definitions(), lines);
  EXPECT_EQ(groups.names(), (std::vector<std::string>{"attn", "mlp", "net", "other"}));
  const auto name = [&](const Origin& place) { return groups.names()[groups.part_of(place)]; };
  EXPECT_EQ(name({op, stack, attention}), "attn");
  EXPECT_EQ(name({op, stack, mlp}), "mlp");
  EXPECT_EQ(name({op, stack, op}), "attn");  // a module of that name
  EXPECT_EQ(name({op, stack, 0}), "attn");   // the function's name
  EXPECT_EQ(name({op, 0, 0}), "attn");
  EXPECT_EQ(name({}), "other");
  EXPECT_EQ(name({0, 0, 999}), "other");
}

TEST(TraceGroups, WhatIsNoRuleIsRefusedInOneLine) {
  const std::string long_pattern = "a=" + std::string(2000, 'x');
  for (const char* text : {"", "a", "=a", "a=", "a=(", "a=[z-a]", "a=(x)\\1", "a=x{100000}", "a=*",
                           long_pattern.c_str()}) {
    std::string problem;
    EXPECT_FALSE(parse_group(text, problem)) << text;
    EXPECT_FALSE(problem.empty()) << text;
    EXPECT_EQ(problem.find('\n'), std::string::npos);
  }
  std::string problem;
  EXPECT_TRUE(parse_group("a=x\\\\1", problem));  // a backslash, then a digit
  EXPECT_TRUE(parse_group("a==", problem));
}

// Backtracking would take longer than the universe has been there.
TEST(TraceGroups, LongTextsOfAFileTakeNoTime) {
  TraceWriter writer;
  const std::uint32_t op = writer.string(std::string(4000, 'a'));
  const MemoryFile memory((writer.flush(), writer.finish()));
  std::string problem;
  const auto file = File::open(memory.path(), problem);
  Lines lines(file->definitions());
  const std::vector<GroupRule> rules{*parse_group("bad=^(a+)+(a|aa)+(.*)(.*)(.*)b$", problem),
                                     *parse_group("tail=^a{200}$", problem)};
  Groups groups(rules, file->definitions(), lines);
  EXPECT_EQ(groups.names()[groups.part_of({op, 0, 0})], "tail");  // its end was matched
}

}  // namespace
}  // namespace pleat::trace

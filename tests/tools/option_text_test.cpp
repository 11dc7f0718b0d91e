// Items and quotes of PLEAT_CONF, and how values are shown.
#include "torch_bridge/core/option_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/tools/option_reference.h"

namespace pleat::bridge {
namespace {

using testing::ReferenceItem;
using enum QuoteMistake;

ReferenceItem item(std::string key, std::string value) { return {std::move(key), value, true}; }
ReferenceItem mistake(std::string key, QuoteMistake what) {
  return {std::move(key), "", true, what};
}

unsigned test_seed() {
  const char* const given = std::getenv("PLEAT_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10))
                          : std::random_device{}();
}

TEST(OptionText, ItemsAreTakenApart) {
  const std::pair<std::string, std::vector<ReferenceItem>> rows[] = {
      {"", {}},
      {" ,, \n,", {}},
      {"a:1", {item("a", "1")}},
      {" a : 1 , b:x y ", {item("a", "1"), item("b", "x y")}},
      {"a:/x:y:z", {item("a", "/x:y:z")}},
      {"a,b:", {{"a", "", false}, item("b", "")}},
      {":1", {item("", "1")}},
      {R"(a:x"y",b:1)", {item("a", R"(x"y")"), item("b", "1")}},
      {R"(a:x\,b:1)", {item("a", R"(x\)"), item("b", "1")}},
      {R"(a:"x,y",b:1)", {item("a", "x,y"), item("b", "1")}},
      {R"(a: " x " ,b:1)", {item("a", " x "), item("b", "1")}},
      {"a:\"x\ny\"", {item("a", "x\ny")}},
      {R"(a:"")", {item("a", "")}},
      {R"(a:"\"\\\"",b:"\\")", {item("a", R"("\")"), item("b", R"(\)")}},
      {R"(a:"b:1,c:2")", {item("a", "b:1,c:2")}},
      {std::string("a:\"x\0y\"", 7), {item("a", std::string("x\0y", 3))}},
      {R"(a")", {{R"(a")", "", false}}},
      // Mistakes cost their item.
      {R"(a:")", {mistake("a", kNotClosed)}},
      {R"(a:"x,b:1)", {mistake("a", kNotClosed), item("b", "1")}},
      {R"(a:"x,y,b:1,c:2)", {mistake("a", kNotClosed), item("b", "1"), item("c", "2")}},
      {R"(a:"x\",b:1)", {mistake("a", kNotClosed), item("b", "1")}},
      {R"(a:"x\)", {mistake("a", kNotClosed)}},
      {R"(a:"x"y,b:1)", {mistake("a", kTextBehind), item("b", "1")}},
      {R"(a:"x""y,z", b_2 :1)", {mistake("a", kTextBehind), item("b_2", "1")}},
      {R"(a:"say "hi, you"",b:1)", {mistake("a", kTextBehind), item("b", "1")}},
      {R"(a:"x\n",b:1)", {mistake("a", kStrayBackslash), item("b", "1")}},
      {R"(a:"C:\dir\",b:1)", {mistake("a", kStrayBackslash), item("b", "1")}},
      {R"(a:"x\ny"z,b:1)", {mistake("a", kStrayBackslash), item("b", "1")}},
  };
  for (const auto& [text, items] : rows) {
    EXPECT_EQ(testing::items_taken_from(text), items) << text;
    EXPECT_EQ(testing::reference_items(text), items) << text << ": the reference";
  }
}

TEST(OptionText, QuotesStandOnlyWhereTheyMust) {
  const std::pair<const char*, const char*> rows[] = {
      {"4", "4"},
      {"/data/run 1/a:b.json", "/data/run 1/a:b.json"},
      {R"(/it's\"here")", R"(/it's\"here")"},
      {"caf\xc3\xa9", "caf\xc3\xa9"},
      {"two\nlines", "two\nlines"},
      {"", R"("")"},
      {"/a,b", R"("/a,b")"},
      {" /a", R"(" /a")"},
      {"/a\n", "\"/a\n\""},
      {R"("/a")", R"("\"/a\"")"},
      {R"(\,")", R"("\\,\"")"},
  };
  for (const auto& [value, spelling] : rows) EXPECT_EQ(spelled(value), spelling);
}

TEST(OptionText, AnyBytesAreReadAsTheReferenceReadsThemAndComeBackFromTheirSpelling) {
  const unsigned seed = test_seed();
  SCOPED_TRACE("PLEAT_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string marks("\"\"\"\\\\,,:: \n\0ab1_\xff", 18);
  const std::string keys[] = {"profile:\"", ",bits:", ",trace : \"", "min_bytes:", "\",verbose:"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (unsigned n = random() % 16; n > 0; --n) {
      const unsigned kind = random() % 8;
      if (kind == 0)
        text += keys[random() % std::size(keys)];
      else
        text += kind == 1 ? static_cast<char>(random()) : marks[random() % marks.size()];
    }
    ASSERT_EQ(testing::what_is_wrong(text), "") << ::testing::PrintToString(text);
  }
}

TEST(OptionText, SixtyFourKilobytesOfAnyMarkAreRead) {
  for (const std::string part :
       {"\"", "\\", ",", ":", " ", "a:\"", "a:\",", "a:\"\\", "a:\"\"x,", "\xc3", "x,"})
    for (const std::string before : {"", "profile:\"", "profile:\"\"x"}) {
      std::string text = before;
      while (text.size() < 65536) text += part;
      std::vector<std::string> problems;
      Options options;
      parse_options(text, options, problems);
      EXPECT_LE(problems.size(), 17u);
      EXPECT_EQ(testing::items_taken_from("key:" + spelled(text)).at(0).value, text);
    }
}

TEST(OptionText, PrintableCutsNoCharacterInTwo) {
  const std::string umlaut = "\xc3\xa4";
  std::string text(63, 'x');
  EXPECT_EQ(printable(text + "y"), text + "y");
  EXPECT_EQ(printable(text + "yz"), text + "y...");
  EXPECT_EQ(printable(text + umlaut), text + "...");
  EXPECT_EQ(printable("a\x1b\n\x7f"), "a???");
}

// nlohmann's parser is the other route.
TEST(OptionText, JsonStringsReadBackAsTheText) {
  for (const std::string& text :
       {std::string(), std::string("/a b:c,d'e"), std::string("\"quoted\" \\ back"),
        std::string("\0\x01\n\x1f\x7f", 5), std::string("\xc3\xa4\xe2\x82\xac\xf0\x9f\xa7\xaa"),
        std::string(
            "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80")})
    EXPECT_EQ(nlohmann::json::parse(json_string(text)).get<std::string>(), text);
}

TEST(OptionText, WhatIsNoUtf8BecomesReplacementCharacters) {
  const std::pair<std::string, std::size_t> rows[] = {
      {"a\xff"
       "b",
       1},
      {"\xc0\x80", 2},          // overlong
      {"\xe0\x9f\xbf", 3},      // overlong
      {"\xf0\x8f\xbf\xbf", 4},  // overlong
      {"\xed\xa0\x80", 3},      // a surrogate
      {"\xf4\x90\x80\x80", 4},  // above U+10FFFF
      {"\xe2\x82", 2},          // cut off
      {"\xe2\x82\"", 2},        // cut off by a quote
      {"\x80\xc3\xa4\xc3", 2},  // around a good one
      {std::string("\xf0\x9f\xa7\0", 4), 3},
  };
  for (const auto& [text, bad] : rows) {
    const std::string back = nlohmann::json::parse(json_string(text)).get<std::string>();
    std::size_t replaced = 0;
    for (std::size_t at = 0; (at = back.find("\xef\xbf\xbd", at)) != std::string::npos; ++at)
      ++replaced;
    EXPECT_EQ(replaced, bad) << text;
    EXPECT_EQ(back.size(), text.size() + 2 * bad) << text;  // three bytes for each
  }
}

}  // namespace
}  // namespace pleat::bridge

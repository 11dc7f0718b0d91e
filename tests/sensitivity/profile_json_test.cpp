// The text of a profile: written texts are read again, and faulty ones are refused in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "sensitivity/profile.h"
#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

using testing::expect_equal;
using testing::full_profile;

const std::string kStart = R"({"pleat_profile": 2, "units": [)";

// The text of a profile of one unit with these fields.
std::string text_with(const std::string& fields) {
  return kStart + R"({"key": "0x1")" + (fields.empty() ? "" : ", ") + fields + "}]}";
}

void expect_refused(const std::string& text, const std::string& because) {
  const ReadResult result = from_json(text);
  EXPECT_EQ(result.status, ReadStatus::kDamaged) << text.substr(0, 200);
  EXPECT_NE(result.message.find(because), std::string::npos) << result.message;
  EXPECT_EQ(result.message.find('\n'), std::string::npos);
  EXPECT_TRUE(result.profile.units.empty());
}

TEST(ProfileJson, EveryFieldRoundTrips) {
  const ReadResult result = from_json(to_json(full_profile()));
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  expect_equal(result.profile, full_profile());
}

TEST(ProfileJson, IsTheTextThatPeopleExpect) {
  Profile profile;
  profile.steps = 2;
  profile.units.resize(2);
  profile.units[0].key = 0x2a;
  profile.units[0].type = "float32";
  profile.units[0].shape = {2, 3};
  profile.units[0].width = 4;
  profile.units[0].trail = {"bits:3", "wide_steps:4"};
  profile.units[0].costs = {{4, 10, 1}, {0, 24, 0}};
  profile.units[0].measurements = {{5, 0.25}};
  profile.units[0].results = {1};
  profile.units[1].key = 0xABCDEF0123456789ULL;
  EXPECT_EQ(to_json(profile),
            "{\"pleat_profile\": 2, \"steps\": 2, \"bits\": 4, \"objective\": \"gradient\", "
            "\"passes\": 0, \"seconds\": 0, "
            "\"units\": [\n"
            "{\"key\": \"0x000000000000002a\", \"type\": \"float32\", \"shape\": [2, 3], "
            "\"tensors\": 1, \"bytes\": 0, \"payload_bytes\": 0, \"width\": 4, "
            "\"trail\": [\"bits:3\", \"wide_steps:4\"], "
            "\"costs\": [[4, 10, 1], [0, 24, 0]], \"measurements\": [[5, 0.25]], "
            "\"results\": [\"0x0000000000000001\"]},\n"
            "{\"key\": \"0xabcdef0123456789\", "
            "\"tensors\": 1, \"bytes\": 0, \"payload_bytes\": 0, \"width\": 0}\n"
            "]}\n");
}

TEST(ProfileJson, DoublesRoundTripBitForBit) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  Profile profile;
  profile.units.resize(1);
  profile.units[0].key = 1;
  std::vector<Measurement>& sent = profile.units[0].measurements;
  sent = {{0, 0.0}, {0, 5e-324}, {0, std::numeric_limits<double>::min()}, {0, 1e100}, {0, 0.1}};
  while (sent.size() < 1000) {
    const double any = std::abs(std::bit_cast<double>(random()));
    if (any <= 1e100) {  // excludes NaN
      sent.push_back({sent.size(), any});
    }
  }
  const ReadResult result = from_json(to_json(profile));
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  expect_equal(result.profile, profile);
}

TEST(ProfileJson, NamesOfAnyBytesAreWritten) {
  Profile profile;
  profile.torch = std::string("a\0b\n\t\x7f", 6) + "\xff\xc3(\xed\xa0\x80 \xf0\x9f\x98\x80";
  profile.units = {testing::plain_unit(1)};
  profile.units[0].producer = std::string(10'000, '\xff');
  const ReadResult result = from_json(to_json(profile));
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  EXPECT_TRUE(result.profile.torch.starts_with(std::string("a\0b\n\t\x7f", 6) + "\xef\xbf\xbd"));
  EXPECT_TRUE(result.profile.torch.ends_with(" \xf0\x9f\x98\x80"));
  EXPECT_EQ(to_json(result.profile), to_json(from_json(to_json(result.profile)).profile));
}

TEST(ProfileJson, NonFiniteNumbersAreOmittedOrUnreadable) {
  Profile profile;
  profile.units = {testing::plain_unit(1, {{1, NAN}, {2, INFINITY}, {3, -1.0}, {4, 0.5}})};
  const ReadResult result = from_json(to_json(profile));
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  const std::vector<Measurement>& measurements = result.profile.units[0].measurements;
  ASSERT_EQ(measurements.size(), 3u);
  EXPECT_EQ(measurements[0].noise, 1e100);
  EXPECT_EQ(measurements[1].noise, 0);
  EXPECT_EQ(measurements[2].noise, 0.5);
  profile.seconds = NAN;
  expect_refused(to_json(profile), "\"seconds\"");
}

TEST(ProfileJson, OtherTextIsForeign) {
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("{}"), std::string("[]"),
        std::string("{\"profile\": 1}"), std::string(1 << 20, '\0'), std::string(1 << 20, '['),
        "{\"more\": \"" + std::string(5000, 'x') + "\", \"pleat_profile\": 1, \"units\": []}"}) {
    const ReadResult result = from_json(text);
    EXPECT_EQ(result.status, ReadStatus::kForeign) << text.substr(0, 40);
    EXPECT_FALSE(result.message.empty());
  }
}

TEST(ProfileJson, EveryTruncationIsRefused) {
  const std::string text = to_json(full_profile());
  const std::size_t last = text.find_last_not_of('\n');
  for (std::size_t size = 0; size <= last; ++size) {
    const ReadStatus status = from_json(std::string_view(text).substr(0, size)).status;
    const bool marked = size >= std::strlen("{\"pleat_profile\"");
    ASSERT_EQ(status, marked ? ReadStatus::kDamaged : ReadStatus::kForeign) << size;
  }
}

TEST(ProfileJson, OtherVersionsAreNamed) {
  expect_refused(R"({"pleat_profile": 3, "units": []})",
                 "version 3, and this Pleat reads versions 1 to 2");
  expect_refused(R"({"pleat_profile": 0, "units": []})", "version 0");
  expect_refused(R"({"pleat_profile": "1", "units": []})", "\"pleat_profile\"");
  expect_refused(R"({"units": [], "x": {"pleat_profile": 1}})", "missing");
  expect_refused(R"({"pleat_profile": 1})", "missing");
  expect_refused(R"(["pleat_profile"])", "not expected");
  expect_refused(R"("pleat_profile")", "expected");
}

TEST(ProfileJson, FieldsOfLaterWritersArePassedOver) {
  const ReadResult result = from_json(
      R"({"later": {"units": [1, {"key": 2}], "a": [[]]}, "units": [{"new": [{}, [null]],)"
      R"("key": "0xA", "width": 6, "older": -0.5}], "bits": 2.5, "pleat_profile": 1})");
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  ASSERT_EQ(result.profile.units.size(), 1u);
  EXPECT_EQ(result.profile.units[0].key, 10u);
  EXPECT_EQ(result.profile.units[0].width, 6u);
  EXPECT_EQ(result.profile.bits, 2.5);
}

TEST(ProfileJson, FaultOfAFieldIsReported) {
  struct Case {
    const char* fields;
    const char* because;
  };
  for (const auto& [fields, because] : std::initializer_list<Case>{
           {R"("width": 5)", "unit 1, \"width\": not a width"},
           {R"("width": 16)", "\"width\""},
           {R"("width": "4")", "\"width\""},
           {R"("width": [4])", "\"width\": a list is not expected"},
           {R"("floor": 9)", "\"floor\""},
           {R"("floor": 0)", "\"floor\""},
           {R"("bytes": -1)", "\"bytes\""},
           {R"("bytes": 1.5)", "\"bytes\""},
           {R"("bytes": 8796093022209)", "\"bytes\""},
           {R"("bytes": 99999999999999999999)", "\"bytes\""},
           {R"("bytes": null)", "\"bytes\""},
           {R"("bytes": {})", "an object is not expected"},
           {R"("tensors": 4294967296)", "\"tensors\""},
           {R"("producer": 3)", "\"producer\""},
           {R"("distrusted": 1)", "\"distrusted\""},
           {R"("shape": 3)", "\"shape\": not a list"},
           {R"("shape": [-3])", "\"shape\""},
           {R"("shape": [[3]])", "\"shape\": a list is not expected"},
           {R"("key": "0x1")", "\"key\": stands there twice"},
           {R"("costs": [[4, 1, 1]])", "\"costs\": the last one is not the exact one"},
           {R"("costs": [[4, 1, 1], [4, 1, 1], [0, 1, 0]])", "\"costs\": widths do not ascend"},
           {R"("costs": [[0, 1, 0], [4, 1, 1]])", "\"costs\": widths do not ascend"},
           {R"("costs": [[5, 1, 1], [0, 1, 0]])", "\"costs\": not a width"},
           {R"("costs": [[4, 1, -1], [0, 1, 0]])", "\"costs\": not a number"},
           {R"("costs": [[4, 1, 1e101], [0, 1, 0]])", "\"costs\": not a number"},
           {R"("costs": [[4, 1, 1e999], [0, 1, 0]])", "a number is too large"},
           {R"("costs": [[4, 1, NaN], [0, 1, 0]])", "no JSON"},
           {R"("costs": [[0, 1, 1]])", "the exact one has an error"},
           {R"("costs": [[4, 1], [0, 1, 0]])", "a list of three"},
           {R"("costs": [[4, 1, 1, 1], [0, 1, 0]])", "a list of three"},
           {R"("costs": [4, 1, 1])", "\"costs\": a list or an object is expected"},
           {R"("measurements": [[1]])", "a list of two or three"},
           {R"("measurements": [[1, 1, 1, 1]])", "a list of two or three"},
           {R"("measurements": [[1, -1e-9]])", "\"measurements\""},
           {R"("measurements": [[1.5, 1]])", "\"measurements\""},
           {R"("results": [1])", "\"results\""},
           {"\"type\": \"\xff\"", "no JSON"},
           {R"("type": "a)", "no JSON"},
       }) {
    expect_refused(text_with(fields), because);
  }
}

TEST(ProfileJson, KeysAreHexadecimalAndOfOneUnitEach) {
  for (const char* key : {R"("1")", R"("0x")", R"("0x1g")", R"("0x10000000000000000")", R"("0x-1")",
                          R"("0x 1")", "1", "null"}) {
    expect_refused(kStart + "{\"key\": " + key + "}]}", "unit 1, \"key\": not a number");
  }
  expect_refused(kStart + "{}]}", "unit 1, \"key\": is missing");
  expect_refused(kStart + R"({"key": "0x1"}, {"key": "0x2"}, {"key": "0x01"}]})", "one key");
  EXPECT_EQ(from_json(kStart + R"({"key": "0xFFFFFFFFFFFFFFFF"}]})").status, ReadStatus::kOk);
}

TEST(ProfileJson, FaultOfTheProfileIsReported) {
  expect_refused(kStart + "]} x", "no JSON from byte");
  expect_refused(kStart + "1]}", "\"units\": a list or an object");
  expect_refused(kStart + "[]]}", "\"units\": a list is not expected");
  expect_refused(kStart + "], \"units\": []}", "\"units\": stands there twice");
  expect_refused(R"({"pleat_profile": 1, "units": {}})", "\"units\": an object is not expected");
  expect_refused(R"({"pleat_profile": 1, "bits": -1, "units": []})", "\"bits\": not a number");
  expect_refused(R"({"pleat_profile": 1, "steps": 1e3, "units": []})", "\"steps\"");
}

TEST(ProfileJson, LongNamesAndManyDimensionsAreRefused) {
  const std::string longest(4096, 'x');
  EXPECT_EQ(from_json(text_with("\"type\": \"" + longest + '"')).status, ReadStatus::kOk);
  expect_refused(text_with("\"type\": \"" + longest + "x\""), "\"type\": not a text of at most");
  std::string shape = "0";
  for (int i = 1; i < 64; ++i) {
    shape += ",0";
  }
  EXPECT_EQ(from_json(text_with("\"shape\": [" + shape + ']')).status, ReadStatus::kOk);
  expect_refused(text_with("\"shape\": [" + shape + ",0]"), "too many dimensions");
}

TEST(ProfileJson, DeepNestingIsRefusedEarly) {
  expect_refused(text_with("\"later\": " + std::string(1'000'000, '[')), "nested too deeply");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += "{\"a\":";
  }
  expect_refused(text_with("\"later\": " + objects), "nested too deeply");
}

TEST(ProfileJson, TenMillionUnitsAreRefusedBySize) {
  std::string text = kStart;
  text.reserve(150 << 20);
  for (int i = 0; i < 10'000'000; ++i) text += "{\"key\":\"0x1\"},";
  const ReadResult result = from_json(text + "{}]}");
  EXPECT_EQ(result.status, ReadStatus::kForeign);
  EXPECT_EQ(result.message, "it has more than 32 MiB");
}

// A text as version 1 had it.
TEST(ProfileJson, AnOlderTextIsReadAndWrittenAsTheSameOfThisVersion) {
  const std::string text =
      R"({"pleat_profile": 1, "torch": "2.11.0", "steps": 12, "bits": 2.5, "objective": "update", )"
      R"("passes": 16, "seconds": 0.1, "beside": 77, "at_peak": 0.75, "units": [)"
      "\n"
      R"({"key": "0x00000000000000ff", "producer": "GeluBackward0", "reader": "MmBackward0", )"
      R"("type": "float32", "shape": [2, 0, 3], "tensors": 2, "bytes": 48, "payload_bytes": 9, )"
      R"("width": 3, "floor": 2, "floor_reason": "check", "distrusted": true, )"
      R"("costs": [[3, 7, 1.5e-07], [0, 48, 0]], "measurements": [[10, 1e-05, 2e+22], [20, 0.5]], )"
      R"("results": ["0x0000000000000001", "0x0000000000000002"]})"
      "\n]}\n";
  const ReadResult result = from_json(text);
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  EXPECT_TRUE(result.profile.units[0].trail.empty());
  const std::string version = R"({"pleat_profile": 2)";
  EXPECT_EQ(to_json(result.profile), version + text.substr(version.size()));
}

TEST(ProfileJson, ABrokenTrailIsRefused) {
  std::string steps = R"("bits:4")";
  for (int i = 1; i < 8; ++i) steps += R"(, "pole:0")";
  EXPECT_EQ(from_json(text_with(R"("trail": [)" + steps + "]")).status, ReadStatus::kOk);
  expect_refused(text_with(R"("trail": [)" + steps + R"(, "pole:0"])"),
                 "\"trail\": too many steps");
  expect_refused(text_with(R"("trail": [4])"), "\"trail\": not a text");
  expect_refused(text_with(R"("trail": "bits:4")"), "\"trail\": not a list");
}

TEST(ProfileJson, MoreThanAMillionUnitsAreRefused) {
  std::string text = kStart;
  for (int i = 0; i < 1'000'001; ++i) {
    text += i == 0 ? "" : ",";
    text += R"({"key":"0x)";
    text += std::to_string(i);
    text += "\"}";
  }
  expect_refused(text + "]}", "more than 1000000 units");
}

// The reader ends on any changed bytes of a text, and accepted texts can be written and read again.
TEST(ProfileJson, ChangedTextsAreReadOrRefused) {
  PLEAT_SEED(seed);
  std::mt19937_64 random(seed);
  const std::string text = to_json(full_profile());
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string changed = text;
    for (std::uint64_t i = random() % 3 + 1; i > 0; --i) {
      const std::size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0:
          changed.erase(at, random() % 5);
          break;
        case 1:
          changed.insert(at, 1, "0123456789[]{},:\"-.e"[random() % 20]);
          break;
        case 2:
          changed[at] = static_cast<char>(random());
          break;
        default:
          changed.insert(at, changed.substr(random() % changed.size(), random() % 40));
      }
    }
    const ReadResult result = from_json(changed);
    if (result.status == ReadStatus::kOk) {
      ++accepted;
      const ReadResult again = from_json(to_json(result.profile));
      ASSERT_EQ(again.status, ReadStatus::kOk) << changed;
      expect_equal(again.profile, result.profile);
    } else {
      EXPECT_FALSE(result.message.empty()) << changed;
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace pleat::sensitivity

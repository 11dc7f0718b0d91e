// The option table and the parser of PLEAT_CONF.
#include "torch_bridge/core/options.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "tests/tools/option_reference.h"

namespace pleat::bridge {
namespace {

struct Parsed {
  Options options;
  std::vector<std::string> problems;
};

Parsed parse(std::string_view conf, Options options = {}, ConfSource source = ConfSource::kUser) {
  Parsed parsed{options, {}};
  parse_options(conf, parsed.options, parsed.problems, source);
  return parsed;
}

Parsed parse_tests(std::string_view conf) { return parse(conf, {}, ConfSource::kTests); }

std::string all_values(const Options& options) {
  std::string conf;
  for (const OptionRow& row : option_table())
    conf += std::string(row.key) + ":" + option_value(options, row.key) + ",";
  return conf;
}

TEST(OptionTable, DefaultsAreThoseOfTheStruct) {
  for (const OptionRow& row : option_table()) {
    EXPECT_EQ(option_value(Options{}, row.key), row.default_value) << row.key;
    EXPECT_FALSE(row.allowed.empty()) << row.key;
    EXPECT_FALSE(row.help.empty()) << row.key;
  }
}

TEST(OptionTable, ValuesInForceParseBackToThemselves) {
  const std::string conf =
      "bits:2.5,when:forward_end,place:inplace,min_bytes:3M,seed:18446744073709551615,"
      "reuse_gradients:0,huge_pages:never,verbose:1,trust:A|+B_2,cuda:1,check:7,"
      "check_file:/tmp/found,sensitivity:on,objective:update,profile:/tmp/"
      "p,refresh:7,budget:3GiB,max_noise:50,probe_custom:1,trace:x.trace,trace_size:2GiB,"
      "stacks:both,modules:1";
  const Parsed first = parse(conf);
  EXPECT_TRUE(first.problems.empty());
  const Parsed second = parse(all_values(first.options));
  EXPECT_TRUE(second.problems.empty());
  EXPECT_EQ(all_values(second.options), all_values(first.options));
  EXPECT_EQ(second.options.bits, 2.5);
  EXPECT_EQ(second.options.when, When::kForwardEnd);
  EXPECT_EQ(second.options.place, Place::kInPlace);
  EXPECT_EQ(second.options.min_bytes, 3u << 20);
  EXPECT_EQ(second.options.seed, ~std::uint64_t{0});
  EXPECT_FALSE(second.options.reuse_gradients);
  EXPECT_EQ(second.options.huge_pages, HugePages::kNever);
  EXPECT_EQ(second.options.verbose, 1);
  EXPECT_EQ(second.options.sensitivity, Sensitivity::kOn);
  EXPECT_EQ(second.options.objective, Objective::kUpdate);
  EXPECT_EQ(second.options.profile, "/tmp/p");
  EXPECT_EQ(second.options.refresh, 7u);
  EXPECT_EQ(second.options.budget, std::size_t{3} << 30);
  EXPECT_EQ(second.options.max_noise, 50u);
  EXPECT_TRUE(second.options.probe_custom);
  EXPECT_EQ(second.options.check, 7u);
  EXPECT_EQ(second.options.check_file, "/tmp/found");
  EXPECT_EQ(second.options.trace, "x.trace");
  EXPECT_EQ(second.options.trace_size, std::size_t{2} << 30);
  EXPECT_EQ(second.options.stacks, Stacks::kBoth);
  EXPECT_TRUE(second.options.modules);
  ASSERT_EQ(second.options.trust.size(), 2u);
  EXPECT_EQ(second.options.trust[0].name, "A");
  EXPECT_FALSE(second.options.trust[0].closes);
  EXPECT_EQ(second.options.trust[1].name, "B_2");
  EXPECT_TRUE(second.options.trust[1].closes);
}

TEST(ParseOptions, TheRuleForNoiseIsProofUnlessATestChoosesAnother) {
  EXPECT_EQ(Options{}.rule, Rule::kProof);
  EXPECT_EQ(parse_tests("rule:operands").options.rule, Rule::kOperands);
  EXPECT_EQ(parse_tests("rule:assumed").options.rule, Rule::kAssumed);
  EXPECT_EQ(parse_tests("rule:no_lines").options.rule, Rule::kNoLines);
  EXPECT_EQ(parse_tests("rule:no_sides").options.rule, Rule::kNoSides);
  EXPECT_EQ(parse_tests("rule:no_late_poles").options.rule, Rule::kNoLatePoles);
  EXPECT_EQ(parse_tests("rule:assumed,rule:proof").options.rule, Rule::kProof);
  for (const char* conf : {"rule:", "rule:proofs", "rule:1"}) {
    const Parsed parsed = parse_tests(conf);
    EXPECT_EQ(parsed.problems.size(), 1u) << conf;
    EXPECT_EQ(parsed.options.rule, Rule::kProof) << conf;
  }
}

TEST(ParseOptions, KeysOfTestsAreUnknownInAUsersConf) {
  for (const std::string key : {"rule:assumed", "copy_raw:1", "verify:1"}) {
    const Parsed parsed = parse(key + ",bits:2");
    ASSERT_EQ(parsed.problems.size(), 1u) << key;
    EXPECT_TRUE(parsed.problems[0].starts_with("pleat: PLEAT_CONF: " + key +
                                               ": no such key; known are bits, "))
        << parsed.problems[0];
    EXPECT_EQ(parsed.options.bits, 2.0);
    EXPECT_EQ(parsed.options.rule, Rule::kProof);
    EXPECT_FALSE(parsed.options.copy_raw || parsed.options.verify);
    EXPECT_EQ(option_value(parse_tests(key).options, key.substr(0, key.find(':'))), "") << key;
  }
  for (const std::string how : {"exact", "gact", "gact_code"}) {
    const Parsed parsed = parse("sensitivity:" + how);
    EXPECT_EQ(parsed.options.sensitivity, Sensitivity::kOff);
    EXPECT_EQ(parsed.problems, std::vector<std::string>{"pleat: PLEAT_CONF: sensitivity:" + how +
                                                        ": allowed are off or on; using off"});
  }
}

TEST(ParseOptions, TheConfOfTestsHasItsKeysAndNoOthers) {
  const Parsed all = parse_tests("rule:no_sides,copy_raw:1,verify:1,sensitivity:gact_code");
  EXPECT_TRUE(all.problems.empty());
  EXPECT_TRUE(all.options.copy_raw && all.options.verify);
  EXPECT_EQ(all.options.sensitivity, Sensitivity::kGactCode);
  EXPECT_EQ(option_value(all.options, "sensitivity"), "gact_code");
  EXPECT_EQ(parse_tests("bits:2").problems,
            std::vector<std::string>{"pleat: PLEAT_TEST_CONF: bits:2: no such key; known are rule, "
                                     "sensitivity, verify, copy_raw"});
  for (const char* conf : {"copy_raw:2", "copy_raw:true", "verify:yes", "sensitivity:all"})
    EXPECT_EQ(parse_tests(conf).problems.size(), 1u) << conf;
}

TEST(ParseOptions, TrustTakesNamesOfFunctions) {
  const std::pair<std::string, std::string> rows[] = {
      {"Scale", "Scale"},
      {" Scale | + _Rms2 ", "none"},  // no space behind the sign
      {" Scale | +_Rms2 ", "Scale|+_Rms2"},
      {"none", "none"},
      {"+none", "+none"},
      {"none|A", "none|A"},
      {"Caf\xc3\xa9", "Caf\xc3\xa9"},
      {std::string(256, 'a'), std::string(256, 'a')},
      {std::string(257, 'a'), "none"},
  };
  for (const auto& [given, in_force] : rows) {
    const Parsed parsed = parse("trust:" + given);
    EXPECT_EQ(option_value(parsed.options, "trust"), in_force) << given;
    EXPECT_EQ(parsed.problems.empty(), in_force != "none" || given == "none") << given;
  }
}

TEST(ParseOptions, TrustRefusesWhatIsNoNameAndKeepsWhatWasInForce) {
  for (const std::string value : {"", "|", "A|", "|A", "A||B", "+", "++A", "A+", "A B", "ns::A",
                                  "A<int>", "A-B", "A.b", "\"A\\\\\"", "\"A,B\"", "A\x01", "*"}) {
    const Parsed parsed = parse("trust:Before|+Closing,trust:" + value);
    EXPECT_EQ(option_value(parsed.options, "trust"), "Before|+Closing") << value;
    ASSERT_EQ(parsed.problems.size(), 1u) << value;
    EXPECT_NE(parsed.problems[0].find("allowed are none, or names of functions as in "
                                      "NameA|+NameB; using Before|+Closing"),
              std::string::npos)
        << parsed.problems[0];
  }
}

TEST(OptionTable, UnknownKeyHasNoValue) { EXPECT_EQ(option_value(Options{}, "no such key"), ""); }

TEST(ParseOptions, EmptyItemsAndSpacesAreIgnored) {
  for (const char* conf : {"", ",", " , ,, ", "  bits : 4 ,\n when:release\t,"}) {
    const Parsed parsed = parse(conf);
    EXPECT_TRUE(parsed.problems.empty()) << conf;
    EXPECT_EQ(all_values(parsed.options), all_values({})) << conf;
  }
}

TEST(ParseOptions, LastOfTwoEqualKeysWins) {
  EXPECT_EQ(parse("bits:8,bits:off").options.mode, Mode::kOff);
  const Options options = parse("bits:off,bits:lossless,bits:2").options;
  EXPECT_EQ(options.mode, Mode::kLossy);
  EXPECT_EQ(options.bits, 2.0);
}

TEST(ParseOptions, GoesOnTopOfWhatIsInForce) {
  Options options;
  options.seed = 7;
  const Parsed parsed = parse("bits:8", options);
  EXPECT_EQ(parsed.options.seed, 7u);
  EXPECT_EQ(parsed.options.bits, 8.0);
}

TEST(ParseOptions, BytesTakeSuffixes) {
  const std::pair<const char*, std::size_t> rows[] = {
      {"0", 0},
      {"1", 1},
      {"1000", 1000},
      {"64K", 65536},
      {"64KiB", 65536},
      {"64 kib", 65536},
      {"2m", 2u << 20},
      {"3MiB", 3u << 20},
      {"1G", 1u << 30},
      {"1GiB", 1u << 30},
      {"8589934591G", 8589934591ull << 30},
  };
  for (const auto& [text, bytes] : rows) {
    const Parsed parsed = parse(std::string("min_bytes:") + text);
    EXPECT_TRUE(parsed.problems.empty()) << text;
    EXPECT_EQ(parsed.options.min_bytes, bytes) << text;
  }
}

TEST(ParseOptions, BadValueSaysWhatIsAllowedAndWhatIsUsed) {
  const Parsed parsed = parse("bits:9");
  ASSERT_EQ(parsed.problems.size(), 1u);
  EXPECT_EQ(parsed.problems[0],
            "pleat: PLEAT_CONF: bits:9: allowed are off, lossless or 1..8; using 4");
  EXPECT_EQ(parse("bits:2,bits:0").problems.at(0),
            "pleat: PLEAT_CONF: bits:0: allowed are off, lossless or 1..8; using 2");
}

TEST(ParseOptions, BadValueLeavesItsOptionAndTheOthersTakeEffect) {
  const char* bad[] = {
      "bits:",
      "bits:0.99",
      "bits:8.01",
      "bits:1e20",
      "bits:-4",
      "bits:nan",
      "bits:inf",
      "bits:4x",
      "bits:+4",
      "bits:0x4",
      "bits:OFF",
      "bits:4:4",
      "when:now",
      "place:disk",
      "min_bytes:",
      "min_bytes:-1",
      "min_bytes:K",
      "min_bytes:1T",
      "min_bytes:1KB",
      "min_bytes:1.5M",
      "min_bytes:17179869184G",
      "min_bytes:99999999999999999999",
      "seed:-1",
      "seed:18446744073709551616",
      "seed:x",
      "verbose:2",
      "verbose:-1",
      "verbose:1.0",
      "reuse_gradients:2",
      "reuse_gradients:off",
      "trace_size:0",
      "trace_size:1048575",
      "trace_size:lots",
  };
  const std::map<std::string, std::string> allowed = {
      {"bits", "off, lossless or 1..8"},
      {"when", "release or forward_end"},
      {"place", "arena or inplace"},
      {"min_bytes", "bytes, or a number with K, M, G, KiB, MiB, GiB"},
      {"seed", "0..18446744073709551615"},
      {"reuse_gradients", "0 or 1"},
      {"verbose", "0..1"},
      {"trace_size", "none, or bytes as for min_bytes, 1MiB at least"},
  };
  for (const std::string item : bad) {
    const Parsed parsed = parse(item + ",verbose:1");
    ASSERT_EQ(parsed.problems.size(), 1u) << item;
    EXPECT_TRUE(parsed.problems[0].starts_with("pleat: PLEAT_CONF: " + item + ": allowed are " +
                                               allowed.at(item.substr(0, item.find(':'))) +
                                               "; using "))
        << parsed.problems[0];
    EXPECT_EQ(parsed.problems[0].find('\n'), std::string::npos) << item;
    EXPECT_EQ(parsed.options.verbose, 1) << item;
    EXPECT_EQ(all_values(parsed.options), all_values(parse("verbose:1").options)) << item;
  }
}

TEST(ParseOptions, NumbersAndNamesMayStandInQuotes) {
  const Parsed parsed = parse(R"(bits:"2",when:" forward_end ",min_bytes:"1 MiB",seed:"7")");
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.options.bits, 2.0);
  EXPECT_EQ(parsed.options.when, When::kForwardEnd);
  EXPECT_EQ(parsed.options.min_bytes, 1u << 20);
  EXPECT_EQ(parsed.options.seed, 7u);
  EXPECT_EQ(parse(R"(bits:"9")").problems.at(0),
            "pleat: PLEAT_CONF: bits:9: allowed are off, lossless or 1..8; using 4");
  EXPECT_EQ(parse(R"(bits:"4,seed:1")").problems.at(0),
            R"(pleat: PLEAT_CONF: bits:"4,seed:1": allowed are off, lossless or 1..8; using 4)");
}

Parsed parse_paths(std::string_view conf) {
  Options in_force;
  in_force.profile = "/in/force";
  in_force.trace = "a,b";
  return parse(conf, in_force);
}

TEST(ParseOptions, PathsAreTakenAsTheyAre) {
  const Parsed parsed = parse_paths(R"(profile:"/a,b: \\ \"c\" ",trace:/x y:z/\"w",bits:2)");
  EXPECT_TRUE(parsed.problems.empty());
  EXPECT_EQ(parsed.options.profile, R"(/a,b: \ "c" )");
  EXPECT_EQ(parsed.options.trace, R"(/x y:z/\"w")");
  EXPECT_EQ(parsed.options.bits, 2.0);
  EXPECT_EQ(parse_paths("profile:").problems,
            std::vector<std::string>{
                "pleat: PLEAT_CONF: profile:: allowed are none, or a path; using /in/force"});
  EXPECT_EQ(parse_paths("profile:none").options.profile, "");
}

TEST(ParseOptions, AMistakeInQuotesIsOneLineAndCostsItsOptionOnly) {
  const std::pair<std::string, std::string> rows[] = {
      {R"(profile:"/a,b)", R"(profile:"/a,b: the quote is not closed; using /in/force)"},
      {R"(trace:")", R"(trace:": the quote is not closed; using "a,b")"},
      {R"(profile:"/a"b)",
       R"(profile:"/a"b: there is text behind the closing quote; using /in/force)"},
      {R"(profile:"/a\b")",
       R"(profile:"/a\b": in quotes a backslash stands before " or \ only; using /in/force)"},
      {std::string("profile:\"/a\0b\"", 14),
       R"(profile:/a?b: a value may not hold a NUL; using /in/force)"},
      {std::string("profile:/a\0b", 12),
       R"(profile:/a?b: a value may not hold a NUL; using /in/force)"},
      {R"(bits:"x,y")", R"(bits:"x,y": allowed are off, lossless or 1..8; using 4)"},
  };
  for (const auto& [item, line] : rows) {
    const Parsed alone = parse_paths(item);
    EXPECT_EQ(alone.problems, std::vector<std::string>{"pleat: PLEAT_CONF: " + line});
    EXPECT_EQ(all_values(alone.options), all_values(parse_paths("").options)) << item;
    const Parsed among = parse_paths("seed:1," + item + ",seed:7");
    EXPECT_EQ(among.problems.size(), 1u) << item;
    EXPECT_EQ(among.options.seed, 7u) << item;
  }
  EXPECT_TRUE(parse_paths(R"(no:"/a,b)")
                  .problems.at(0)
                  .starts_with(R"(pleat: PLEAT_CONF: no:"/a,b: no such key; known are bits, )"));
}

TEST(ParseOptions, UnknownKeysAndMissingValuesAreNamed) {
  EXPECT_EQ(
      parse("bitz:4").problems.at(0),
      "pleat: PLEAT_CONF: bitz:4: no such key; known are bits, min_bytes, verbose, trust, cuda, "
      "sensitivity, profile, budget, trace, objective, refresh, max_noise, trace_size, stacks, "
      "modules, probe_custom, when, place, recompute, reuse_gradients, huge_pages, seed");
  EXPECT_TRUE(
      parse(R"(bitz:"4")").problems.at(0).starts_with("pleat: PLEAT_CONF: bitz:4: no such key; "));
  EXPECT_TRUE(parse(R"(bitz:"4,5")")
                  .problems.at(0)
                  .starts_with(R"(pleat: PLEAT_CONF: bitz:"4,5": no such key; )"));
  EXPECT_EQ(parse("bits").problems.at(0),
            "pleat: PLEAT_CONF: bits: no value; write bits:VALUE; using 4");
}

TEST(ParseOptions, LongAndBinaryInputMakesShortPrintableLines) {
  const std::string control("bits:\x01\x1b[31m\x7f\0x", 13);
  EXPECT_EQ(parse(control).problems.at(0).substr(0, 31), "pleat: PLEAT_CONF: bits:??[31m?");
  for (const std::string& conf :
       {"bits:" + std::string(65536, '9'), std::string(65536, 'k'),
        "min_bytes:" + std::string(65536, '1'), "seed:" + std::string(65536, '7') + ",verbose:1"}) {
    const Parsed parsed = parse(conf);
    ASSERT_EQ(parsed.problems.size(), 1u);
    EXPECT_LT(parsed.problems[0].size(), 380u);
  }
}

TEST(ParseOptions, ManyProblemsAreCountedNotListed) {
  std::string conf;
  for (int i = 0; i < 20000; ++i) conf += "x,";
  const Parsed parsed = parse(conf);
  ASSERT_EQ(parsed.problems.size(), 17u);
  EXPECT_EQ(parsed.problems.back(), "pleat: PLEAT_CONF: and 19984 more problems");
}

TEST(ParseOptions, RandomBytesNeverLeaveTheRanges) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string alphabet = "bitswhenplacmi_ysrdvo:,:,. 0123456789KMG-+eE\x01\xff";
  for (int round = 0; round < 20000; ++round) {
    std::string conf;
    if (round % 2 == 0) {
      const auto rows = option_table();
      conf = std::string(rows[random() % rows.size()].key) + ":";
    }
    for (unsigned n = random() % 24; n > 0; --n) conf += alphabet[random() % alphabet.size()];
    const Parsed parsed = parse(conf);
    ASSERT_TRUE(parsed.options.bits >= 1 && parsed.options.bits <= 8) << conf;
    ASSERT_TRUE(parsed.options.verbose >= 0 && parsed.options.verbose <= 1) << conf;
  }
}

}  // namespace
}  // namespace pleat::bridge

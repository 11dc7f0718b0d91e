// The text of option values: how each kind of value is parsed and printed. One class a kind; each
// has the member of Options as a template argument and two functions, parse() and text(). Included
// by options.cpp alone.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/options.h"

namespace pleat::bridge {

inline constexpr std::string_view kNone = "none";
inline constexpr std::string_view kAuto = "auto";

// Spaces at the ends of a number or a name, which quotes may hold, are ignored.
template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const std::optional<Number> parsed = number_of<Number>(trimmed(text));
  if (parsed) value = *parsed;
  return parsed.has_value();
}

template <typename Number>
std::string number_text(Number value) {
  std::array<char, 32> text;
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

// A whole number, at most kMost.
template <auto kMember, std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max()>
struct NumberValue {
  static bool parse(std::string_view text, Options& options) {
    std::uint64_t number = 0;
    if (!parse_number(text, number) || number > kMost) return false;
    options.*kMember = static_cast<std::remove_reference_t<decltype(options.*kMember)>>(number);
    return true;
  }
  static std::string text(const Options& options) { return number_text(options.*kMember + 0u); }
};

// The same, or "auto".
template <auto kMember, std::uint64_t kMost>
struct NumberOrAuto {
  static bool parse(std::string_view text, Options& options) {
    std::uint64_t number = 0;
    const bool is_auto = trimmed(text) == kAuto;
    if (!is_auto && (!parse_number(text, number) || number > kMost)) return false;
    options.*kMember = is_auto ? std::nullopt : std::optional(number);
    return true;
  }
  static std::string text(const Options& options) {
    return options.*kMember ? number_text(*(options.*kMember)) : std::string(kAuto);
  }
};

template <typename Enum, std::size_t kCount>
using Names = std::array<std::pair<std::string_view, Enum>, kCount>;

inline constexpr Names<bool, 2> kSwitchNames{{{"0", false}, {"1", true}}};
inline constexpr Names<When, 2> kWhenNames{
    {{"release", When::kRelease}, {"forward_end", When::kForwardEnd}}};
inline constexpr Names<Place, 2> kPlaceNames{
    {{"arena", Place::kArena}, {"inplace", Place::kInPlace}}};
inline constexpr Names<HugePages, 3> kHugePagesNames{
    {{"auto", HugePages::kAuto}, {"always", HugePages::kAlways}, {"never", HugePages::kNever}}};
inline constexpr Names<Rule, 6> kRuleNames{{{"proof", Rule::kProof},
                                            {"operands", Rule::kOperands},
                                            {"assumed", Rule::kAssumed},
                                            {"no_lines", Rule::kNoLines},
                                            {"no_sides", Rule::kNoSides},
                                            {"no_late_poles", Rule::kNoLatePoles}}};
inline constexpr Names<Sensitivity, 2> kSensitivityNames{
    {{"off", Sensitivity::kOff}, {"on", Sensitivity::kOn}}};
inline constexpr Names<Sensitivity, 5> kSensitivityNamesOfTests{
    {{"off", Sensitivity::kOff},
     {"on", Sensitivity::kOn},
     {"exact", Sensitivity::kExact},
     {"gact", Sensitivity::kGact},
     {"gact_code", Sensitivity::kGactCode}}};
inline constexpr Names<Objective, 3> kObjectiveNames{{{"auto", Objective::kAuto},
                                                      {"gradient", Objective::kGradient},
                                                      {"update", Objective::kUpdate}}};
inline constexpr Names<Stacks, 4> kStacksNames{{{"none", Stacks::kNone},
                                                {"python", Stacks::kPython},
                                                {"native", Stacks::kNative},
                                                {"both", Stacks::kBoth}}};

// One of a few names; kPrinted has those of values that another table sets too.
template <auto kMember, const auto& kNames, const auto& kPrinted = kNames>
struct NamedValue {
  static bool parse(std::string_view text, Options& options) {
    const auto* const found =
        std::find_if(kNames.begin(), kNames.end(),
                     [name = trimmed(text)](const auto& row) { return row.first == name; });
    if (found == kNames.end()) return false;
    options.*kMember = found->second;
    return true;
  }
  static std::string text(const Options& options) {
    for (const auto& [name, meaning] : kPrinted)
      if (options.*kMember == meaning) return std::string(name);
    return {};
  }
};

template <auto kMember>
using SwitchValue = NamedValue<kMember, kSwitchNames>;

// A path as it is written, or "none".
template <auto kMember>
struct PathValue {
  static bool parse(std::string_view text, Options& options) {
    if (text.empty()) return false;
    options.*kMember = text == kNone ? std::string_view() : text;
    return true;
  }
  static std::string text(const Options& options) {
    return (options.*kMember).empty() ? std::string(kNone) : options.*kMember;
  }
};

inline constexpr std::array<std::pair<char, unsigned>, 3> kByteUnits{
    {{'G', 30}, {'M', 20}, {'K', 10}}};

// "65536", "64K", "64KiB", "64 kib": all powers of two.
inline bool parse_bytes(std::string_view text, std::size_t& bytes) {
  text = trimmed(text);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::uint64_t count = 0;
  if (!parse_number(text.substr(0, digits), count)) return false;
  std::string_view unit = trimmed(text.substr(digits));
  unsigned shift = 0;
  if (!unit.empty()) {
    const char letter = static_cast<char>(unit[0] >= 'a' ? unit[0] - ('a' - 'A') : unit[0]);
    const auto* const found = std::find_if(kByteUnits.begin(), kByteUnits.end(),
                                           [=](const auto& row) { return row.first == letter; });
    const std::string_view rest = unit.substr(1);
    if (found == kByteUnits.end() || !(rest.empty() || rest == "iB" || rest == "ib")) return false;
    shift = found->second;
  }
  if (count > std::numeric_limits<std::size_t>::max() >> shift) return false;
  bytes = static_cast<std::size_t>(count) << shift;
  return true;
}

inline std::string bytes_text(std::size_t bytes) {
  for (const auto& [letter, shift] : kByteUnits) {
    if (bytes == 0 || bytes % (std::size_t{1} << shift) != 0) continue;
    return number_text(bytes >> shift) + letter + "iB";
  }
  return number_text(bytes);
}

template <auto kMember>
struct BytesValue {
  static bool parse(std::string_view text, Options& options) {
    return parse_bytes(text, options.*kMember);
  }
  static std::string text(const Options& options) { return bytes_text(options.*kMember); }
};

// At least kLeast bytes, or "none", which is 0.
template <auto kMember, std::size_t kLeast>
struct BytesOrNone {
  static bool parse(std::string_view text, Options& options) {
    std::size_t bytes = 0;
    if (trimmed(text) != kNone && (!parse_bytes(text, bytes) || bytes < kLeast)) return false;
    options.*kMember = bytes;
    return true;
  }
  static std::string text(const Options& options) {
    return options.*kMember == 0 ? std::string(kNone) : bytes_text(options.*kMember);
  }
};

struct BitsValue {
  static bool parse(std::string_view text, Options& options) {
    text = trimmed(text);
    if (text == "off" || text == "lossless") {
      options.mode = text == "off" ? Mode::kOff : Mode::kLossless;
      return true;
    }
    double bits = 0;
    // Written so that a NaN fails.
    if (!parse_number(text, bits) || !(bits >= 1.0 && bits <= 8.0)) return false;
    options.mode = Mode::kLossy;
    options.bits = bits;
    return true;
  }
  static std::string text(const Options& options) {
    if (options.mode == Mode::kOff) return "off";
    if (options.mode == Mode::kLossless) return "lossless";
    return number_text(options.bits);
  }
};

struct TrustValue {
  static bool parse(std::string_view text, Options& options) {
    text = trimmed(text);
    std::vector<TrustedName> trust;
    for (bool more = text != kNone; more;) {
      const std::size_t bar = text.find('|');
      more = bar != std::string_view::npos;
      std::string_view name = trimmed(text.substr(0, bar));
      const bool closes = name.starts_with('+');
      name.remove_prefix(closes ? 1 : 0);
      if (!is_function_name(name)) return false;
      trust.push_back({std::string(name), closes});
      text.remove_prefix(more ? bar + 1 : 0);
    }
    options.trust = std::move(trust);
    return true;
  }
  static std::string text(const Options& options) {
    std::string text;
    for (const TrustedName& trusted : options.trust)
      text.append(text.empty() ? "" : "|").append(trusted.closes ? "+" : "").append(trusted.name);
    return text.empty() ? std::string(kNone) : text;
  }
};

}  // namespace pleat::bridge

#include "torch_bridge/core/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "torch_bridge/core/option_text.h"

namespace pleat::bridge {
namespace {

// --- values: text to option and back ---------------------------------------------------------
// These are numbers and names: spaces at the ends, which quotes may hold, mean nothing in them.

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

bool parse_bits(std::string_view text, Options& options) {
  text = trimmed(text);
  if (text == "off") {
    options.mode = Mode::kOff;
  } else if (text == "lossless") {
    options.mode = Mode::kLossless;
  } else {
    double bits = 0;
    // Written so that a NaN fails.
    if (!parse_number(text, bits) || !(bits >= 1.0 && bits <= 8.0)) return false;
    options.mode = Mode::kLossy;
    options.bits = bits;
  }
  return true;
}

std::string bits_text(const Options& options) {
  if (options.mode == Mode::kOff) return "off";
  if (options.mode == Mode::kLossless) return "lossless";
  return number_text(options.bits);
}

template <typename Enum, std::size_t kCount = 2>
using Names = std::array<std::pair<std::string_view, Enum>, kCount>;
constexpr Names<When> kWhenNames{{{"release", When::kRelease}, {"forward_end", When::kForwardEnd}}};
constexpr Names<Rule, 6> kRuleNames{{{"proof", Rule::kProof},
                                     {"operands", Rule::kOperands},
                                     {"assumed", Rule::kAssumed},
                                     {"no_lines", Rule::kNoLines},
                                     {"no_sides", Rule::kNoSides},
                                     {"no_late_poles", Rule::kNoLatePoles}}};
constexpr Names<Place> kPlaceNames{{{"arena", Place::kArena}, {"inplace", Place::kInPlace}}};

template <typename Enum, std::size_t kCount>
bool parse_name(const Names<Enum, kCount>& names, std::string_view text, Enum& value) {
  text = trimmed(text);
  for (const auto& [name, meaning] : names) {
    if (text != name) continue;
    value = meaning;
    return true;
  }
  return false;
}

template <typename Enum, std::size_t kCount>
std::string name_text(const Names<Enum, kCount>& names, Enum value) {
  for (const auto& [name, meaning] : names)
    if (value == meaning) return std::string(name);
  return {};
}

bool parse_switch(std::string_view text, bool& value) {
  text = trimmed(text);
  if (text != "0" && text != "1") return false;
  value = text == "1";
  return true;
}

constexpr std::array<std::pair<std::string_view, HugePages>, 3> kHugePagesNames{
    {{"auto", HugePages::kAuto}, {"always", HugePages::kAlways}, {"never", HugePages::kNever}}};

bool parse_huge_pages(std::string_view text, Options& options) {
  text = trimmed(text);
  for (const auto& [name, meaning] : kHugePagesNames) {
    if (text != name) continue;
    options.huge_pages = meaning;
    return true;
  }
  return false;
}

std::string huge_pages_text(const Options& options) {
  for (const auto& [name, meaning] : kHugePagesNames)
    if (options.huge_pages == meaning) return std::string(name);
  return {};
}

constexpr std::array<std::pair<char, unsigned>, 3> kByteUnits{{{'G', 30}, {'M', 20}, {'K', 10}}};

// "65536", "64K", "64KiB", "64 kib": all powers of two.
bool parse_bytes(std::string_view text, std::size_t& bytes) {
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

std::string bytes_text(std::size_t bytes) {
  for (const auto& [letter, shift] : kByteUnits) {
    if (bytes == 0 || bytes % (std::size_t{1} << shift) != 0) continue;
    return number_text(bytes >> shift) + letter + "iB";
  }
  return number_text(bytes);
}

constexpr std::string_view kNobody = "none";

bool parse_trust(std::string_view text, Options& options) {
  text = trimmed(text);
  std::vector<TrustedName> trust;
  for (bool more = text != kNobody; more;) {
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

std::string trust_text(const Options& options) {
  std::string text;
  for (const TrustedName& trusted : options.trust)
    text.append(text.empty() ? "" : "|").append(trusted.closes ? "+" : "").append(trusted.name);
  return text.empty() ? std::string(kNobody) : text;
}

constexpr Names<Sensitivity, 5> kSensitivityNames{{{"off", Sensitivity::kOff},
                                                   {"on", Sensitivity::kOn},
                                                   {"exact", Sensitivity::kExact},
                                                   {"gact", Sensitivity::kGact},
                                                   {"gact_code", Sensitivity::kGactCode}}};

constexpr Names<Objective, 3> kObjectiveNames{{{"auto", Objective::kAuto},
                                               {"gradient", Objective::kGradient},
                                               {"update", Objective::kUpdate}}};

constexpr Names<Stacks, 4> kStacksNames{{{"none", Stacks::kNone},
                                         {"python", Stacks::kPython},
                                         {"native", Stacks::kNative},
                                         {"both", Stacks::kBoth}}};

// --- the table -------------------------------------------------------------------------------

struct Entry {
  OptionRow row;
  bool (*parse)(std::string_view text, Options& options);
  std::string (*text)(const Options& options);
};

constexpr std::array kEntries{
    Entry{{"bits", "4", "off | lossless | 1..8",
           "bits per element of lossy payloads: 1, 2, 3, 4, 6 or 8, any other number takes the "
           "next lower one; off: hooks and pool active, nothing compressed; lossless: exact forms "
           "only"},
          parse_bits,
          bits_text},
    Entry{{"when", "release", "release | forward_end",
           "compress each saved tensor when the forward pass drops it, or all of them at the start "
           "of backward"},
          [](std::string_view text, Options& options) {
            return parse_name(kWhenNames, text, options.when);
          },
          [](const Options& options) { return name_text(kWhenNames, options.when); }},
    Entry{
        {"place", "arena", "arena | inplace",
         "payloads go to dense chunks of their own, or into the head of the block they come from"},
        [](std::string_view text, Options& options) {
          return parse_name(kPlaceNames, text, options.place);
        },
        [](const Options& options) { return name_text(kPlaceNames, options.place); }},
    Entry{{"min_bytes", "64KiB", "bytes, or a number with K, M, G, KiB, MiB, GiB",
           "smaller tensors keep the stock path; 0 sends everything through"},
          [](std::string_view text, Options& options) {
            return parse_bytes(text, options.min_bytes);
          },
          [](const Options& options) { return bytes_text(options.min_bytes); }},
    Entry{{"seed", "0", "0..18446744073709551615",
           "seed of the dither; the same seed gives the same bytes in every run"},
          [](std::string_view text, Options& options) { return parse_number(text, options.seed); },
          [](const Options& options) { return number_text(options.seed); }},
    Entry{{"reuse_gradients", "1", "0 | 1",
           "1: the gradient of an activation is written over the one it is made of where nobody "
           "else refers to that; the same values, less memory"},
          [](std::string_view text, Options& options) {
            return parse_switch(text, options.reuse_gradients);
          },
          [](const Options& options) { return number_text(options.reuse_gradients ? 1 : 0); }},
    Entry{{"recompute", "1", "0 | 1",
           "1: the result of GELU or SiLU is not stored, but recomputed from its compressed "
           "argument"},
          [](std::string_view text, Options& options) {
            return parse_switch(text, options.recompute);
          },
          [](const Options& options) { return number_text(options.recompute ? 1 : 0); }},
    Entry{{"huge_pages", "auto", "auto | always | never",
           "of the memory for tensors; auto: for sizes that are written densely, where it pays; "
           "always: from the first touch. As it is at the start, for the whole run"},
          parse_huge_pages,
          huge_pages_text},
    Entry{{"verbose", "0", "0..1", "1: a report on stderr at exit"},
          [](std::string_view text, Options& options) {
            int verbose = 0;
            if (!parse_number(text, verbose) || verbose < 0 || verbose > 1) return false;
            options.verbose = verbose;
            return true;
          },
          [](const Options& options) { return number_text(options.verbose); }},
    Entry{{"trust", "none", "none, or names of functions as in NameA|+NameB",
           "functions whose gradient is linear in what they save, though Pleat cannot look into "
           "them: their saved tensors may be lossy; a + stands before one that mixes many elements "
           "as a matrix product does"},
          parse_trust,
          trust_text},
    Entry{{"rule", "proof", "proof | operands | assumed | no_lines | no_sides | no_late_poles",
           "for debugging: where noise is allowed; proof: where it is shown to be harmless; "
           "operands: only at operands of contractions with weights and inputs of native "
           "normalisations; assumed: wherever an operator may bear it, without proof; no_lines, "
           "no_sides, no_late_poles: as proof, with a fault that tests must find"},
          [](std::string_view text, Options& options) {
            return parse_name(kRuleNames, text, options.rule);
          },
          [](const Options& options) { return name_text(kRuleNames, options.rule); }},
    Entry{
        {"cuda", "1", "0 | 1",
         "1: saved CUDA tensors are compressed on their device; 0: they are left to stock; read at "
         "the start only"},
        [](std::string_view text, Options& options) { return parse_switch(text, options.cuda); },
        [](const Options& options) { return number_text(options.cuda ? 1 : 0); }},
    Entry{{"check", "0", "0..1000",
           "so many backward passes are also run with what was saved, and the gradients compared; "
           "`pleat check` sets it"},
          [](std::string_view text, Options& options) {
            unsigned check = 0;
            if (!parse_number(text, check) || check > 1000) return false;
            options.check = check;
            return true;
          },
          [](const Options& options) { return number_text(options.check); }},
    Entry{{"check_file", "none", "none, or a path",
           "what these passes show is added to the end of this file, a line of JSON each"},
          [](std::string_view text, Options& options) {
            if (text.empty()) return false;
            options.check_file = text == "none" ? "" : text;
            return true;
          },
          [](const Options& options) {
            return options.check_file.empty() ? "none" : options.check_file;
          }},
    Entry{{"sensitivity", "off", "off | on | exact | gact | gact_code",
           "on: extra backward passes, at first in step 10, find out how much the noise of each "
           "saved tensor disturbs the gradient, and each gets its own bits, `bits` on average; "
           "exact: one pass for each tensor; gact, gact_code: measured and assigned as GACT does "
           "(its paper, its program), to compare with: two or three passes for each tensor"},
          [](std::string_view text, Options& options) {
            return parse_name(kSensitivityNames, text, options.sensitivity);
          },
          [](const Options& options) { return name_text(kSensitivityNames, options.sensitivity); }},
    Entry{{"objective", "auto", "auto | gradient | update",
           "the noise that bits by sensitivity make least. gradient: of the whole gradient, for "
           "SGD; update: of each weight's gradient beside its size, for Adam and its like; auto: "
           "by the name of the optimizer"},
          [](std::string_view text, Options& options) {
            return parse_name(kObjectiveNames, text, options.objective);
          },
          [](const Options& options) { return name_text(kObjectiveNames, options.objective); }},
    Entry{
        {"profile", "none", "none, or a path",
         "the file that keeps what is known of each saved tensor; where it exists, bits are chosen "
         "by it from the first step on. %r: rank, %p: process"},
        [](std::string_view text, Options& options) {
          if (text.empty()) return false;
          options.profile = text == "none" ? "" : text;
          return true;
        },
        [](const Options& options) { return options.profile.empty() ? "none" : options.profile; }},
    Entry{{"refresh", "auto", "auto | 0..1000000000",
           "steps between two measurements of sensitivity; 0: only one; auto: 1000, then twice as "
           "many each time"},
          [](std::string_view text, Options& options) {
            std::uint64_t steps = 0;
            if (trimmed(text) == "auto") {
              options.refresh.reset();
              return true;
            }
            if (!parse_number(text, steps) || steps > 1'000'000'000) return false;
            options.refresh = steps;
            return true;
          },
          [](const Options& options) {
            return options.refresh ? number_text(*options.refresh) : std::string("auto");
          }},
    Entry{{"budget", "none", "none, or bytes as for min_bytes",
           "the least noise that fits: bits are chosen so that Pleat's memory takes no more at the "
           "peak of a step. Until sensitivity is known, from a profile or a measurement, bits are "
           "`bits`"},
          [](std::string_view text, Options& options) {
            std::size_t bytes = 0;
            if (trimmed(text) == "none") {
              options.budget = 0;
              return true;
            }
            if (!parse_bytes(text, bytes) || bytes == 0) return false;
            options.budget = bytes;
            return true;
          },
          [](const Options& options) {
            return options.budget == 0 ? std::string("none") : bytes_text(options.budget);
          }},
    Entry{
        {"verify", "0", "0 | 1",
         "1: behind each measurement, one extra pass for each tensor holds what was predicted "
         "against what its noise does, and a table of it goes to stderr"},
        [](std::string_view text, Options& options) { return parse_switch(text, options.verify); },
        [](const Options& options) { return number_text(options.verify ? 1 : 0); }},
    Entry{{"probe_custom", "0", "0 | 1",
           "1: functions in Python run in the extra passes, too; they must do nothing but to work "
           "out gradients"},
          [](std::string_view text, Options& options) {
            return parse_switch(text, options.probe_custom);
          },
          [](const Options& options) { return number_text(options.probe_custom ? 1 : 0); }},
    Entry{{"trace", "none", "none, or a path",
           "the file that says where the memory went, for `pleat trace`; begun at the start only. "
           "%r: rank, %l: local rank, %p: process, %h: host, %t: time"},
          [](std::string_view text, Options& options) {
            if (text.empty()) return false;
            options.trace = text == "none" ? "" : text;
            return true;
          },
          [](const Options& options) { return options.trace.empty() ? "none" : options.trace; }},
    Entry{
        {"trace_size", "none", "none, or bytes as for min_bytes, 1MiB at least",
         "no trace takes more: where half of it is full, the file becomes FILE.1 and another part "
         "begins, which can be read alone; read when a trace begins"},
        [](std::string_view text, Options& options) {
          std::size_t bytes = 0;
          if (trimmed(text) == "none") {
            options.trace_size = 0;
            return true;
          }
          if (!parse_bytes(text, bytes) || bytes < kLeastTraceBytes) return false;
          options.trace_size = bytes;
          return true;
        },
        [](const Options& options) {
          return options.trace_size == 0 ? std::string("none") : bytes_text(options.trace_size);
        }},
    Entry{{"stacks", "python", "python | native | both | none",
           "where in the program each event of a trace was; read when a trace begins"},
          [](std::string_view text, Options& options) {
            return parse_name(kStacksNames, text, options.stacks);
          },
          [](const Options& options) { return name_text(kStacksNames, options.stacks); }},
    Entry{
        {"modules", "0", "0 | 1",
         "a trace says which module of torch.nn each event was in; read when a trace begins"},
        [](std::string_view text, Options& options) { return parse_switch(text, options.modules); },
        [](const Options& options) { return number_text(options.modules ? 1 : 0); }},
    Entry{{"copy_raw", "0", "0 | 1",
           "for debugging: what would be held raw goes through a payload, tiny tensors are "
           "quantised too"},
          [](std::string_view text, Options& options) {
            return parse_switch(text, options.copy_raw);
          },
          [](const Options& options) { return number_text(options.copy_raw ? 1 : 0); }},
};

constexpr auto kRows = [] {
  std::array<OptionRow, kEntries.size()> rows{};
  std::transform(kEntries.begin(), kEntries.end(), rows.begin(),
                 [](const Entry& entry) { return entry.row; });
  return rows;
}();

// --- problem lines ---------------------------------------------------------------------------

// Enough to see every mistake a person makes, few enough to survive a file given by accident.
constexpr std::size_t kMostProblems = 16;

// "off | lossless | 1..8" as "off, lossless or 1..8".
std::string as_prose(std::string_view allowed) {
  constexpr std::string_view kBar = " | ";
  std::string prose;
  for (std::size_t bar; (bar = allowed.find(kBar)) != std::string_view::npos;) {
    prose += allowed.substr(0, bar);
    allowed.remove_prefix(bar + kBar.size());
    prose += allowed.find(kBar) == std::string_view::npos ? " or " : ", ";
  }
  return prose += allowed;
}

std::string known_keys(std::span<const OptionRow> rows) {
  std::string keys;
  for (const OptionRow& row : rows) keys.append(keys.empty() ? "" : ", ").append(row.key);
  return keys;
}

constexpr std::string_view text_of(QuoteMistake mistake) {
  switch (mistake) {
    case QuoteMistake::kNotClosed:
      return "the quote is not closed";
    case QuoteMistake::kTextBehind:
      return "there is text behind the closing quote";
    case QuoteMistake::kStrayBackslash:
      return "in quotes a backslash stands before \" or \\ only";
    case QuoteMistake::kNone:
      break;
  }
  return {};
}

// What is wrong with an item, or nothing once it is applied.
std::string apply_item(const OptionItem& item, OptionTable& table) {
  const std::span<const OptionRow> rows = table.rows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const OptionRow& r) { return r.key == item.key; });
  // Without the quotes that a value does without.
  const std::string written = item.quoted && item.mistake == QuoteMistake::kNone
                                  ? printable(std::string(item.key) + ":" + spelled(item.value))
                                  : printable(trimmed(item.written));
  if (row == rows.end()) return written + ": no such key; known are " + known_keys(rows);
  const auto index = static_cast<std::size_t>(row - rows.begin());
  const auto in_force = [&] { return "; using " + printable(spelled(table.value(index))); };
  if (!item.has_value)
    return written + ": no value; write " + std::string(item.key) + ":VALUE" + in_force();
  if (item.mistake != QuoteMistake::kNone)
    return written + ": " + std::string(text_of(item.mistake)) + in_force();
  const std::string shown = std::string(item.key) + ":" +
                            printable(item.quoted ? spelled(item.value) : item.value) + ": ";
  if (item.value.find('\0') != std::string::npos)
    return shown + "a value may not hold a NUL" + in_force();
  if (table.set(index, item.value)) return {};
  return shown + "allowed are " + as_prose(row->allowed) + in_force();
}

// The options of this library as a table.
class TableOfOptions final : public OptionTable {
 public:
  explicit TableOfOptions(Options& options) : options_(options) {}
  [[nodiscard]] std::span<const OptionRow> rows() const noexcept override { return kRows; }
  bool set(std::size_t row, const std::string& value) override {
    return kEntries[row].parse(value, options_);
  }
  [[nodiscard]] std::string value(std::size_t row) const override {
    return kEntries[row].text(options_);
  }

 private:
  Options& options_;
};

}  // namespace

bool is_function_name(std::string_view name) noexcept {
  constexpr std::size_t kLongest = 256;
  return !name.empty() && name.size() <= kLongest &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || static_cast<unsigned char>(c) >= 0x80;
         });
}

std::span<const OptionRow> option_table() noexcept { return kRows; }

std::string option_value(const Options& options, std::string_view key) {
  const auto* const found = std::find_if(kEntries.begin(), kEntries.end(),
                                         [=](const Entry& entry) { return entry.row.key == key; });
  return found == kEntries.end() ? std::string() : found->text(options);
}

void parse_options(std::string_view conf, OptionTable& table, std::vector<std::string>& problems) {
  std::size_t found = 0;
  while (const std::optional<OptionItem> item = take_item(conf)) {
    std::string problem = apply_item(*item, table);
    if (!problem.empty() && ++found <= kMostProblems)
      problems.push_back("pleat: PLEAT_CONF: " + problem);
  }
  if (found > kMostProblems)
    problems.push_back("pleat: PLEAT_CONF: and " + number_text(found - kMostProblems) +
                       " more problems");
}

void parse_options(std::string_view conf, Options& options, std::vector<std::string>& problems) {
  TableOfOptions table(options);
  parse_options(conf, table, problems);
}

}  // namespace pleat::bridge

#include "torch_bridge/core/options.h"

#include <algorithm>
#include <array>

#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/options_impl.h"

namespace pleat::bridge {
namespace {

struct Entry {
  OptionRow row;
  bool (*parse)(std::string_view text, Options& options);
  std::string (*text)(const Options& options);
};

// An option whose value is of a kind that options_impl.h has.
template <class Value>
constexpr Entry option(Audience audience, std::string_view key, std::string_view by_default,
                       std::string_view allowed, std::string_view help) {
  return {{key, by_default, allowed, help, audience}, Value::parse, Value::text};
}

using enum Audience;

constexpr std::array kEntries{
    option<BitsValue>(
        kUser, "bits", "4", "off | lossless | 1..8",
        "bits per element of lossy payloads: 1, 2, 3, 4, 6 or 8, any other number takes the next "
        "lower one; off: hooks and pool active, nothing compressed; lossless: exact forms only"),
    option<BytesValue<&Options::min_bytes>>(
        kUser, "min_bytes", "64KiB", "bytes, or a number with K, M, G, KiB, MiB, GiB",
        "smaller tensors keep the stock path; 0 sends everything through"),
    option<NumberValue<&Options::verbose, 1>>(kUser, "verbose", "0", "0..1",
                                              "1: a report on stderr at exit"),
    option<TrustValue>(
        kUser, "trust", "none", "none, or names of functions as in NameA|+NameB",
        "functions whose gradient is linear in what they save, though Pleat cannot look into them: "
        "their saved tensors may be lossy; a + stands before one that mixes many elements as a "
        "matrix product does"),
    option<SwitchValue<&Options::cuda>>(
        kUser, "cuda", "1", "0 | 1",
        "1: saved CUDA tensors are compressed on their device; 0: they are left to stock; read at "
        "the start only"),
    option<NamedValue<&Options::sensitivity, kSensitivityNames, kSensitivityNamesOfTests>>(
        kUser, "sensitivity", "off", "off | on",
        "on: extra backward passes, the first in step 10, measure how far the noise of each saved "
        "tensor disturbs the gradient; each tensor gets its own bits, `bits` on average"),
    option<PathValue<&Options::profile>>(
        kUser, "profile", "none", "none, or a path",
        "the file that keeps the measured sensitivity of each saved tensor; where it exists, bits "
        "are chosen by it from the first step on. %r: rank, %p: process"),
    option<BytesOrNone<&Options::budget, 1>>(
        kUser, "budget", "none", "none, or bytes as for min_bytes",
        "peak memory per step. Pleat picks the widths with the least gradient noise that fit. "
        "Until sensitivity is known, from a profile or a measurement, bits are `bits`; where only "
        "more than max_noise would fit, they stay as they are"),
    option<PathValue<&Options::trace>>(
        kUser, "trace", "none", "none, or a path",
        "the file that records all memory of tensors, for `pleat trace`; begun at the start only. "
        "%r: rank, %l: local rank, %p: process, %h: host, %t: time"),

    option<NamedValue<&Options::objective, kObjectiveNames>>(
        kDetail, "objective", "auto", "auto | gradient | update",
        "the noise that bits by sensitivity make least. gradient: of the whole gradient, for SGD; "
        "update: of each weight's gradient relative to its size, for Adam and its like; auto: by "
        "the name of the optimizer"),
    option<NumberOrAuto<&Options::refresh, 1'000'000'000>>(
        kDetail, "refresh", "auto", "auto | 0..1000000000",
        "steps between two measurements of sensitivity; 0: only one; auto: 1000, then twice as "
        "many each time"),
    option<NumberOrAuto<&Options::max_noise, 1000>>(
        kDetail, "max_noise", "auto", "auto | 0..1000",
        "the most noise that a budget may cause, in percent of the norm of the objective; more "
        "saves more memory, less keeps more accuracy; auto: 30, or twice the noise of `bits` "
        "for all, whichever is more"),
    option<BytesOrNone<&Options::trace_size, kLeastTraceBytes>>(
        kDetail, "trace_size", "none", "none, or bytes as for min_bytes, 1MiB at least",
        "upper bound of a trace on disk. At half of it the file is renamed FILE.1 and a new one "
        "begins; each can be read alone; read when a trace begins"),
    option<NamedValue<&Options::stacks, kStacksNames>>(
        kDetail, "stacks", "python", "python | native | both | none",
        "the call stacks that a trace records with each event; read when a trace begins"),
    option<SwitchValue<&Options::modules>>(
        kDetail, "modules", "0", "0 | 1",
        "1: a trace records the module of torch.nn that each event was in; read when a trace "
        "begins"),
    option<SwitchValue<&Options::probe_custom>>(
        kDetail, "probe_custom", "0", "0 | 1",
        "1: the extra passes run functions in Python too; these must only compute gradients"),

    option<NamedValue<&Options::when, kWhenNames>>(
        kWayOut, "when", "release", "release | forward_end",
        "compress each saved tensor when the forward pass drops it, or all of them at the start of "
        "backward"),
    option<NamedValue<&Options::place, kPlaceNames>>(
        kWayOut, "place", "arena", "arena | inplace",
        "payloads go to dense chunks of their own, or into the head of the block they come from"),
    option<SwitchValue<&Options::recompute>>(
        kWayOut, "recompute", "1", "0 | 1",
        "1: the result of GELU or SiLU is not stored, but recomputed from its compressed argument"),
    option<SwitchValue<&Options::reuse_gradients>>(
        kWayOut, "reuse_gradients", "1", "0 | 1",
        "1: the gradient of an activation is written over the gradient it is computed from, unless "
        "something else refers to that; the same values, less memory"),
    option<NamedValue<&Options::huge_pages, kHugePagesNames>>(
        kWayOut, "huge_pages", "auto", "auto | always | never",
        "of the memory for tensors; auto: for sizes that are written densely, where it pays; "
        "always: from the first touch. As it is at the start, for the whole run"),
    option<NumberValue<&Options::seed>>(
        kWayOut, "seed", "0", "0..18446744073709551615",
        "seed of the dither; the same seed gives the same bytes in every run"),

    option<NumberValue<&Options::check, 1000>>(
        kCheck, "check", "0", "0..1000",
        "number of backward passes to repeat with uncompressed tensors, to compare gradients"),
    option<PathValue<&Options::check_file>>(
        kCheck, "check_file", "none", "none, or a path",
        "the results of these passes are appended to this file, a line of JSON each"),
};

// Read from PLEAT_TEST_CONF only.
constexpr std::array kTestEntries{
    option<NamedValue<&Options::rule, kRuleNames>>(
        kTest, "rule", "proof", "proof | operands | assumed | no_lines | no_sides | no_late_poles",
        "where noise is allowed; see Rule"),
    option<NamedValue<&Options::sensitivity, kSensitivityNamesOfTests>>(
        kTest, "sensitivity", "off", "off | on | exact | gact | gact_code", "see Sensitivity"),
    option<SwitchValue<&Options::verify>>(
        kTest, "verify", "0", "0 | 1",
        "after each measurement, one extra pass for each tensor compares prediction and noise; "
        "a table on stderr"),
    option<SwitchValue<&Options::copy_raw>>(
        kTest, "copy_raw", "0", "0 | 1",
        "store raw blocks as payloads instead of holding them; quantise tiny tensors too"),
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

std::string known_keys(std::span<const Entry> entries) {
  std::string keys;
  for (const Entry& entry : entries)
    if (entry.row.audience != kCheck) keys.append(keys.empty() ? "" : ", ").append(entry.row.key);
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

// The problem of an item; empty once the item is applied.
std::string apply_item(const OptionItem& item, std::span<const Entry> entries, Options& options) {
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& e) { return e.row.key == item.key; });
  // Without the quotes that a value does without.
  const std::string written = item.quoted && item.mistake == QuoteMistake::kNone
                                  ? printable(std::string(item.key) + ":" + spelled(item.value))
                                  : printable(trimmed(item.written));
  if (entry == entries.end()) return written + ": no such key; known are " + known_keys(entries);
  const auto in_force = [&] { return "; using " + printable(spelled(entry->text(options))); };
  if (!item.has_value)
    return written + ": no value; write " + std::string(item.key) + ":VALUE" + in_force();
  if (item.mistake != QuoteMistake::kNone)
    return written + ": " + std::string(text_of(item.mistake)) + in_force();
  const std::string shown = std::string(item.key) + ":" +
                            printable(item.quoted ? spelled(item.value) : item.value) + ": ";
  if (item.value.find('\0') != std::string::npos)
    return shown + "a value may not hold a NUL" + in_force();
  if (entry->parse(item.value, options)) return {};
  return shown + "allowed are " + as_prose(entry->row.allowed) + in_force();
}

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

void parse_options(std::string_view conf, Options& options, std::vector<std::string>& problems,
                   ConfSource source) {
  const bool of_tests = source == ConfSource::kTests;
  const std::string prefix = of_tests ? "pleat: PLEAT_TEST_CONF: " : "pleat: PLEAT_CONF: ";
  const std::span<const Entry> entries = of_tests ? std::span<const Entry>(kTestEntries) : kEntries;
  std::size_t found = 0;
  while (const std::optional<OptionItem> item = take_item(conf)) {
    const std::string problem = apply_item(*item, entries, options);
    if (!problem.empty() && ++found <= kMostProblems) problems.push_back(prefix + problem);
  }
  if (found > kMostProblems)
    problems.push_back(prefix + "and " + number_text(found - kMostProblems) + " more problems");
}

}  // namespace pleat::bridge

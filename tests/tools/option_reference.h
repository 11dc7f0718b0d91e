// PLEAT_CONF's grammar once more, written another way: quotes are matched by counting backslashes
// backwards, escapes are undone run by run. And what must hold for the parser whatever it is given;
// the unit tests and the fuzzer share it.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/options.h"

namespace pleat::bridge::testing {

struct ReferenceItem {
  std::string key;
  std::string value;  // empty after a mistake
  bool has_value = false;
  QuoteMistake mistake = QuoteMistake::kNone;
  bool operator==(const ReferenceItem&) const = default;
};

inline void PrintTo(const ReferenceItem& item, std::ostream* out) {
  *out << item.key << (item.has_value ? ":" : "") << item.value << " mistake "
       << static_cast<int>(item.mistake);
}

inline bool is_space(char c) { return c != '\0' && std::strchr(" \t\r\n\f\v", c) != nullptr; }

inline std::string without_spaces_around(std::string text) {
  while (!text.empty() && is_space(text.back())) text.pop_back();
  while (!text.empty() && is_space(text.front())) text.erase(text.begin());
  return text;
}

// Undoes escapes. False: a backslash stands before something else. `at_end_of_text`: nothing can
// stand before what is missing.
inline bool unescape(const std::string& content, bool at_end_of_text, std::string& value) {
  for (std::size_t i = 0; i < content.size();) {
    std::size_t run = 0;
    while (i + run < content.size() && content[i + run] == '\\') ++run;
    value.append(run / 2, '\\');
    i += run;
    if (run % 2 == 1 && i == content.size()) return at_end_of_text;
    if (run % 2 == 1 && content[i] != '"') return false;
    if (i < content.size()) value += content[i++];
  }
  return true;
}

// True for spaces, a word, spaces and a colon at the start of `text`.
inline bool starts_with_key(std::string text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  const std::string key = without_spaces_around(text.substr(0, colon));
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_');
  });
}

inline std::vector<ReferenceItem> reference_items(std::string text) {
  std::vector<ReferenceItem> items;
  text += ',';  // every item ends with a comma
  while (!text.empty()) {
    ReferenceItem item;
    std::size_t end = text.find(',');
    const std::size_t colon = text.find(':');
    item.has_value = colon < end;
    item.key = without_spaces_around(text.substr(0, std::min(colon, end)));
    std::size_t open = colon + 1;
    while (item.has_value && is_space(text[open])) ++open;
    if (item.has_value && text[open] == '"') {
      std::size_t close = open + 1;
      for (; close < text.size(); ++close) {
        std::size_t backslashes = 0;
        while (text[close - 1 - backslashes] == '\\') ++backslashes;
        if (text[close] == '"' && backslashes % 2 == 0) break;
      }
      const bool closed = close < text.size();
      const std::size_t size = (closed ? close : text.size() - 1) - open - 1;
      std::string value;
      if (!unescape(text.substr(open + 1, size), !closed, value))
        item.mistake = QuoteMistake::kStrayBackslash;
      std::size_t behind = close + 1;
      while (closed && is_space(text[behind])) ++behind;
      if (closed && text[behind] == ',') {
        end = behind;
      } else {
        if (item.mistake == QuoteMistake::kNone)
          item.mistake = closed ? QuoteMistake::kTextBehind : QuoteMistake::kNotClosed;
        end = closed ? close : open;
        do end = text.find(',', end + 1);
        while (end + 1 < text.size() && !starts_with_key(text.substr(end + 1)));
      }
      if (item.mistake == QuoteMistake::kNone) item.value = value;
    } else if (item.has_value) {
      item.value = without_spaces_around(text.substr(open, end - open));
    }
    if (!item.key.empty() || item.has_value) items.push_back(item);
    text.erase(0, end + 1);
  }
  return items;
}

// What take_item() finds, in a block of memory that ends where the text does.
inline std::vector<ReferenceItem> items_taken_from(std::string_view text) {
  const std::unique_ptr<char[]> exact(new char[text.size()]);
  std::copy(text.begin(), text.end(), exact.get());
  std::string_view rest(exact.get(), text.size());
  std::vector<ReferenceItem> items;
  while (const auto item = take_item(rest)) {
    const bool good = item->mistake == QuoteMistake::kNone;
    items.push_back(
        {std::string(item->key), good ? item->value : "", item->has_value, item->mistake});
  }
  return items;
}

// What does not hold of the parser given `text`, or nothing.
inline std::string what_is_wrong(std::string_view text) {
  if (items_taken_from(text) != reference_items(std::string(text))) return "items";

  const std::string spelling = spelled(text);
  const std::string conf = " before:1, key :" + spelling + " , after: \"x,y\"";
  const std::vector<ReferenceItem> items = items_taken_from(conf);
  if (items.size() != 3 || items[1].key != "key" || items[1].value != text) return "round trip";
  if (items[2].value != "x,y") return "what follows a round trip";

  std::vector<std::string> problems;
  Options options;
  parse_options(text, options, problems);
  if (!(options.bits >= 1 && options.bits <= 8) || options.verbose < 0 || options.verbose > 1)
    return "ranges";
  parse_options(text, options, problems, ConfSource::kTests);
  if (problems.size() > 2 * 17) return "number of problems";
  for (const std::string& problem : problems)
    if (problem.size() > 400 ||
        std::any_of(problem.begin(), problem.end(), [](unsigned char c) { return c < 0x20; }))
      return "a problem's line";

  // The values in force, spelled, have the same effect again, without a problem.
  const auto spelled_values = [](const Options& of) {
    std::string values;
    for (const OptionRow& row : option_table())
      values += std::string(row.key) + ":" + spelled(option_value(of, row.key)) + ",";
    return values;
  };
  Options user;
  parse_options(text, user, problems);
  Options again;
  problems.clear();
  parse_options(spelled_values(user), again, problems);
  if (!problems.empty() || spelled_values(again) != spelled_values(user)) return "values in force";

  const std::string json = json_string(text);
  if (std::any_of(json.begin(), json.end(), [](unsigned char c) { return c < 0x20; }))
    return "JSON";
  return {};
}

}  // namespace pleat::bridge::testing

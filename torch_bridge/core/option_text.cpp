#include "torch_bridge/core/option_text.h"

#include <algorithm>
#include <cstddef>

namespace pleat::bridge {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\f\v";
constexpr std::size_t kNowhere = std::string_view::npos;

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::size_t behind_spaces(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(kSpaces, at), text.size());
}

bool key_and_colon_stand_at(std::string_view text, std::size_t at) {
  const std::size_t key = behind_spaces(text, at);
  const std::size_t end =
      static_cast<std::size_t>(std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(key),
                                                text.end(), is_key_character) -
                               text.begin());
  const std::size_t colon = behind_spaces(text, end);
  return end != key && colon != text.size() && text[colon] == ':';
}

// Where an item with a mistake ends that shows at `from`.
std::size_t end_of_mistaken(std::string_view text, std::size_t from) {
  std::size_t comma = text.find(',', from);
  while (comma != kNowhere && !key_and_colon_stand_at(text, comma + 1))
    comma = text.find(',', comma + 1);
  return std::min(comma, text.size());
}

// Reads the quoted value whose opening quote stands at `open`. Returns where the item ends.
std::size_t read_quoted(std::string_view text, std::size_t open, OptionItem& item) {
  item.quoted = true;
  std::size_t at = open + 1;
  for (; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') {
      if (++at == text.size()) break;
      if (text[at] != '"' && text[at] != '\\') item.mistake = QuoteMistake::kStrayBackslash;
    }
    item.value += text[at];
  }
  const bool closed = at < text.size();
  const std::size_t end = closed ? behind_spaces(text, at + 1) : text.size();
  if (closed && (end == text.size() || text[end] == ',')) return end;
  // The mistake that comes first is the one to be told about.
  if (item.mistake == QuoteMistake::kNone)
    item.mistake = closed ? QuoteMistake::kTextBehind : QuoteMistake::kNotClosed;
  return end_of_mistaken(text, closed ? end : open);
}

OptionItem take_any_item(std::string_view& text) {
  OptionItem item;
  std::size_t end = std::min(text.find_first_of(",:"), text.size());
  item.key = trimmed(text.substr(0, end));
  if (end < text.size() && text[end] == ':') {
    item.has_value = true;
    const std::size_t value = behind_spaces(text, end + 1);
    if (value < text.size() && text[value] == '"') {
      end = read_quoted(text, value, item);
    } else {
      end = std::min(text.find(',', end + 1), text.size());
      item.value = trimmed(text.substr(value, end - value));
    }
  }
  item.written = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return item;
}

bool continues_utf8(char c) { return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u; }

// The length of the UTF-8 character that `text` starts with, or 0 if that is none (Unicode 15,
// table 3-7).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](std::size_t i) { return i < text.size() && continues_utf8(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_large = first == 0xF4 && byte(1) > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == kNowhere) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::optional<OptionItem> take_item(std::string_view& text) {
  while (!text.empty()) {
    OptionItem item = take_any_item(text);
    if (!trimmed(item.written).empty()) return item;
  }
  return std::nullopt;
}

std::string spelled(std::string_view value) {
  const bool plain = !value.empty() && value.front() != '"' && trimmed(value) == value &&
                     value.find(',') == kNowhere;
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted += '"';
}

std::string printable(std::string_view text, std::size_t most) {
  std::size_t length = std::min(text.size(), most);
  // No character of several bytes is cut in two.
  while (length < text.size() && length + 3 > most && continues_utf8(text[length])) --length;
  std::string shown(text.substr(0, length));
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  if (length < text.size()) shown += "...";
  return shown;
}

std::string json_string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0) {
      json += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      (json += '\\') += text.front();
    } else if (first < 0x20) {
      ((json += "\\u00") += kHex[first >> 4]) += kHex[first & 15];
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return json += '"';
}

}  // namespace pleat::bridge

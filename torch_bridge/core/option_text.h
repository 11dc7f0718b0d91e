// The text form of options, "key:value,key:value": items taken apart, values put in quotes. Knows
// no key and no option. Torch-free.
//
//   items   are separated by commas. Spaces around keys and values are ignored, and so are blank
//           items.
//   value   plain: everything up to the next comma. Or quoted, if it starts with a double quote:
//           everything up to the closing quote, spaces and commas included. Inside, \" stands for a
//           quote and \\ for a backslash; a backslash before anything else is a mistake.
//   key     everything before the first colon; a value may hold colons.
//
// A mistake in quotes costs its item only. The item then ends at the first comma behind which a key
// and a colon stand (or with the text), so that `a:"x,y,b:1` has two items, and b its value.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace pleat::bridge {

enum class QuoteMistake : std::uint8_t {
  kNone,
  kNotClosed,       // no closing quote up to the end of the text
  kTextBehind,      // something other than a comma behind the closing quote
  kStrayBackslash,  // a backslash in quotes that stands before neither a quote nor a backslash
};

struct OptionItem {
  std::string_view written;  // what stood between the commas
  std::string_view key;      // without the spaces around it
  std::string value;         // without quotes; of no use after a mistake
  bool has_value = false;    // there was a colon
  bool quoted = false;
  QuoteMistake mistake = QuoteMistake::kNone;
};

// Takes the first item that is not blank off the front of `text`; empty if there is none. The
// result points into `text`. Linear in what it takes, but for the one quote that is not closed.
[[nodiscard]] std::optional<OptionItem> take_item(std::string_view& text);

// `text` without the spaces (as C knows them) at its ends.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

// All of `text` as a number; nothing: it is none, or none that Number holds.
template <class Number>
[[nodiscard]] std::optional<Number> number_of(std::string_view text) noexcept {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// `value` as an item spells it: itself if it reads back as itself, else (or if it is empty) quoted.
// Reads back as the very same bytes, whatever they are.
[[nodiscard]] std::string spelled(std::string_view value);

// For a line that a person reads: control characters as '?', cut to `most` characters.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 64);

// `text` as a JSON string, quotes included. A byte that is no UTF-8 becomes U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace pleat::bridge

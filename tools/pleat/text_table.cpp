#include "text_table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace pleat::cli {
namespace {

// The least width of a column: before others are left out, and when there are none to leave out.
constexpr std::size_t kReadable = 14;
constexpr std::size_t kLeast = 8;
constexpr std::string_view kGap = "  ";

bool continues(char c) noexcept { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

void add_cell(std::string& line, const std::string& text, Align align, std::size_t width) {
  const std::string shown = cut(text, width);
  const std::string space(width - characters(shown), ' ');
  line += kGap;
  line += align == Align::kLeft ? shown + space : space + shown;
}

// Columns of the terminal.
std::size_t taken(const std::vector<std::size_t>& widths) {
  std::size_t sum = 0;
  for (const std::size_t width : widths) sum += width > 0 ? width + kGap.size() : 0;
  return sum;
}

}  // namespace

std::size_t characters(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string cut(std::string_view text, std::size_t most) {
  if (characters(text) <= most) return std::string(text);
  constexpr std::string_view kDots = "...";
  const std::size_t kept = most - std::min(most, kDots.size());
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end)
    if (!continues(text[end]) && seen++ == kept) break;
  return std::string(text.substr(0, end)).append(kDots.substr(0, most));
}

std::size_t terminal_columns() noexcept {
  winsize size{};
  return ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0
             ? size.ws_col
             : 0;
}

// 0: no column, as it has no text.
std::vector<std::size_t> TextTable::natural_widths() const {
  std::vector<std::size_t> widths(columns_.size());
  for (const std::vector<std::string>& row : rows_)
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], characters(row[i]));
  for (std::size_t i = 0; i < widths.size(); ++i)
    if (widths[i] > 0) widths[i] = std::max(widths[i], characters(columns_[i].title));
  return widths;
}

// Takes from the widest column that may shrink, one character at a time.
void TextTable::shrink(std::vector<std::size_t>& widths, std::size_t room,
                       std::size_t least) const {
  while (taken(widths) > room) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (columns_[i].may_shrink && widths[i] > least &&
          (widest == widths.size() || widths[i] > widths[widest]))
        widest = i;
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

std::vector<std::size_t> TextTable::widths(std::size_t room) const {
  const std::vector<std::size_t> natural = natural_widths();
  if (room == 0) return natural;
  std::vector<std::size_t> widths = natural;
  shrink(widths, room, kReadable);
  for (unsigned drop = 1; drop <= columns_.size() && taken(widths) > room; ++drop) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = columns_[i].drop > 0 && columns_[i].drop <= drop ? 0 : natural[i];
    shrink(widths, room, kReadable);
  }
  shrink(widths, room, kLeast);
  return widths;
}

std::string TextTable::text(std::size_t room) const {
  const std::vector<std::size_t> width = widths(room);
  std::string text;
  const auto add_line = [&](const auto& cell) {
    std::string line;
    for (std::size_t i = 0; i < width.size(); ++i)
      if (width[i] > 0) add_cell(line, cell(i), columns_[i].align, width[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  for (const std::vector<std::string>& row : rows_) add_line([&](std::size_t i) { return row[i]; });
  return text;
}

}  // namespace pleat::cli

#include "answer.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "program.h"

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
std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths(columns_.size());
  for (const std::vector<Cell>& row : rows_)
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], characters(row[i].text));
  for (std::size_t i = 0; i < widths.size(); ++i)
    if (widths[i] > 0) widths[i] = std::max(widths[i], characters(columns_[i].title));
  return widths;
}

// Takes from the widest column that may shrink, one character at a time.
void Table::shrink(std::vector<std::size_t>& widths, std::size_t room, std::size_t least) const {
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

std::vector<std::size_t> Table::widths(std::size_t room) const {
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

std::string Table::text(std::size_t room) const {
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
  for (const std::vector<Cell>& row : rows_) add_line([&](std::size_t i) { return row[i].text; });
  return text;
}

Json Table::json() const {
  Json rows = Json::array();
  for (const std::vector<Cell>& row : rows_) {
    Json object = Json::object();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& key = columns_[i].key;
      if (key == json_columns().key)
        object.update(row[i].json);
      else if (!key.empty() && !row[i].json.is_discarded())
        object[key] = row[i].json;
    }
    rows.push_back(std::move(object));
  }
  return rows;
}

Json Table::page() const {
  Json page{{"columns", Json::array()}, {"rows", Json::array()}};
  const auto is_shown = [this](std::size_t i) { return !columns_[i].title.empty(); };
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (is_shown(i))
      page["columns"].push_back(
          {{"title", columns_[i].title}, {"text", columns_[i].align == Align::kLeft}});
  for (const std::vector<Cell>& row : rows_) {
    Json cells = Json::array();
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (is_shown(i)) cells.push_back(Json::array({row[i].text, row[i].json}));
    page["rows"].push_back(std::move(cells));
  }
  return page;
}

// ---- sections -----------------------------------------------------------------------------------

void Section::line(std::string_view name, std::string_view words) {
  text_ += fmt::format("  {:<13} {}\n", name, words);
}

void Section::trim() {
  while (text_.ends_with("\n\n")) text_.pop_back();
}

void Section::table(std::string_view key, std::string_view title, const Table& table) {
  if (!table.empty()) text_.append(title).append(table.text(terminal_columns()));
  if (!key.empty()) value(key, table.json());
}

void Section::section(std::string_view key, Section section) {
  text_ += section.text_;
  value(key, std::move(section.json_));
}

void Section::element(std::string_view key, Section section) {
  text_ += section.text_;
  json_[std::string(key)].push_back(std::move(section.json_));
}

// ---- standard output ----------------------------------------------------------------------------

bool put(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) say("pleat: standard output: {}\n", std::strerror(errno));
  return written;
}

bool put(const Section& answer, bool as_json) {
  if (!as_json) return put(answer.text());
  return put(answer.json().dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

}  // namespace pleat::cli

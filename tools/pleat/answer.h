// The answer of a command: a tree of sections, tables and values. It is described once, and
// rendered as text for a person, as JSON for a program, or as data of a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pleat::cli {

using Json = nlohmann::ordered_json;

// An unknown value becomes null.
template <class T>
[[nodiscard]] Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
// NaN and infinity become null.
[[nodiscard]] Json number(double value);

// ---- tables -------------------------------------------------------------------------------------

// A value of a table, in both forms.
struct Cell {
  Json json;
  std::string text;

  // Of a column that only text has, and of one that only JSON has.
  Cell(std::string text) : text(std::move(text)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* text) : text(text) {}             // NOLINT(google-explicit-constructor)
  Cell(Json json, std::string text) : json(std::move(json)), text(std::move(text)) {}
  // Of no text, and in a row of JSON not even its key.
  [[nodiscard]] static Cell absent() { return {Json(Json::value_t::discarded), ""}; }
};

enum class Align : unsigned char { kLeft, kRight };

struct Column {
  std::string title;  // in text
  std::string key;    // in JSON; empty: not there
  Align align = Align::kRight;
  bool may_shrink = false;  // its texts may be cut, to 8 characters at least
  unsigned drop = 0;        // columns are left out where there is no room, 1 first; 0: never
};
[[nodiscard]] inline Column figure_column(std::string title, std::string key = "",
                                          unsigned drop = 0) {
  return {std::move(title), std::move(key), Align::kRight, false, drop};
}
[[nodiscard]] inline Column word_column(std::string title, std::string key = "",
                                        unsigned drop = 0) {
  return {std::move(title), std::move(key), Align::kLeft, false, drop};
}
// Words that may be cut.
[[nodiscard]] inline Column name_column(std::string title, std::string key = "",
                                        unsigned drop = 0) {
  return {std::move(title), std::move(key), Align::kLeft, true, drop};
}
// Values that only JSON has: each cell is an object, whose keys become keys of the row.
[[nodiscard]] inline Column json_columns() { return {"", "*"}; }

// Characters of UTF-8; those of double width count once.
[[nodiscard]] std::size_t characters(std::string_view text) noexcept;
// At most `most` characters, the last of them dots if something is missing.
[[nodiscard]] std::string cut(std::string_view text, std::size_t most);

// Columns of the terminal that stdout is; 0: it is none.
[[nodiscard]] std::size_t terminal_columns() noexcept;

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // A cell for each column.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // row(item) for each of the first `most` items.
  template <class Items, class MakeRow>
  void add_first(std::size_t most, const Items& items, MakeRow&& row) {
    for (const auto& item : items) {
      if (rows_.size() >= most) break;
      add(row(item));
    }
  }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_.size(); }

  // Columns as wide as their texts: title and rows, each a line with two spaces before it. `room`:
  // columns of the terminal, in which texts are cut and columns left out; 0: unlimited. A column
  // without a text in any row is left out.
  [[nodiscard]] std::string text(std::size_t room) const;
  // An object for each row.
  [[nodiscard]] Json json() const;
  // For a page: columns that have a title, and rows of cells, each its text and its value.
  [[nodiscard]] Json page() const;

 private:
  [[nodiscard]] std::vector<std::size_t> natural_widths() const;
  void shrink(std::vector<std::size_t>& widths, std::size_t room, std::size_t least) const;
  [[nodiscard]] std::vector<std::size_t> widths(std::size_t room) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// ---- sections -----------------------------------------------------------------------------------

// A part of an answer. In JSON an object; in text its parts one after the other.
class Section {
 public:
  // Of text only.
  void text(std::string_view text) { text_ += text; }
  void line(std::string_view name, std::string_view words);  // "  name          words"
  void trim();                                               // leaves one newline at the end
  // Of JSON only.
  void value(std::string_view key, Json value) { json_[std::string(key)] = std::move(value); }
  void values(const Json& object) { json_.update(object); }  // each of its own
  // Of both. `title`: text above the table. A table without rows has no text, its title included.
  // An empty key: of text only.
  void table(std::string_view key, std::string_view title, const Table& table);
  void section(std::string_view key, Section section);
  // One of the array at the key, which value(key, Json::array()) begins.
  void element(std::string_view key, Section section);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const Json& json() const noexcept { return json_; }

 private:
  std::string text_;
  Json json_ = Json::object();
};

// To stdout. False: it cannot be written, which is said on stderr.
[[nodiscard]] bool put(std::string_view text);
[[nodiscard]] bool put(const Section& answer, bool as_json);

}  // namespace pleat::cli

// A table of plain text: columns as wide as what stands in them. Where a terminal has no room,
// texts are cut and columns left out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pleat::cli {

enum class Align : unsigned char { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kRight;
  bool may_shrink = false;  // its texts may be cut, to 8 characters at least
  unsigned drop = 0;        // columns are left out where there is no room, 1 first; 0: never
};

// Characters of UTF-8; those of double width count once.
[[nodiscard]] std::size_t characters(std::string_view text) noexcept;
// At most `most` characters, the last of them dots if something is missing.
[[nodiscard]] std::string cut(std::string_view text, std::size_t most);

// Columns of the terminal that stdout is; 0: it is none.
[[nodiscard]] std::size_t terminal_columns() noexcept;

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One text for each column.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  // Title and rows, each a line with two spaces before it. `room`: columns of the terminal; 0: as
  // many as it takes. A column without a text in any row is left out.
  [[nodiscard]] std::string text(std::size_t room) const;

 private:
  [[nodiscard]] std::vector<std::size_t> natural_widths() const;
  void shrink(std::vector<std::size_t>& widths, std::size_t room, std::size_t least) const;
  [[nodiscard]] std::vector<std::size_t> widths(std::size_t room) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pleat::cli

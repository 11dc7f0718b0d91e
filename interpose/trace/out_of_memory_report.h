// The report on stderr of the memory in use, by class and by line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "interpose/trace/book_lines.h"
#include "interpose/trace/live_book.h"

namespace pleat::trace {

class OutOfMemoryReport {
 public:
  // Puts the page together: at most 40 lines. `device` is told in full, others in a line each;
  // `moment` is how `pleat trace summary --at` calls it.
  void compose(LiveBook& book, BookLines& lines, std::string_view title, int device,
               const char* moment, const char* path) noexcept;
  [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), size_}; }

 private:
  void put(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));
  void head(LiveBook& book, int index, const BookDevice& device) noexcept;
  void classes(LiveBook& book, int index, const BookDevice& device) noexcept;
  void largest(BookDevice& device, BookLines& lines) noexcept;
  void saved(BookDevice& device) noexcept;

  std::array<char, 8192> text_;
  std::size_t size_ = 0;
};

// Writes to stderr, and waits half a second at most for whoever reads it. No signal comes of a pipe
// that nobody reads if the calling thread blocks them.
void write_to_stderr(std::string_view text) noexcept;

}  // namespace pleat::trace

// What a book knows of lines: which line of the program holds what lives. In the writer's thread;
// asks nobody for memory but the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "interpose/trace/live_book.h"
#include "interpose/trace/names.h"
#include "interpose/trace/native_stack.h"

namespace pleat::trace {

// What lives of one line, operator and class.
struct LineGroup {
  std::uint32_t op = 0;     // a text
  std::uint32_t frame = 0;  // 0: nothing is known
  ByteClass of = ByteClass::kUnknown;
  std::int64_t bytes = 0;
  std::uint64_t count = 0;  // of blocks
};

// The line of a stack at which a person looks, as `pleat trace summary` has it.
class BookLines {
 public:
  BookLines(const Names& names, Modules& modules) noexcept : names_(names), modules_(modules) {}

  // The number of a frame; 0: the stack has none.
  [[nodiscard]] std::uint32_t frame_of(std::uint32_t stack) noexcept;
  // Writes "train.py:12 forward" or "libtorch_cpu.so+0x1a2b" into `text`, with a NUL; what is not
  // printable is '?'.
  void write(std::uint32_t frame, std::span<char> text) noexcept;
  // A text of Names; "-" for 0.
  void write_text(std::uint32_t text_number, std::span<char> text) const noexcept;

  // The largest groups of a device into `top`, the largest first. Returns how many there are there;
  // `*all` is how many there are.
  std::size_t largest(BookDevice& device, std::span<LineGroup> top, std::size_t* all) noexcept;

 private:
  [[nodiscard]] std::uint32_t look(std::uint32_t stack) noexcept;
  [[nodiscard]] std::string_view text_of(std::uint32_t number) const noexcept;
  void add(Origin place, ByteClass of, std::int64_t bytes, std::uint64_t count) noexcept;

  const Names& names_;
  Modules& modules_;
  MappedTable<std::uint32_t> frames_;  // by stack: plus 1
  MappedTable<LineGroup> groups_;
};

}  // namespace pleat::trace

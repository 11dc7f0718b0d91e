// The page that `pleat trace top` looks at (interpose/trace/top.h), as the writer's thread keeps
// it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "interpose/trace/book_lines.h"
#include "interpose/trace/live_book.h"
#include "interpose/trace/top.h"

namespace pleat::trace {

class TopFile {
 public:
  // Makes the file, for a trace that begins. Where that fails there is no page.
  void create(std::uint64_t start_ns) noexcept;
  // What the book says now: twice a second at most.
  void update(LiveBook& book, BookLines& lines, std::uint64_t now_ns) noexcept;
  // The trace has ended: says so to who looks, and removes the file.
  void end() noexcept;
  // The process ends, whatever its threads do. Removes the file.
  void remove() noexcept;
  // In a forked child: the page is its parent's.
  void abandon() noexcept;

 private:
  [[nodiscard]] bool create_in(const char* folder, bool make) noexcept;
  [[nodiscard]] bool map(int file) noexcept;
  void put_lines(BookDevice& device, BookLines& lines) noexcept;
  void begin_change() noexcept;
  void end_change() noexcept;

  TopPage* page_ = nullptr;
  std::atomic<bool> there_{false};  // the file is ours to remove
  pid_t pid_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::uint64_t updated_at_ = 0;
  char path_[4200] = {};
};

}  // namespace pleat::trace

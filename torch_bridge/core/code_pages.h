// Libraries in memory: the path of this one, the code of a loaded one, and its pages. Running an
// operator once maps the pages of its code; TransientCodePages gives the new ones back. They are
// clean pages of a file, so a later run finds them in the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pleat::bridge {

// As the loader was asked for it; empty if that is not known.
[[nodiscard]] std::string path_of_this_library();

struct CodeRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// Where the code of a loaded library lies; empty if it is not loaded. `library`: the end of its
// path.
[[nodiscard]] CodeRange code_of(const char* library) noexcept;

// Notes which code pages of a loaded library are mapped; when it is destroyed, those that came
// since are unmapped. Does nothing where /proc/self/pagemap cannot be read. Other threads may go
// on.
class TransientCodePages {
 public:
  // `library`: the end of its path, "libtorch_cpu.so".
  explicit TransientCodePages(const char* library) noexcept;
  ~TransientCodePages();
  TransientCodePages(const TransientCodePages&) = delete;
  TransientCodePages& operator=(const TransientCodePages&) = delete;

 private:
  // One bit a page: mapped, and still the file's own (a debugger's breakpoint makes a copy).
  [[nodiscard]] std::vector<bool> mapped() const;

  std::uintptr_t begin_ = 0;
  std::size_t pages_ = 0;
  std::size_t page_bytes_ = 0;
  std::vector<bool> before_;
};

}  // namespace pleat::bridge

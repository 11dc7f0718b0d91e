// The parts of a trace that may not be larger than so much: FILE is written, FILE.1 is what came
// before it, and what came before that is gone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "interpose/trace/block_writer.h"
#include "interpose/trace/mapped.h"

namespace pleat::trace {

class Parts {
 public:
  // Of a trace that begins. 0, or an error's number: where there may be several parts, FILE.1 must
  // not be there.
  [[nodiscard]] int begin(const char* path, std::string_view process, bool several) noexcept;

  // Of the part that is written; the first is 1.
  [[nodiscard]] unsigned number() const noexcept { return number_; }
  [[nodiscard]] const char* path() const noexcept { return path_; }

  // Creates the file of the next part, beside the others, with what the process says of itself.
  // `file` is closed. False: problem() says why.
  [[nodiscard]] bool create_next(BlockWriter& file, std::uint64_t time_ns) noexcept;
  // The next part becomes FILE, and what was FILE becomes FILE.1. Nothing is replaced but what this
  // trace wrote. False: problem() says why; FILE is as it was.
  [[nodiscard]] bool publish(const BlockWriter& file) noexcept;
  // There will be no next part: nothing is left of its file.
  void drop_next() noexcept;
  [[nodiscard]] const char* problem() const noexcept { return problem_; }

 private:
  struct Identity {
    std::uint64_t device = 0, inode = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  // False: there is nothing of this name.
  [[nodiscard]] static bool identify(const char* path, Identity& identity) noexcept;
  [[nodiscard]] bool fail(const char* problem) noexcept {
    problem_ = problem;
    return false;
  }
  [[nodiscard]] std::string_view process_of(unsigned part, std::uint64_t time_ns) noexcept;

  static constexpr std::size_t kMostPath = 4096;
  char path_[kMostPath] = {}, before_[kMostPath] = {}, next_[kMostPath] = {};
  Identity written_, former_;  // FILE and FILE.1
  unsigned number_ = 1;
  const char* problem_ = nullptr;
  ByteBuffer process_, next_process_;
};

}  // namespace pleat::trace

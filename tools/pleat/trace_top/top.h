// `pleat trace top`: the memory of a running job by class. The page that the job shares
// (interpose/trace/top.h) is taken for hostile: data is copied first, and checked.
#pragma once

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "interpose/trace/top.h"
#include "tools/pleat/answer.h"

namespace pleat::cli {

// The system's data on a process. nullopt: no process has this number, or it has ended and its exit
// code is not collected yet.
struct ProcessFacts {
  std::uint64_t start = 0;  // field 22 of /proc/PID/stat; 0: not known
  uid_t user = 0;
};
[[nodiscard]] std::optional<ProcessFacts> facts_of(pid_t pid);

class TopReader {
 public:
  TopReader() = default;
  ~TopReader();
  TopReader(const TopReader&) = delete;
  TopReader& operator=(const TopReader&) = delete;

  // Finds the page of a process. Empty; else there is none, and why in one line.
  [[nodiscard]] std::string open(pid_t pid);
  // A whole page. Nothing: it cannot be read, or changes all the time.
  [[nodiscard]] std::optional<trace::TopPage> read() const;
  // The process that the page is of still runs.
  [[nodiscard]] bool is_running() const;

 private:
  [[nodiscard]] bool open_in(const char* folder, const ProcessFacts& facts, std::string& problem);

  pid_t pid_ = 0;
  int file_ = -1;
  std::uint64_t process_start_ = 0;
};

// Several lines; `columns` of the terminal.
[[nodiscard]] std::string top_text(const trace::TopPage& page, std::size_t columns);
// One line.
[[nodiscard]] std::string top_line(const trace::TopPage& page);
[[nodiscard]] Json top_json(const trace::TopPage& page);

}  // namespace pleat::cli

// The traces of one job: who is there, who is not, and how their clocks belong together. Does not
// look at events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/pleat/trace/reader.h"

namespace pleat::cli {

// A file of a trace. One of bounded size has several, of which the last two are left.
struct TracePart {
  std::string path;
  std::unique_ptr<trace::File> file;

  // From 1.
  [[nodiscard]] std::uint64_t number() const noexcept {
    return std::max<std::uint64_t>(file->process().part, 1);
  }
};

struct RankFile {
  std::vector<TracePart> parts;  // in their order, at least one; all say the same of the process
  // Added to its times, modulo 2^64, makes them times of the job's clock.
  std::uint64_t shift_ns = 0;
  bool has_clock = true;  // else it is taken to begin with the job
  // Another process of a rank: it began while the rank's own ran. Data loaders are such.
  bool is_helper = false;

  [[nodiscard]] const std::string& path() const noexcept { return parts.back().path; }
  [[nodiscard]] const trace::Process& process() const noexcept {
    return parts.back().file->process();
  }
  // Of the trace's beginning, by its own clock.
  [[nodiscard]] std::uint64_t own_start_ns() const noexcept {
    return parts.front().file->start_ns();
  }
  [[nodiscard]] std::uint64_t start_ns() const noexcept { return own_start_ns() + shift_ns; }
  [[nodiscard]] std::uint64_t last_ns() const noexcept {
    return parts.back().file->last_ns() + shift_ns;
  }
  [[nodiscard]] bool is_rank() const noexcept { return process().rank >= 0 && !is_helper; }
  // "3"; "3, process 4711"; "process 4711".
  [[nodiscard]] std::string name() const;
};

struct Job {
  std::vector<RankFile> ranks;  // by rank, its own process first; those that have none come last
  std::int64_t world_size = 0;  // how many there should be; 0: no process has a rank
  std::string missing;          // "2, 5-7"; empty: none
  std::uint64_t start_ns = 0;   // of its first trace, by the job's clock
};

// The files, and of folders what ends with ".trace", and the parts before these, ".trace.1". Empty,
// and `error`, if a folder has none.
[[nodiscard]] std::vector<std::string> trace_files(const std::vector<std::string>& named,
                                                   std::string& error);

// In order, with clocks. `error`: a rank is there twice, they are of several jobs, or a part
// between two others is missing; one line. At least one file.
//   Traces of one host share a clock, the monotonic one, if they agree on how far it is from the
//   wall clock, within a second. Hosts are put together by their wall clocks.
[[nodiscard]] Job job_of(std::vector<TracePart> files, std::string& error);

}  // namespace pleat::cli

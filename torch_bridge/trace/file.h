// The file of a trace: its name follows from a pattern and from the process's identity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pleat::bridge {

struct ProcessIdentity {
  std::uint64_t process = 0;
  std::string host;
  std::uint64_t started = 0;  // seconds since 1970
  // As launchers say them (torchrun, Slurm, Open MPI, MPICH); nothing: the process has none.
  std::optional<std::uint64_t> rank, local_rank, world_size;
};
[[nodiscard]] ProcessIdentity identify_process();

// The file for a pattern: %r rank, %l local rank (both 0 where there is none), %p process, %h host,
// %t seconds since 1970, %% a percent sign. A pattern that ends with a slash, or that names a
// folder, means pleat.trace there. Where the process has a rank that the pattern does not ask for,
// the rank goes before the ending: run.trace becomes run.rank3.trace. Empty, and `problem` in one
// line, if the text put in for a sign has a slash, or is "", "." or "..".
[[nodiscard]] std::string trace_file(std::string_view pattern, const ProcessIdentity& who,
                                     std::string& problem);
// The same file, for a process that found it taken: run.4711.trace. The number of a process may
// have been another's: a second attempt is run.4711-2.trace.
[[nodiscard]] std::string trace_file_of_process(const std::string& file, const ProcessIdentity& who,
                                                unsigned attempt = 1);

}  // namespace pleat::bridge

// The page that a process with a trace shares with `pleat trace top`: a file of the user's own,
// which the process maps and the command reads. Recorder and command obey this; the command takes
// the file for hostile.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "interpose/trace/byte_class.h"
#include "torch_bridge/c_abi.h"

namespace pleat::trace {

inline constexpr char kTopMagic[8] = {'P', 'l', 'e', 'a', 't', 'T', 'o', 'p'};
inline constexpr std::uint32_t kTopVersion = 1;
inline constexpr std::size_t kTopDevices = 9;  // the host, and the first that were used
inline constexpr std::size_t kTopLines = 10;

// Of a device, at a moment.
struct TopMoment {
  std::uint64_t time_ns;  // CLOCK_MONOTONIC
  std::uint64_t step;
  std::int64_t sums[PLEAT_TRACE_CHANGES];
  std::int64_t classes[kByteClasses];  // as a ByteClass numbers them; they add up to what is live
  std::int64_t resident, small;        // of the process, as last heard; 0: nothing yet
  std::uint32_t phase;
  std::uint32_t zero;
};

struct TopDevice {
  std::int32_t device;  // -1: the host
  std::uint32_t zero;
  TopMoment now;
  TopMoment peak;  // of live bytes, since the trace began
};

// What lives of one line, operator and class. Texts end with a NUL.
struct TopLine {
  std::int64_t bytes;
  std::uint64_t count;  // of blocks
  std::uint32_t of;     // a ByteClass
  std::uint32_t zero;
  char op[40];
  char line[80];
};

struct TopPage {
  char magic[8];
  std::uint32_t version;
  std::uint32_t page_bytes;  // sizeof(TopPage)
  // Odd while the page changes. Who reads it, reads this before and after.
  std::uint64_t sequence;
  std::uint64_t pid;
  std::uint64_t process_start;  // field 22 of /proc/PID/stat: two processes may have one number
  std::uint64_t start_ns;       // of the trace, CLOCK_MONOTONIC
  std::uint32_t ended;          // 1: the trace has ended
  std::uint32_t inexact;        // 1: some of what lives is not known
  std::uint32_t devices;        // how many of these are there
  std::uint32_t lines;          // the same; of the device where most lives
  std::int32_t lines_device;
  std::uint32_t zero;
  TopDevice device[kTopDevices];
  TopLine line[kTopLines];
};
static_assert(sizeof(TopPage) % 8 == 0);

// The folders in which a page may lie, the best first. `runtime` is XDG_RUNTIME_DIR, or null.
// False: there is no such folder, or `path` is too short for it. A folder must be its user's, and
// closed to all others; the last one is made if it is missing.
inline constexpr unsigned kTopFolders = 3;
[[nodiscard]] inline bool top_folder(unsigned which, const char* runtime, uid_t user, char* path,
                                     std::size_t bytes) noexcept {
  int length = -1;
  if (which == 0 && runtime != nullptr && runtime[0] == '/')
    length = std::snprintf(path, bytes, "%s", runtime);
  if (which == 1) length = std::snprintf(path, bytes, "/run/user/%u", static_cast<unsigned>(user));
  if (which == 2) length = std::snprintf(path, bytes, "/tmp/pleat-%u", static_cast<unsigned>(user));
  return length > 0 && static_cast<std::size_t>(length) < bytes;
}
[[nodiscard]] inline bool top_file(long long pid, char* name, std::size_t bytes) noexcept {
  const int length = std::snprintf(name, bytes, "pleat-%lld.top", pid);
  return length > 0 && static_cast<std::size_t>(length) < bytes;
}

}  // namespace pleat::trace

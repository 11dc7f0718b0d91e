// Bytes of a file from a place on, all or none.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pleat::trace {

// False: they are not all there, or they cannot be read; errno is 0 where the file just ends.
[[nodiscard]] inline bool read_at(int file, std::uint64_t offset, void* to, std::size_t bytes) {
  errno = 0;
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return false;
    const ssize_t got = ::pread(file, at, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      errno = 0;
      continue;
    }
    if (got <= 0) return false;
    at += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace pleat::trace

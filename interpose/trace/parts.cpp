#include "interpose/trace/parts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace pleat::trace {

int Parts::begin(const char* path, std::string_view process, bool several) noexcept {
  number_ = 1;
  problem_ = nullptr;
  written_ = former_ = {};
  const std::size_t bytes = std::strlen(path);
  if (bytes + 32 >= sizeof path_) return ENAMETOOLONG;
  std::memcpy(path_, path, bytes + 1);
  std::snprintf(before_, sizeof before_, "%.4060s.1", path_);
  std::snprintf(next_, sizeof next_, "%.4060s.next.%d", path_, static_cast<int>(::getpid()));
  Identity there;
  if (several && identify(before_, there)) return EEXIST;
  process_.clear();
  std::uint8_t* const kept = process_.reserve(process.size());
  if (kept == nullptr) return ENOMEM;
  std::memcpy(kept, process.data(), process.size());
  process_.advance(process.size());
  return 0;
}

bool Parts::identify(const char* path, Identity& identity) noexcept {
  struct stat facts {};
  if (::lstat(path, &facts) != 0) return false;
  identity = {facts.st_dev, facts.st_ino};
  return true;
}

// The object with which the trace began, and two members more. What is no object stays as it is.
std::string_view Parts::process_of(unsigned part, std::uint64_t time_ns) noexcept {
  const std::string_view first(reinterpret_cast<const char*>(process_.data()), process_.size());
  const std::size_t end = first.rfind('}');
  const std::size_t last =
      end != std::string_view::npos ? first.find_last_not_of(" \n", end - 1) : 0;
  constexpr std::size_t kMore = 96;
  next_process_.clear();
  auto* const text = reinterpret_cast<char*>(next_process_.reserve(first.size() + kMore));
  if (end == std::string_view::npos || end == 0 || text == nullptr) return first;
  std::memcpy(text, first.data(), end);
  const int more =
      std::snprintf(text + end, kMore, "%s\"part\":%u,\"part_start_ns\":%llu}",
                    first[last] == '{' ? "" : ",", part, static_cast<unsigned long long>(time_ns));
  return {text, end + static_cast<std::size_t>(more)};
}

bool Parts::create_next(BlockWriter& file, std::uint64_t time_ns) noexcept {
  written_ = {file.device(), file.inode()};
  if (file.create(next_) != 0) return fail("no other part can be made beside it");
  file.process(process_of(number_ + 1, time_ns));
  return true;
}

void Parts::drop_next() noexcept { ::unlink(next_); }

bool Parts::publish(const BlockWriter& file) noexcept {
  Identity there;
  if (identify(before_, there) && there != former_)
    return fail("what stands beside it with .1 at its end is not of this trace");
  if (!identify(path_, there) || there != written_) return fail("it is not where it was");
  // At every moment there is a file of this name, where the system can do that.
  if (::renameat2(AT_FDCWD, next_, AT_FDCWD, path_, RENAME_EXCHANGE) == 0) {
    if (::rename(next_, before_) != 0) {
      ::renameat2(AT_FDCWD, next_, AT_FDCWD, path_, RENAME_EXCHANGE);
      return fail("the part before cannot be given its name");
    }
  } else {
    if (::rename(path_, before_) != 0) return fail("the part before cannot be given its name");
    if (::rename(next_, path_) != 0) {
      ::rename(before_, path_);
      return fail("no other part can be made beside it");
    }
  }
  former_ = written_;
  written_ = {file.device(), file.inode()};
  ++number_;
  return true;
}

}  // namespace pleat::trace

// ZeroedMapping maps zero-filled memory for metadata straight from the kernel. Pages cost no memory
// until touched. Never throws, and never calls malloc, which can be the caller.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace pleat::allocator {

class ZeroedMapping {
 public:
  ZeroedMapping() noexcept = default;
  ZeroedMapping(const ZeroedMapping&) = delete;
  ZeroedMapping& operator=(const ZeroedMapping&) = delete;
  ~ZeroedMapping() { reset(); }

  // Returns false, with errno unchanged, if memory is short.
  [[nodiscard]] bool map(std::size_t bytes) noexcept {
    if (!reserve(bytes)) return false;
    if (!open(0, bytes)) reset();
    return data_ != nullptr;
  }
  // The same without access, until open(): accessible pages count against RLIMIT_DATA.
  [[nodiscard]] bool reserve(std::size_t bytes) noexcept {
    reset();
    const int saved = errno;
    void* p = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
      data_ = p;
      bytes_ = bytes;
      // madvise() fails where mlockall(MCL_FUTURE) makes the kernel fill every writable mapping at
      // once. mlock2() then locks pages as they are touched.
      if (::madvise(p, bytes, MADV_DONTNEED) != 0) ::mlock2(p, bytes, MLOCK_ONFAULT);
    }
    errno = saved;
    return data_ != nullptr;
  }
  // Makes the pages of [begin, end) accessible. Returns false, with errno unchanged, if memory is
  // short.
  [[nodiscard]] bool open(std::size_t begin, std::size_t end) noexcept {
    const int saved = errno;
    const std::size_t first = begin & ~(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) - 1);
    const bool opened = ::mprotect(data() + first, end - first, PROT_READ | PROT_WRITE) == 0;
    errno = saved;
    return opened;
  }
  void reset() noexcept {
    if (data_ != nullptr) {
      const int saved = errno;
      ::munmap(data_, bytes_);
      errno = saved;
    }
    data_ = nullptr;
    bytes_ = 0;
  }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace pleat::allocator

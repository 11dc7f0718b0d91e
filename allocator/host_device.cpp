#include "allocator/host_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace pleat::allocator {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// The kernel hands out 4 KiB where there are no huge pages, but counting those one by one buys nothing.
constexpr std::size_t kAccountingBytes = std::size_t{64} << 10;

class ErrnoGuard {
 public:
  ErrnoGuard() noexcept : saved_(errno) {}
  ~ErrnoGuard() { errno = saved_; }
  ErrnoGuard(const ErrnoGuard&) = delete;
  ErrnoGuard& operator=(const ErrnoGuard&) = delete;

 private:
  int saved_;
};

// Plain read(2) into the caller's buffer: no stdio, no allocation, as this may run during loading.
void read_small_file(const char* path, char* text, std::size_t capacity) noexcept {
  text[0] = '\0';
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = ::read(fd, text, capacity - 1);
  text[n > 0 ? n : 0] = '\0';
  ::close(fd);
}

bool huge_pages_on_request() noexcept {
  char text[64];
  read_small_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
  return std::strstr(text, "[always]") != nullptr || std::strstr(text, "[madvise]") != nullptr;
}

bool address_space_is_free() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return false;
  char text[16];
  read_small_file("/proc/sys/vm/overcommit_memory", text, sizeof text);
  return text[0] != '2';  // strict accounting charges reservations even with MAP_NORESERVE
}

}  // namespace

HostDevice::HostDevice(DeviceIndex index) noexcept : index_(index) {
  const ErrnoGuard guard;
  capabilities_.host_accessible = true;
  capabilities_.returns_pages = true;
  capabilities_.asynchronous = false;
  capabilities_.reserves_freely = address_space_is_free();
  capabilities_.page_bytes = kAccountingBytes;
  if (huge_pages_on_request()) capabilities_.huge_page_bytes = kHugePageBytes;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    capabilities_.memory_bytes = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  }
}

void* HostDevice::reserve_segment(std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  if (bytes == 0 || bytes > SIZE_MAX - kHugePageBytes) return nullptr;
  const std::size_t mapped = bytes + kHugePageBytes;
  void* raw = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t base = (start + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  // Unmapping the overhang matters under ulimit -v. The tail is cut to whole kernel pages; `bytes`
  // is a multiple of page_bytes, so it is one already.
  if (base > start) ::munmap(raw, base - start);
  const std::size_t tail = start + mapped - (base + bytes);
  if (tail > 0) ::munmap(reinterpret_cast<void*>(base + bytes), tail);
  auto* segment = reinterpret_cast<void*>(base);
  if (capabilities_.huge_page_bytes != 0) ::madvise(segment, bytes, MADV_HUGEPAGE);
  return segment;
}

void HostDevice::release_segment(void* base, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  ::munmap(base, bytes);
}

bool HostDevice::release_pages(void* begin, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  return ::madvise(begin, bytes, MADV_DONTNEED) == 0;
}

}  // namespace pleat::allocator

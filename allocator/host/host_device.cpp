#include "allocator/host/host_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#ifndef MREMAP_DONTUNMAP  // glibc before 2.32
#define MREMAP_DONTUNMAP 4
#endif

namespace pleat::allocator {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kMostMoved = 16 * kHugePageBytes;
constexpr int kMostFailures = 16;
// The kernel hands out 4 KiB where there are no huge pages, but counting those one by one buys
// nothing.
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

// Maps a range of a segment without pages anew. The kernel joins a new mapping with those beside
// it; one that pages were moved to or from it keeps apart, and a process may have 65530 of them.
void map_anew(void* begin, std::size_t bytes) noexcept {
  if (::mmap(begin, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED) {
    ::madvise(begin, bytes, MADV_HUGEPAGE);
  }
}

// `from` stays mapped (Linux 5.7 and later), so another thread's mmap() cannot get it.
bool remap(void* from, void* to, std::size_t bytes) noexcept {
  return ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) !=
         MAP_FAILED;
}

// Addresses for `bytes`, aligned to huge pages, mapped without memory. nullptr if there are none.
std::byte* map_aligned(std::size_t bytes) noexcept {
  const std::size_t mapped = bytes + kHugePageBytes;
  void* raw = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t base = (start + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  if (base > start) ::munmap(raw, base - start);
  const std::size_t tail = start + mapped - (base + bytes);
  if (tail > 0) ::munmap(reinterpret_cast<void*>(base + bytes), tail);
  return reinterpret_cast<std::byte*>(base);
}

// Whether a huge page that was split comes back whole after all of it was given back at once: the
// kernel must free the page table as well (Linux 6.14 and later do, where built so). No file says
// it, so one huge page is tried. False where in doubt.
bool huge_pages_rejoin() noexcept {
  std::byte* const page = map_aligned(kHugePageBytes);
  if (page == nullptr) return false;
  // The last bytes tell: a touch of the first ones brings them only with a huge page.
  const auto last_is_resident = [&] {
    unsigned char resident = 0;
    const long small = ::sysconf(_SC_PAGESIZE);
    return small > 0 &&
           ::mincore(page + kHugePageBytes - small, static_cast<std::size_t>(small), &resident) ==
               0 &&
           (resident & 1) != 0;
  };
  const auto touch_first = [&] { *static_cast<volatile std::byte*>(page) = std::byte{1}; };
  bool rejoins = ::madvise(page, kHugePageBytes, MADV_HUGEPAGE) == 0;
  if (rejoins) {
    touch_first();
    rejoins = last_is_resident() && ::madvise(page, kAccountingBytes, MADV_DONTNEED) == 0 &&
              ::madvise(page, kHugePageBytes, MADV_DONTNEED) == 0 && !last_is_resident();
  }
  if (rejoins) {
    touch_first();
    rejoins = last_is_resident();
  }
  ::munmap(page, kHugePageBytes);
  return rejoins;
}

bool address_space_is_free() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return false;
  char text[16];
  read_small_file("/proc/sys/vm/overcommit_memory", text, sizeof text);
  return text[0] != '2';  // strict accounting charges reservations even with MAP_NORESERVE
}

}  // namespace

HostDevice::HostDevice(DeviceIndex index) noexcept : index_(index), process_(::getpid()) {
  const ErrnoGuard guard;
  capabilities_.host_accessible = true;
  capabilities_.returns_pages = true;
  capabilities_.reserves_freely = address_space_is_free();
  capabilities_.page_bytes = kAccountingBytes;
  if (huge_pages_on_request()) {
    capabilities_.huge_page_bytes = kHugePageBytes;
    if (capabilities_.reserves_freely) between_ = map_aligned(kMostMoved);
    if (between_ != nullptr && remap(between_, between_ + kHugePageBytes, kHugePageBytes)) {
      capabilities_.move_bytes = kMostMoved;
    }
    capabilities_.huge_pages_rejoin = capabilities_.move_bytes != 0 || huge_pages_rejoin();
  }
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    capabilities_.memory_bytes = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  }
}

HostDevice::~HostDevice() {
  if (between_ != nullptr) ::munmap(between_, kMostMoved);
}

// The kernel fills the highest gap it finds from above. So a segment lies at the low end of a gap
// that was found for all of its room, and what is mapped later meets it only when the gap is full.
// Holding the whole room instead would count against an RLIMIT_AS that the job sets itself later.
void* HostDevice::reserve_segment(std::size_t bytes, std::size_t room) noexcept {
  const ErrnoGuard guard;
  if (bytes == 0 || room < bytes || room > SIZE_MAX - kHugePageBytes) return nullptr;
  std::byte* const segment = map_aligned(room);
  if (segment == nullptr) return nullptr;
  if (room > bytes) ::munmap(segment + bytes, room - bytes);
  if (capabilities_.huge_page_bytes != 0) ::madvise(segment, bytes, MADV_HUGEPAGE);
  return segment;
}

bool HostDevice::extend_segment(void* base, std::size_t bytes, std::size_t more) noexcept {
  const ErrnoGuard guard;
  void* const end = static_cast<std::byte*>(base) + bytes;
  void* const added =
      ::mmap(end, more, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (added == MAP_FAILED) return false;
  if (added != end) {  // a kernel before 4.17 takes the address as a hint
    ::munmap(added, more);
    return false;
  }
  if (capabilities_.huge_page_bytes != 0) ::madvise(end, more, MADV_HUGEPAGE);
  return true;
}

void HostDevice::release_segment(void* base, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  ::munmap(base, bytes);
}

bool HostDevice::release_pages(void* begin, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  if (::madvise(begin, bytes, MADV_DONTNEED) != 0) return false;
  const auto unaligned = reinterpret_cast<std::uintptr_t>(begin) | bytes;
  if (may_move_pages() && unaligned % kHugePageBytes == 0) map_anew(begin, bytes);
  return true;
}

// What a child of fork() maps anew does not join what it has got from its parent.
bool HostDevice::may_move_pages() const noexcept {
  return capabilities_.move_bytes != 0 && between_ != nullptr && ::getpid() == process_;
}

// By way of other addresses: the kernel unmaps the target before it finds something wrong with the
// source (a part of it has been locked or bound to a node, or addresses are limited by now), and
// `to` must not be lost. Those between may be another's then.
bool HostDevice::move_pages(void* from, void* to, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  if (bytes > kMostMoved || !may_move_pages()) return false;
  const bool away = remap(from, between_, bytes);
  if (!away || !remap(between_, to, bytes)) {
    if (away) remap(between_, from, bytes);
    between_ = ++failures_ < kMostFailures ? map_aligned(kMostMoved) : nullptr;
    return false;
  }
  map_anew(from, bytes);
  return true;
}

}  // namespace pleat::allocator

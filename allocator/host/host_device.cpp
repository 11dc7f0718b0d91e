#include "allocator/host/host_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#ifndef MREMAP_DONTUNMAP  // glibc before 2.32
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLLAPSE  // glibc before 2.37
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED  // glibc before 2.36
#define MADV_DONTNEED_LOCKED 24
#endif

namespace pleat::allocator {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kMostMoved = 16 * kHugePageBytes;
constexpr int kMostFailures = 16;
// Without huge pages the kernel hands out pages of 4 KiB; counting each would gain little.
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

// Reads with plain read(2) into the caller's buffer: no stdio and no allocation, because this can
// run while the library is being loaded.
void read_small_file(const char* path, char* text, std::size_t capacity) noexcept {
  text[0] = '\0';
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = ::read(fd, text, capacity - 1);
  text[n > 0 ? n : 0] = '\0';
  ::close(fd);
}

enum class Transparent { kNever, kOnRequest, kAlways };
Transparent transparent_huge_pages() noexcept {
  char text[64];
  read_small_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
  if (std::strstr(text, "[always]") != nullptr) return Transparent::kAlways;
  return std::strstr(text, "[madvise]") != nullptr ? Transparent::kOnRequest : Transparent::kNever;
}

bool address_space_is_free() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return false;
  char text[16];
  read_small_file("/proc/sys/vm/overcommit_memory", text, sizeof text);
  return text[0] != '2';  // strict accounting charges reservations even with MAP_NORESERVE
}

}  // namespace

HostDevice::HostDevice(DeviceIndex index, HugePages huge_pages, const HostCalls& calls) noexcept
    : index_(index), calls_(calls), process_(::getpid()), advice_(kNone) {
  const ErrnoGuard guard;
  capabilities_.host_accessible = true;
  capabilities_.returns_pages = true;
  capabilities_.reserves_freely = address_space_is_free();
  capabilities_.page_bytes = kAccountingBytes;
  const Transparent transparent = transparent_huge_pages();
  if (huge_pages == HugePages::kNever && transparent == Transparent::kAlways) {
    advice_ = MADV_NOHUGEPAGE;
  }
  if (huge_pages != HugePages::kNever && transparent != Transparent::kNever) {
    capabilities_.huge_page_bytes = kHugePageBytes;
    capabilities_.joins_pages =
        huge_pages == HugePages::kAuto && transparent == Transparent::kOnRequest;
    if (!capabilities_.joins_pages) advice_ = MADV_HUGEPAGE;
    if (capabilities_.reserves_freely) between_ = map_aligned(kMostMoved);
    if (between_ != nullptr) {
      if (remap(between_, between_ + kHugePageBytes, kHugePageBytes)) {
        capabilities_.move_bytes = kMostMoved;
      } else {
        between_ = nullptr;  // another owner can have mapped a part of the range by now
      }
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
  if (between_ != nullptr) calls_.munmap(between_, kMostMoved);
}

// A range of `bytes`, aligned to huge pages, mapped without memory or access; nullptr on failure.
std::byte* HostDevice::map_aligned(std::size_t bytes) const noexcept {
  const std::size_t mapped = bytes + kHugePageBytes;
  void* raw =
      calls_.mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t base = (start + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  if (base > start) calls_.munmap(raw, base - start);
  const std::size_t tail = start + mapped - (base + bytes);
  if (tail > 0) calls_.munmap(reinterpret_cast<void*>(base + bytes), tail);
  return reinterpret_cast<std::byte*>(base);
}

// Whether a split huge page becomes whole again after all of it was released at once. For that the
// kernel must free the page table as well; Linux 6.14 and later do, if so configured. No file
// reports the setting, so this function tries one huge page. False if in doubt.
bool HostDevice::huge_pages_rejoin() noexcept {
  std::byte* const page = map_aligned(kHugePageBytes);
  if (page == nullptr) return false;
  // Touching the first bytes makes the last ones resident only on a huge page.
  const auto last_is_resident = [&] {
    unsigned char resident = 0;
    const long small = ::sysconf(_SC_PAGESIZE);
    return small > 0 &&
           calls_.mincore(page + kHugePageBytes - small, static_cast<std::size_t>(small),
                          &resident) == 0 &&
           (resident & 1) != 0;
  };
  const auto touch_first = [&] { *static_cast<volatile std::byte*>(page) = std::byte{1}; };
  bool rejoins =
      open(page, kHugePageBytes) && calls_.madvise(page, kHugePageBytes, MADV_HUGEPAGE) == 0;
  if (rejoins) {
    touch_first();
    rejoins = last_is_resident() && calls_.madvise(page, kAccountingBytes, MADV_DONTNEED) == 0 &&
              calls_.madvise(page, kHugePageBytes, MADV_DONTNEED) == 0 && !last_is_resident();
  }
  if (rejoins) {
    touch_first();
    rejoins = last_is_resident();
  }
  calls_.munmap(page, kHugePageBytes);
  return rejoins;
}

// The kernel fills the highest gap from above. So the segment is put at the low end of a gap that
// holds all of its room, and later mappings meet the segment only once the gap is full. Keeping the
// whole room mapped would count against an RLIMIT_AS that the job can set later.
void* HostDevice::reserve_segment(std::size_t bytes, std::size_t room) noexcept {
  const ErrnoGuard guard;
  if (bytes == 0 || room < bytes || room > SIZE_MAX - kHugePageBytes) return nullptr;
  std::byte* const segment = map_aligned(room);
  if (segment == nullptr) return nullptr;
  if (room > bytes) calls_.munmap(segment + bytes, room - bytes);
  if (!begin_use(segment, bytes)) {
    calls_.munmap(segment, bytes);
    return nullptr;
  }
  return segment;
}

bool HostDevice::extend_segment(void* base, std::size_t bytes, std::size_t more) noexcept {
  const ErrnoGuard guard;
  return map_missing(static_cast<std::byte*>(base) + bytes, more);
}

void HostDevice::release_segment(void* base, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  calls_.munmap(base, bytes);
}

// Maps `bytes` on trial. Also true if the kernel refuses even the addresses (RLIMIT_AS,
// RLIMIT_DATA, strict accounting): free memory of the pool can suffice.
bool HostDevice::would_promise(std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  const auto maps = [&](int flags) {
    void* const mapped = calls_.mmap(nullptr, bytes, PROT_NONE, flags, -1, 0);
    if (mapped == MAP_FAILED) return false;
    // The kernel promises memory only for writable ranges. Under mlockall() the mapping is locked,
    // and the kernel would fill a locked mapping once it is writable.
    calls_.munlock(mapped, bytes);
    const bool writable = calls_.mprotect(mapped, bytes, PROT_READ | PROT_WRITE) == 0;
    calls_.munmap(mapped, bytes);
    return writable;
  };
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  return maps(kFlags) || !maps(kFlags | MAP_NORESERVE);
}

Released HostDevice::release_pages(void* begin, std::size_t bytes, bool whole) noexcept {
  const ErrnoGuard guard;
  const auto unaligned = reinterpret_cast<std::uintptr_t>(begin) | bytes;
  if (unaligned % capabilities_.page_bytes != 0) return Released::kNothing;
  if (calls_.madvise(begin, bytes, MADV_DONTNEED) != 0) {
    if (!release_locked(begin, bytes)) return Released::kNothing;
    locked_ = true;
  }
  if (closes_) {
    close_pages(begin, bytes);
    return Released::kPages;
  }
  if (may_move_pages() && unaligned % kHugePageBytes == 0 && map_anew(begin, bytes, whole)) {
    return Released::kAnew;
  }
  return Released::kPages;
}

bool HostDevice::close_ranges() noexcept {
  rlimit limit{};
  closes_ = closes_ || (::getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
  return closes_;
}

void HostDevice::close_pages(void* begin, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  calls_.mprotect(begin, bytes, PROT_NONE);
}

bool HostDevice::open_pages(void* begin, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  return open(begin, bytes);
}

Joined HostDevice::join_pages(void* begin) noexcept {
  const ErrnoGuard guard;
  if (calls_.madvise(begin, kHugePageBytes, MADV_HUGEPAGE) != 0) return Joined::kNothing;
  if (!collapses_) return Joined::kLater;
  if (calls_.madvise(begin, kHugePageBytes, MADV_COLLAPSE) == 0) return Joined::kWhole;
  if (errno == EINVAL) collapses_ = false;  // before Linux 6.1; khugepaged joins the pages later
  return Joined::kLater;
}

bool HostDevice::expect_whole(void* begin, std::size_t bytes) noexcept {
  const ErrnoGuard guard;
  if (locked_ || !price_.pays(bytes / kHugePageBytes, [&] { return try_huge_page(); })) {
    return false;
  }
  return calls_.madvise(begin, bytes, MADV_HUGEPAGE) == 0;
}

// Measures the first touch of a huge page and of a few small ones. The thread's own CPU time
// excludes the rest of the machine.
HugePagePrice::Sample HostDevice::try_huge_page() noexcept {
  constexpr std::size_t kSmallTouches = 32;
  const long small = ::sysconf(_SC_PAGESIZE);
  std::byte* const mapped = map_aligned(2 * kHugePageBytes);
  if (small <= 0 || mapped == nullptr) return {};
  const auto now_ns = [&] {
    timespec now{};
    calls_.clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
  };
  const auto touch = [](std::byte* at) { *static_cast<volatile std::byte*>(at) = std::byte{1}; };
  HugePagePrice::Sample sample;
  if (open(mapped, 2 * kHugePageBytes) && !locked_ &&
      calls_.madvise(mapped, kHugePageBytes, MADV_HUGEPAGE) == 0) {
    const auto each = static_cast<std::size_t>(small);
    const double begin = now_ns();
    touch(mapped);
    const double between = now_ns();
    for (std::size_t i = 0; i < kSmallTouches; ++i) touch(mapped + kHugePageBytes + i * each);
    const double end = now_ns();
    sample.huge_ns = between - begin;
    sample.small_ns = (end - between) * static_cast<double>(kHugePageBytes / each / kSmallTouches);
  }
  calls_.munmap(mapped, 2 * kHugePageBytes);
  return sample;
}

std::size_t HostDevice::look_at_pages(void* begin, std::size_t pages, bool* present) noexcept {
  const ErrnoGuard guard;
  static const auto small = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kAtOnce = 256;  // pages; the kernel itself takes 4096 small ones at once
  unsigned char there[kAtOnce * kAccountingBytes / 4096];
  const std::size_t each = kAccountingBytes / small;
  std::size_t bytes = 0;
  for (std::size_t page = 0; page < pages; page += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, pages - page);
    std::byte* const address = static_cast<std::byte*>(begin) + page * kAccountingBytes;
    if (calls_.mincore(address, count * kAccountingBytes, there) != 0) return SIZE_MAX;
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t parts = 0;
      for (std::size_t k = 0; k < each; ++k) parts += there[i * each + k] & 1;
      present[page + i] = parts != 0;
      bytes += parts * small;
    }
  }
  return bytes;
}

// Releases locked pages, which MADV_DONTNEED refuses. Pages touched there again are locked again.
bool HostDevice::release_locked(void* begin, std::size_t bytes) const noexcept {
  if (calls_.madvise(begin, bytes, MADV_DONTNEED_LOCKED) == 0) return true;
  if (calls_.munlock(begin, bytes) != 0) return false;  // before Linux 5.18
  const bool gone = calls_.madvise(begin, bytes, MADV_DONTNEED) == 0;
  calls_.mlock2(begin, bytes, MLOCK_ONFAULT);
  return gone;
}

// False in a child of fork(), whose new mappings do not merge with those of its parent. Also false
// if memory is locked, because locked and unlocked mappings do not merge.
bool HostDevice::may_move_pages() const noexcept {
  return capabilities_.move_bytes != 0 && between_ != nullptr && !locked_ && ::getpid() == process_;
}

// Makes a range that was mapped without access usable, and leaves it without pages. Under
// mlockall(MCL_FUTURE) the kernel fills a writable mapping at once. No flag reports MCL_FUTURE, but
// a locked range refuses MADV_DONTNEED; the range is then locked page by page as it is touched.
bool HostDevice::open(void* begin, std::size_t bytes) noexcept {
  if (calls_.madvise(begin, bytes, MADV_DONTNEED) != 0) {
    calls_.mlock2(begin, bytes, MLOCK_ONFAULT);
    locked_ = true;
  }
  if (calls_.mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  if (advice_ != kNone) calls_.madvise(begin, bytes, advice_);
  return true;
}

// The same for a new range, unless it stays closed.
bool HostDevice::begin_use(void* begin, std::size_t bytes) noexcept {
  return closes_ || open(begin, bytes);
}

// `from` stays mapped (Linux 5.7 and later), so another thread's mmap() cannot get it. A failure
// can leave `to` unmapped: the kernel unmaps the target before it checks the source.
bool HostDevice::remap(void* from, void* to, std::size_t bytes) const noexcept {
  return calls_.mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) !=
         MAP_FAILED;
}

// Maps a range that is not mapped any more after a failed call. False if there are mappings in it.
bool HostDevice::map_missing(void* begin, std::size_t bytes) noexcept {
  void* const mapped =
      calls_.mmap(begin, bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  // Kernels before 4.17 take the address only as a hint.
  if (mapped == begin && begin_use(begin, bytes)) return true;
  calls_.munmap(mapped, bytes);
  return false;
}

// Maps a range without pages again. The kernel merges a new mapping with its neighbours, but not
// one that pages were moved to or from; and a process can have only 65530 mappings.
bool HostDevice::map_anew(void* begin, std::size_t bytes, bool whole) noexcept {
  if (calls_.mmap(begin, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    map_missing(begin, bytes);
    return false;
  }
  if (whole) calls_.madvise(begin, bytes, MADV_HUGEPAGE);
  // Under mlockall(MCL_FUTURE) the kernel has filled the new mapping.
  unsigned char resident = 0;
  if (calls_.mincore(begin, 1, &resident) == 0 && (resident & 1) != 0) {
    release_locked(begin, bytes);
    locked_ = true;
  }
  return true;
}

// A new scratch range: the old one can have another owner. nullptr after kMostFailures failures.
std::byte* HostDevice::other_scratch() noexcept {
  return ++failures_ < kMostFailures ? map_aligned(kMostMoved) : nullptr;
}

// Moves through scratch addresses. If the source cannot be moved (a part is locked or bound to a
// node, or address space has become limited), the scratch range is lost and not `to`.
bool HostDevice::move_pages(void* from, void* to, std::size_t bytes, bool whole) noexcept {
  const ErrnoGuard guard;
  if (bytes > kMostMoved || !may_move_pages()) return false;
  if (!remap(from, between_, bytes)) {
    between_ = other_scratch();
    return false;
  }
  if (!remap(between_, to, bytes)) {
    map_missing(to, bytes);
    if (!remap(between_, from, bytes)) map_missing(from, bytes);
    calls_.munmap(between_, kMostMoved);  // with the pages, if they could not be moved back
    // Under a limit on addresses, the munmap() freed enough for these mappings.
    map_missing(to, bytes);
    map_missing(from, bytes);
    between_ = other_scratch();
    return false;
  }
  map_anew(from, bytes, whole);
  return true;
}

}  // namespace pleat::allocator

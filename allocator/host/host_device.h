// HostDevice implements Device for the host. Segments are anonymous private mappings; pages become
// resident on first touch and are released with MADV_DONTNEED. Memory in long use is faster in huge
// pages, but the first written byte of a huge page costs 2 MiB, and its first touch up to 10 ms in
// a virtual machine. If the job locks its memory (mlockall), pages are locked when touched and
// still released.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <cstddef>

#include "allocator/host/device.h"
#include "allocator/host/huge_page_price.h"

namespace pleat::allocator {

// The table of the system calls that the host device makes on memory. A test replaces entries to
// check the state of a segment when the kernel refuses a call. Each entry has the parameters, the
// result and the errno of the function that it is named after.
struct HostCalls {
  void* (*mmap)(void*, std::size_t, int, int, int, ::off_t) noexcept = ::mmap;
  int (*munmap)(void*, std::size_t) noexcept = ::munmap;
  int (*mprotect)(void*, std::size_t, int) noexcept = ::mprotect;
  int (*madvise)(void*, std::size_t, int) noexcept = ::madvise;
  int (*mlock2)(const void*, std::size_t, unsigned) noexcept = ::mlock2;
  int (*munlock)(const void*, std::size_t) noexcept = ::munlock;
  int (*mincore)(void*, std::size_t, unsigned char*) noexcept = ::mincore;
  int (*clock_gettime)(clockid_t, timespec*) noexcept = ::clock_gettime;  // measures first touches
  void* (*mremap)(void* from, std::size_t, std::size_t, int, void* to) noexcept =
      [](void* from, std::size_t had, std::size_t wanted, int flags, void* to) noexcept {
        return ::mremap(from, had, wanted, flags, to);
      };
};

enum class HugePages : std::uint8_t {
  kAuto,    // small pages first, joined where blocks are written densely; huge pages at once for
            // sizes known to be dense, if that pays, and wherever the system uses huge pages by
            // default
  kAlways,  // huge pages at once
  kNever,
};

class HostDevice final : public Device {
 public:
  // Reads the current limits: transparent huge pages, RLIMIT_AS, vm.overcommit_memory, memory.
  explicit HostDevice(DeviceIndex index = {-1}, HugePages huge_pages = HugePages::kAuto,
                      const HostCalls& calls = {}) noexcept;
  ~HostDevice() override;
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  [[nodiscard]] DeviceIndex index() const noexcept override { return index_; }
  [[nodiscard]] const DeviceCapabilities& capabilities() const noexcept override {
    return capabilities_;
  }

  // Aligned to 2 MiB whatever page_bytes is.
  [[nodiscard]] void* reserve_segment(std::size_t bytes, std::size_t room) noexcept override;
  bool extend_segment(void* base, std::size_t bytes, std::size_t more) noexcept override;
  void release_segment(void* base, std::size_t bytes) noexcept override;
  // Like malloc() for the same request: vm.overcommit_memory decides, a cgroup's limit does not.
  [[nodiscard]] bool would_promise(std::size_t bytes) noexcept override;
  Released release_pages(void* begin, std::size_t bytes, bool whole) noexcept override;
  bool close_ranges() noexcept override;
  void close_pages(void* begin, std::size_t bytes) noexcept override;
  [[nodiscard]] bool open_pages(void* begin, std::size_t bytes) noexcept override;
  Joined join_pages(void* begin) noexcept override;
  bool expect_whole(void* begin, std::size_t bytes) noexcept override;
  std::size_t look_at_pages(void* begin, std::size_t pages, bool* present) noexcept override;
  bool move_pages(void* from, void* to, std::size_t bytes, bool whole) noexcept override;

 private:
  static constexpr int kNone = -1;
  [[nodiscard]] std::byte* map_aligned(std::size_t bytes) const noexcept;
  [[nodiscard]] bool huge_pages_rejoin() noexcept;
  [[nodiscard]] HugePagePrice::Sample try_huge_page() noexcept;
  [[nodiscard]] bool may_move_pages() const noexcept;
  bool remap(void* from, void* to, std::size_t bytes) const noexcept;
  bool open(void* begin, std::size_t bytes) noexcept;
  bool begin_use(void* begin, std::size_t bytes) noexcept;
  bool map_missing(void* begin, std::size_t bytes) noexcept;
  bool map_anew(void* begin, std::size_t bytes, bool whole) noexcept;
  bool release_locked(void* begin, std::size_t bytes) const noexcept;
  [[nodiscard]] std::byte* other_scratch() noexcept;

  DeviceIndex index_;
  HostCalls calls_;
  int process_;                   // the process that called the constructor
  std::byte* between_ = nullptr;  // see move_pages()
  int failures_ = 0;              // failed moves
  bool locked_ = false;           // the job uses mlock() or mlockall()
  bool closes_ = false;           // see close_ranges()
  int advice_;                    // madvise() for new mappings; kNone: none
  bool collapses_ = true;         // false once the kernel has refused MADV_COLLAPSE as unknown
  HugePagePrice price_;
  DeviceCapabilities capabilities_;
};

}  // namespace pleat::allocator

// Device is the interface of the pool to address ranges and pages. host_device.h implements the
// host. Every call is on a slow path (segments, pages), hence plain virtuals; the pool's fast path
// touches only its own metadata. Capability flags replace #ifdef at use sites.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"

namespace pleat::allocator {

struct DeviceCapabilities {
  bool host_accessible = false;  // the CPU can read and write blocks
  bool returns_pages = false;    // release_pages() really returns memory inside a segment
  // A range far larger than memory costs no memory until touched. False under a limit on addresses
  // or commit charge (ulimit -v, vm.overcommit_memory=2): the pool then also releases free
  // segments.
  bool reserves_freely = false;
  std::size_t page_bytes = 4096;  // unit of residency; a power of two
  // A power of two. If above page_bytes, the first touch of an untouched, aligned range of this
  // size makes all of it resident. Releasing a part of it loses the speed of a huge page.
  std::size_t huge_page_bytes = 0;
  // A huge page that was released in part becomes whole again after all of it was released at once.
  bool huge_pages_rejoin = false;
  // The pages of a huge page become resident singly, until join_pages() joins them. The exception:
  // expect_whole() was called before the first page became resident.
  bool joins_pages = false;
  std::size_t move_bytes = 0;    // most bytes that move_pages() can move at once; 0: not supported
  std::size_t memory_bytes = 0;  // physical memory of the device; 0: unknown
};

// Result of release_pages().
enum class Released : std::uint8_t {
  kNothing,
  kPages,  // the pages were released; the setting of `whole` there is unchanged
  kAnew,   // the pages were released, and `whole` holds there from now on
};

// Result of join_pages().
enum class Joined : std::uint8_t {
  kNothing,
  kLater,  // the pages are unchanged; after all are released at once, a huge page replaces them
  kWhole,  // the pages are one huge page, and become resident as one from now on
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceIndex index() const noexcept = 0;
  [[nodiscard]] virtual const DeviceCapabilities& capabilities() const noexcept = 0;

  // Reserves an address range of `bytes`, a multiple of page_bytes and of huge_page_bytes, aligned
  // to both. Pages become resident on first touch if returns_pages is set, else at once. `room` (>=
  // bytes, same multiples) is the size to which the segment can grow; it is a hint for the choice
  // of the address. nullptr if there is no such range. Leaves errno unchanged.
  [[nodiscard]] virtual void* reserve_segment(std::size_t bytes, std::size_t room) noexcept = 0;
  // Adds `more` bytes, same multiples, at the end of a segment of `bytes`. False, without a change,
  // if the addresses are taken or a limit is reached. Called only if reserves_freely and
  // returns_pages are set.
  virtual bool extend_segment(void* base, std::size_t bytes, std::size_t more) noexcept = 0;
  // Releases a segment of `bytes`, pages and addresses.
  virtual void release_segment(void* base, std::size_t bytes) noexcept = 0;

  // Whether the device would promise `bytes` of memory to one request. Address ranges are granted
  // freely, but touching more of them than there is memory kills the process.
  [[nodiscard]] virtual bool would_promise(std::size_t /*bytes*/) noexcept { return true; }

  // Releases the pages of a range inside a segment; the contents are lost, the range stays usable.
  // `whole`: huge pages must become resident whole there from now on. That holds already in all or
  // none of the range.
  virtual Released release_pages(void* begin, std::size_t bytes, bool whole) noexcept = 0;

  // For a limit on the data of the process (RLIMIT_DATA), which counts what is accessible: from
  // this call on, ranges without pages are inaccessible, namely new segments, extensions and what
  // release_pages() has released. False, without an effect, if no such limit is in force.
  virtual bool close_ranges() noexcept { return false; }
  // Makes a range without pages inaccessible, or accessible again. open_pages() returns false if
  // the limit is reached.
  virtual void close_pages(void* /*begin*/, std::size_t /*bytes*/) noexcept {}
  [[nodiscard]] virtual bool open_pages(void* /*begin*/, std::size_t /*bytes*/) noexcept {
    return true;
  }

  // Makes one huge page of the pages of a range of huge_page_bytes; the contents are kept. Called
  // only if joins_pages is set. Other threads can use the memory meanwhile.
  virtual Joined join_pages(void* /*begin*/) noexcept { return Joined::kNothing; }

  // Makes huge pages become resident whole from now on in a range of huge pages, none of which is
  // resident. Called only if joins_pages is set. False, with the range unchanged, if a huge page
  // costs much more than its small pages.
  virtual bool expect_whole(void* /*begin*/, std::size_t /*bytes*/) noexcept { return false; }

  // Sets present[i] to whether any part of page i is resident, for `pages` pages from `begin` on.
  // Returns the resident bytes, SIZE_MAX if the device cannot report them.
  virtual std::size_t look_at_pages(void* /*begin*/, std::size_t /*pages*/,
                                    bool* /*present*/) noexcept {
    return SIZE_MAX;
  }

  // Moves the pages of [from, from + bytes) to [to, to + bytes): whole huge pages, at most
  // move_bytes, ranges that do not overlap. `to` has no pages before; `from` is left as after
  // release_pages(). Contents are undefined afterwards. False, with both ranges unchanged, if the
  // move fails. A move costs less than a release and new pages: it zeroes no page and causes no
  // page fault. `whole`: huge pages become resident whole in all of `from` (else in none); this
  // holds for `from` afterwards and moves along with the pages. Calls must not overlap.
  virtual bool move_pages(void* from, void* to, std::size_t bytes, bool whole) noexcept = 0;
};

}  // namespace pleat::allocator

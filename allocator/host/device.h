// What the pool needs of a device: address ranges and pages. host_device.h implements the host.
// Every call here is on a slow path (segments, pages), hence plain virtuals; the pool's fast path
// never leaves its own metadata. Capability flags replace #ifdef at use sites.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"

namespace pleat::allocator {

struct DeviceCapabilities {
  bool host_accessible = false;  // the CPU may read and write blocks
  bool returns_pages = false;    // release_pages() really gives memory back inside a segment
  // A range far larger than memory costs nothing until touched. False where address space or commit
  // charge is limited (ulimit -v, vm.overcommit_memory=2): the pool then gives free segments back,
  // too.
  bool reserves_freely = false;
  std::size_t page_bytes = 4096;  // unit in which pages come and go; a power of two
  // A power of two. Where larger than page_bytes: an untouched range of this size, aligned to it,
  // comes whole at its first touch. Giving back only a part of it loses the speed of a huge page.
  std::size_t huge_page_bytes = 0;
  // A huge page that was given back in part comes whole again after all of it was given back at
  // once.
  bool huge_pages_rejoin = false;
  // The pages of a huge page come singly, until join_pages() has joined them or unless
  // expect_whole() was called before the first of them came.
  bool joins_pages = false;
  std::size_t move_bytes = 0;    // most that move_pages() can move at once; 0: it cannot move
  std::size_t memory_bytes = 0;  // physical memory of the device; 0: not known
};

// What release_pages() did.
enum class Released : std::uint8_t {
  kNothing,
  kPages,  // the pages went back; whether huge pages come whole there is unchanged
  kAnew,   // the pages went back, and `whole` holds there from now on
};

// What join_pages() did.
enum class Joined : std::uint8_t {
  kNothing,
  kLater,  // the pages are as they were; after all go back at once, a huge page comes in their
           // place
  kWhole,  // the pages are one huge page, and come as one from now on
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceIndex index() const noexcept = 0;
  [[nodiscard]] virtual const DeviceCapabilities& capabilities() const noexcept = 0;

  // Gets an address range of `bytes`, a multiple of page_bytes and of huge_page_bytes, aligned to
  // both. Pages arrive on first touch where returns_pages is set, at once elsewhere. `room` (>=
  // bytes, same multiples) says how far the segment may grow; it is a hint for the choice of the
  // address. nullptr if there is no such range. Leaves errno as it was.
  [[nodiscard]] virtual void* reserve_segment(std::size_t bytes, std::size_t room) noexcept = 0;
  // Adds `more` bytes, same multiples, at the end of a segment of `bytes`. False, with nothing
  // changed, if the addresses are taken or a limit is reached. Called only where reserves_freely
  // and returns_pages are set.
  virtual bool extend_segment(void* base, std::size_t bytes, std::size_t more) noexcept = 0;
  // Gives a segment of `bytes` back, pages and addresses.
  virtual void release_segment(void* base, std::size_t bytes) noexcept = 0;

  // Whether the device would promise `bytes` of memory to one request. Address ranges are granted
  // freely; a process that touches more of them than there is memory is killed.
  [[nodiscard]] virtual bool would_promise(std::size_t /*bytes*/) noexcept { return true; }

  // Gives the pages of a range inside a segment back; the contents are lost, the range stays
  // usable. `whole`: huge pages are to come whole there from now on. Either all of the range is so
  // already, or none of it.
  virtual Released release_pages(void* begin, std::size_t bytes, bool whole) noexcept = 0;

  // Makes one huge page of the pages of a range of huge_page_bytes; contents are kept. Called only
  // where joins_pages is set. Other threads may use the memory meanwhile.
  virtual Joined join_pages(void* /*begin*/) noexcept { return Joined::kNothing; }

  // Lets huge pages come whole from now on in a range of huge pages none of which is there. Called
  // only where joins_pages is set. False, with nothing changed, where a huge page costs much more
  // than its small pages.
  virtual bool expect_whole(void* /*begin*/, std::size_t /*bytes*/) noexcept { return false; }

  // Sets present[i] to whether any part of page i of `pages` from `begin` on is there. Returns the
  // bytes that are there, SIZE_MAX if the device does not know.
  virtual std::size_t look_at_pages(void* /*begin*/, std::size_t /*pages*/,
                                    bool* /*present*/) noexcept {
    return SIZE_MAX;
  }

  // Moves the pages of [from, from + bytes) to [to, to + bytes): whole huge pages, at most
  // move_bytes, ranges that do not overlap. `to` has no pages before; `from` is left as after
  // release_pages(). Contents are undefined afterwards. False, with nothing changed, if the move
  // fails. Moving is cheaper than giving pages back and touching new ones: nothing is zeroed,
  // nothing faults. `whole`: huge pages come whole in all of `from` (else in none); this holds for
  // `from` afterwards and goes with the pages. One call at a time.
  virtual bool move_pages(void* from, void* to, std::size_t bytes, bool whole) noexcept = 0;
};

}  // namespace pleat::allocator

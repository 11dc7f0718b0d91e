// What the pool needs of a device: address ranges and pages. The host device lives in
// host_device.h. Every call here is on a slow path (segments, pages), hence plain virtuals; the
// pool's fast path never leaves its own metadata. Capability flags stand in for #ifdef at use
// sites.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"

namespace pleat::allocator {

struct DeviceCapabilities {
  bool host_accessible = false;  // the CPU may read and write blocks
  bool returns_pages = false;    // release_pages() really gives memory back inside a segment
  // A range far larger than memory costs nothing until touched. False where address space or commit
  // charge is limited (ulimit -v, vm.overcommit_memory=2): free segments are then given back, too.
  bool reserves_freely = false;
  std::size_t page_bytes = 4096;  // unit in which pages come and go; a power of two
  // Where larger than page_bytes: an untouched range of this size, aligned to it, comes whole at
  // its first touch, and giving back less than all of it costs the speed of a huge page. A power of
  // two.
  std::size_t huge_page_bytes = 0;
  // Such a range of which parts went back alone comes whole again once all of it went back at once.
  bool huge_pages_rejoin = false;
  // The pages of such a range come singly until join_pages() has made a huge page of them, or
  // expect_whole() was called before the first of them came.
  bool joins_pages = false;
  std::size_t move_bytes = 0;    // what move_pages() can move at once; 0: it cannot
  std::size_t memory_bytes = 0;  // physical memory of the device; 0: not known
};

// What release_pages() did.
enum class Released : std::uint8_t {
  kNothing,
  kPages,  // whether huge pages come whole there is as it was
  kAnew,   // and that is as was asked for
};

// What join_pages() did.
enum class Joined : std::uint8_t {
  kNothing,
  kLater,  // the pages are as they were, but if all go back at once a huge page comes in their
           // place
  kWhole,  // they are a huge page, and come as one from now on
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceIndex index() const noexcept = 0;
  [[nodiscard]] virtual const DeviceCapabilities& capabilities() const noexcept = 0;

  // Gets an address range of `bytes`, a multiple of page_bytes and of huge_page_bytes, aligned so.
  // Pages arrive on first touch where returns_pages is set, at once elsewhere. nullptr if there is
  // none to be had; never throws, leaves errno as it was. `room` (>= bytes, as aligned): how far it
  // may want to grow; a hint for the choice of the address.
  [[nodiscard]] virtual void* reserve_segment(std::size_t bytes, std::size_t room) noexcept = 0;
  // Adds `more` bytes, aligned as above, at the end of a segment of `bytes`. False, and nothing has
  // changed, if the addresses are taken or a limit is reached. Only asked for where reserves_freely
  // and returns_pages are set.
  virtual bool extend_segment(void* base, std::size_t bytes, std::size_t more) noexcept = 0;
  virtual void release_segment(void* base, std::size_t bytes) noexcept = 0;

  // Whether the device would promise so much memory to one request. A segment's range may be had
  // for the asking, and whoever touches what was never to be had is killed for it.
  [[nodiscard]] virtual bool would_promise(std::size_t /*bytes*/) noexcept { return true; }

  // Gives the pages of a range inside a segment back; contents are lost, the range stays usable.
  // `whole`: huge pages may come whole there. It is as it was before for all of the range, or
  // should be otherwise for all of it.
  virtual Released release_pages(void* begin, std::size_t bytes, bool whole) noexcept = 0;

  // Makes one huge page of the pages of a range of that size, which keep what they hold. Only asked
  // for where joins_pages is set. May be called for memory that others use meanwhile.
  virtual Joined join_pages(void* /*begin*/) noexcept { return Joined::kNothing; }

  // Huge pages come whole from now on in a range of huge pages of which nothing is there. Only
  // asked for where joins_pages is set. False, and nothing has changed, where they cost much more
  // than small ones to come.
  virtual bool expect_whole(void* /*begin*/, std::size_t /*bytes*/) noexcept { return false; }

  // Tells of each of the `pages` pages from `begin` on whether a part of it is there. Returns the
  // bytes that are, SIZE_MAX if it does not know.
  virtual std::size_t look_at_pages(void* /*begin*/, std::size_t /*pages*/,
                                    bool* /*present*/) noexcept {
    return SIZE_MAX;
  }

  // Makes the pages of [from, from + bytes) those of [to, to + bytes): whole huge pages of segments
  // that do not overlap, at most move_bytes. `to` had none; `from` is left as after
  // release_pages(). What the pages hold afterwards is not said. False, and nothing has changed,
  // if it cannot be done. Cheaper than giving pages back and touching new ones: nothing is zeroed,
  // nothing faults. Whether huge pages come whole, `whole`, is the same for all of `from`, stays so
  // there, and goes with the pages. Calls must not overlap.
  virtual bool move_pages(void* from, void* to, std::size_t bytes, bool whole) noexcept = 0;
};

}  // namespace pleat::allocator

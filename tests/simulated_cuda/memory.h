// Memory of the simulated devices. Its addresses are a range that the host cannot touch; the
// simulation reaches the same bytes at an alias. Physical memory is one file in memory, so that it
// can be mapped twice and given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pleat::simulated {

inline constexpr std::size_t kGranule = std::size_t{2} << 20;  // of mappings

void reserve_addresses();

struct Physical;  // memory of a device that may be mapped

struct Range {
  char* begin = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  bool mapped_by_hand = false;  // cuMemMap, not an allocation
  Physical* physical = nullptr;
};

struct MemoryUse {
  std::size_t now = 0;
  std::size_t peak = 0;
};
MemoryUse memory_use(int device);
MemoryUse pinned_use();

// ---- allocations ----
int allocate(int device, std::size_t bytes, void** address);
// The allocation that begins there; nullptr if none does.
const Range* allocation_at(const void* address);
void release(const Range* allocation);
// The mapped range that holds the address.
const Range* range_of(const void* address);
// The n-th next physical allocation fails; -1: none does.
void fail_allocation(int n);

// ---- mapping by hand ----
int reserve_range(std::size_t bytes, void** address);
int unreserve_range(const void* address, std::size_t bytes);
Physical* create_physical(int device, std::size_t bytes);
// False if it is no live handle.
bool release_physical(Physical* physical);
bool retain_physical(Physical* physical);
int device_of(const Physical* physical);
int map(void* address, std::size_t bytes, std::size_t offset, Physical* physical);
// Whole mappings only. Those that are taken away, in `gone`.
int unmap(void* address, std::size_t bytes, std::vector<Range>* gone);

// ---- pinned host memory ----
int allocate_pinned(std::size_t bytes, void** address);
int free_pinned(void* address);
int register_pinned(void* address, std::size_t bytes);
int unregister_pinned(void* address);
bool is_pinned(const void* address);

// ---- bytes ----
bool is_device_address(const void* address);
// Memory of devices or pinned: the oracle follows what devices do to it.
bool is_followed(const void* address);
// True if all of it may be used by a device or is the host's own.
bool reachable(const void* address, std::size_t bytes);
// Where the simulation finds what lies at a device's address; any other address itself.
void* alias(const void* address);
// What a device reads there: in pinned memory with what devices have written that the host does not
// see yet.
void read_bytes(const void* address, void* into, std::size_t bytes);
// What a device writes. To pinned memory it comes when it is `due`; then the host may have seen it,
// and the oracle takes it for known.
void write_bytes(void* address, const void* from, std::size_t bytes, std::uint64_t due);
// Writes to pinned memory that are due at `now`.
void land_host_writes(std::uint64_t now);

}  // namespace pleat::simulated

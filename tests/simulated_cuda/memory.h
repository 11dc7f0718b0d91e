// Memory of the simulated devices. Its addresses are a range that the host cannot access; the
// simulation uses an alias of the same bytes. Physical memory is one memory file, so that it can be
// mapped twice and released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pleat::simulated {

inline constexpr std::size_t kGranule = std::size_t{2} << 20;  // of mappings

void reserve_addresses();

struct Physical;  // memory of a device that can be mapped

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
// The allocation that begins there; nullptr if none.
const Range* allocation_at(const void* address);
void release(const Range* allocation);
// The mapped range that contains the address.
const Range* range_of(const void* address);
// Lets the n-th next physical allocation fail; -1: none.
void fail_allocation(int n);

// ---- mapping by hand ----
int reserve_range(std::size_t bytes, void** address);
int unreserve_range(const void* address, std::size_t bytes);
Physical* create_physical(int device, std::size_t bytes);
// False for an invalid handle.
bool release_physical(Physical* physical);
bool retain_physical(Physical* physical);
int device_of(const Physical* physical);
int map(void* address, std::size_t bytes, std::size_t offset, Physical* physical);
// Whole mappings only. `gone` receives the removed ones.
int unmap(void* address, std::size_t bytes, std::vector<Range>* gone);

// ---- pinned host memory ----
int allocate_pinned(std::size_t bytes, void** address);
int free_pinned(void* address);
int register_pinned(void* address, std::size_t bytes);
int unregister_pinned(void* address);
bool is_pinned(const void* address);

// ---- bytes ----
bool is_device_address(const void* address);
// True for device or pinned memory: the oracle tracks accesses by devices.
bool is_followed(const void* address);
// True if all of it is accessible to a device or ordinary host memory.
bool reachable(const void* address, std::size_t bytes);
// The host alias of a device address; other addresses unchanged.
void* alias(const void* address);
// A read by a device: in pinned memory, it includes device writes that the host does not see yet.
void read_bytes(const void* address, void* into, std::size_t bytes);
// A write by a device. In pinned memory it becomes visible when it is `due`; from then on the host
// can have seen it, and the oracle treats it as known.
void write_bytes(void* address, const void* from, std::size_t bytes, std::uint64_t due);
// Applies writes to pinned memory that are due at `now`.
void land_host_writes(std::uint64_t now);

}  // namespace pleat::simulated

#include "tests/simulated_cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "tests/simulated_cuda/simulation.h"

namespace pleat::simulated {

struct Physical {
  std::size_t offset = 0;  // in the file
  std::size_t bytes = 0;
  int device = 0;
  int holders = 0;  // handles and mappings
  int handles = 0;
};

namespace {

constexpr std::size_t kAddresses = std::size_t{1} << 40;
constexpr std::size_t kPage = 4096;

char* device_base = nullptr;
char* alias_base = nullptr;
int file = -1;
std::size_t next_address = kGranule;  // addresses and file offsets are used once
std::size_t next_offset = 0;
int failing_allocation = -1;
MemoryUse uses[kMostDevices];
MemoryUse pinned;

std::map<char*, Range> ranges;
std::map<char*, std::size_t> reservations;
std::set<Physical*> physicals;
struct Pinned {
  std::size_t bytes = 0;
  bool allocated = false;
};
std::map<char*, Pinned> pinned_ranges;

struct HostWrite {
  char* address;
  std::vector<char> bytes;
  std::uint64_t due;
};
std::deque<HostWrite> host_writes;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void add_use(MemoryUse& use, std::size_t bytes) {
  use.now += bytes;
  use.peak = std::max(use.peak, use.now);
}

void let_go(Physical* physical) {
  if (--physical->holders != 0) return;
  fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(physical->offset),
            static_cast<off_t>(physical->bytes));
  uses[physical->device].now -= physical->bytes;
  physicals.erase(physical);
  delete physical;
}

void map_alias(char* address, const Physical& physical, std::size_t offset, std::size_t bytes) {
  if (mmap(alias(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
           static_cast<off_t>(physical.offset + offset)) == MAP_FAILED)
    give_up("no more mappings", "mmap");
}

void unmap_alias(char* address, std::size_t bytes) {
  if (mmap(alias(address), bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    give_up("no more mappings", "mmap");
}

template <class Map>
auto holder_of(Map& map, const void* address) {
  auto at = map.upper_bound(const_cast<char*>(static_cast<const char*>(address)));
  return at == map.begin() ? map.end() : std::prev(at);
}

auto pinned_at(const void* address) {
  const auto at = holder_of(pinned_ranges, address);
  return at != pinned_ranges.end() &&
                 static_cast<const char*>(address) < at->first + at->second.bytes
             ? at
             : pinned_ranges.end();
}

void forget_host_writes(char* begin, std::size_t bytes) {
  std::erase_if(host_writes, [&](const HostWrite& write) {
    return write.address >= begin && write.address < begin + bytes;
  });
}

}  // namespace

void reserve_addresses() {
  const auto reserve = [] {
    void* const base =
        mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) give_up("no address space", "mmap");
    return static_cast<char*>(base);
  };
  device_base = reserve();
  alias_base = reserve();
  // An allocation, its alias and its file offset begin at multiples of the granule.
  next_address = kGranule - reinterpret_cast<std::uintptr_t>(device_base) % kGranule;
  file = memfd_create("simulated_cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t{1} << 46) != 0)
    give_up("no file in memory", "memfd_create");
}

MemoryUse memory_use(int device) { return uses[device]; }
MemoryUse pinned_use() { return pinned; }
void fail_allocation(int n) { failing_allocation = n; }

Physical* create_physical(int device, std::size_t bytes) {
  if (failing_allocation >= 0 && failing_allocation-- == 0) return nullptr;
  if (uses[device].now + bytes > simulation().settings.memory_bytes) return nullptr;
  auto* const physical = new Physical{next_offset, bytes, device, 1, 1};
  next_offset += bytes;
  physicals.insert(physical);
  add_use(uses[device], bytes);
  return physical;
}

bool release_physical(Physical* physical) {
  if (!physicals.contains(physical) || physical->handles == 0) return false;
  --physical->handles;
  let_go(physical);
  return true;
}

bool retain_physical(Physical* physical) {
  if (!physicals.contains(physical)) return false;
  ++physical->handles;
  ++physical->holders;
  return true;
}

int device_of(const Physical* physical) { return physical->device; }

int reserve_range(std::size_t bytes, void** address) {
  if (bytes == 0 || bytes % kGranule != 0) return kInvalidValue;
  if (next_address + bytes + kGranule > kAddresses) return kOutOfMemory;
  char* const begin = device_base + next_address;
  next_address += bytes + kGranule;  // an inaccessible granule between any two
  reservations[begin] = bytes;
  *address = begin;
  return kSuccess;
}

int unreserve_range(const void* address, std::size_t bytes) {
  const auto at = reservations.find(const_cast<char*>(static_cast<const char*>(address)));
  if (at == reservations.end() || at->second != bytes) return kInvalidValue;
  const auto mapped = ranges.lower_bound(at->first);
  if (mapped != ranges.end() && mapped->first < at->first + bytes) return kInvalidValue;
  reservations.erase(at);
  return kSuccess;
}

int map(void* address, std::size_t bytes, std::size_t offset, Physical* physical) {
  char* const begin = static_cast<char*>(address);
  if (!physicals.contains(physical) || bytes == 0 || bytes % kGranule != 0 ||
      offset + bytes > physical->bytes)
    return kInvalidValue;
  const auto room = holder_of(reservations, address);
  if (room == reservations.end() || begin + bytes > room->first + room->second)
    return kInvalidValue;
  const auto next = ranges.lower_bound(begin);
  if ((next != ranges.end() && next->first < begin + bytes) || range_of(begin) != nullptr)
    return kInvalidValue;
  ++physical->holders;
  map_alias(begin, *physical, offset, bytes);
  ranges[begin] = {begin, bytes, physical->device, true, physical};
  return kSuccess;
}

int unmap(void* address, std::size_t bytes, std::vector<Range>* gone) {
  char* const begin = static_cast<char*>(address);
  std::size_t covered = 0;
  for (auto at = ranges.lower_bound(begin); at != ranges.end() && at->first < begin + bytes; ++at) {
    if (!at->second.mapped_by_hand || at->first + at->second.bytes > begin + bytes)
      return kInvalidValue;
    covered += at->second.bytes;
  }
  if (covered != bytes) return kInvalidValue;
  for (auto at = ranges.find(begin); at != ranges.end() && at->first < begin + bytes;
       at = ranges.erase(at)) {
    gone->push_back(at->second);
    unmap_alias(at->first, at->second.bytes);
    let_go(at->second.physical);
  }
  return kSuccess;
}

int allocate(int device, std::size_t bytes, void** address) {
  *address = nullptr;
  if (bytes == 0) return kSuccess;
  const std::size_t whole = round_up(bytes, kGranule);
  if (next_address + whole + kGranule > kAddresses) return kOutOfMemory;
  Physical* const physical = create_physical(device, whole);
  if (physical == nullptr) return kOutOfMemory;
  physical->handles = 0;  // only the mapping holds it
  char* const begin = device_base + next_address;
  next_address += whole + kGranule;
  map_alias(begin, *physical, 0, whole);
  ranges[begin] = {begin, whole, device, false, physical};
  *address = begin;
  return kSuccess;
}

const Range* allocation_at(const void* address) {
  const auto at = ranges.find(const_cast<char*>(static_cast<const char*>(address)));
  return at == ranges.end() || at->second.mapped_by_hand ? nullptr : &at->second;
}

void release(const Range* allocation) {
  unmap_alias(allocation->begin, allocation->bytes);
  let_go(allocation->physical);
  ranges.erase(allocation->begin);
}

const Range* range_of(const void* address) {
  const auto at = holder_of(ranges, address);
  return at != ranges.end() && static_cast<const char*>(address) < at->first + at->second.bytes
             ? &at->second
             : nullptr;
}

int allocate_pinned(std::size_t bytes, void** address) {
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), kPage);
  void* const memory =
      mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  pinned_ranges[static_cast<char*>(memory)] = {whole, true};
  add_use(pinned, whole);
  *address = memory;
  return kSuccess;
}

int free_pinned(void* address) {
  const auto at = pinned_ranges.find(static_cast<char*>(address));
  if (at == pinned_ranges.end() || !at->second.allocated) return kInvalidValue;
  forget_host_writes(at->first, at->second.bytes);
  simulation().ledger.forget(address, at->second.bytes);
  munmap(address, at->second.bytes);
  pinned.now -= at->second.bytes;
  pinned_ranges.erase(at);
  return kSuccess;
}

int register_pinned(void* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return kInvalidValue;
  if (is_pinned(address)) return 712;  // already registered
  pinned_ranges[static_cast<char*>(address)] = {bytes, false};
  add_use(pinned, bytes);
  return kSuccess;
}

int unregister_pinned(void* address) {
  const auto at = pinned_ranges.find(static_cast<char*>(address));
  if (at == pinned_ranges.end() || at->second.allocated) return 713;  // not registered
  land_host_writes(UINT64_MAX);
  simulation().ledger.forget(address, at->second.bytes);
  pinned.now -= at->second.bytes;
  pinned_ranges.erase(at);
  return kSuccess;
}

bool is_pinned(const void* address) { return pinned_at(address) != pinned_ranges.end(); }

bool is_device_address(const void* address) {
  const char* const at = static_cast<const char*>(address);
  return device_base != nullptr && at >= device_base && at < device_base + kAddresses;
}

bool is_followed(const void* address) { return is_device_address(address) || is_pinned(address); }

bool reachable(const void* address, std::size_t bytes) {
  if (!is_device_address(address)) return true;
  const char* at = static_cast<const char*>(address);
  for (const char* const end = at + bytes; at < end;) {
    const Range* const range = range_of(at);
    if (range == nullptr) return false;
    at = range->begin + range->bytes;
  }
  return true;
}

void* alias(const void* address) {
  char* const at = const_cast<char*>(static_cast<const char*>(address));
  return is_device_address(at) ? at + (alias_base - device_base) : at;
}

void read_bytes(const void* address, void* into, std::size_t bytes) {
  std::memcpy(into, alias(address), bytes);
  const char* const begin = static_cast<const char*>(address);
  for (const HostWrite& write : host_writes) {
    const char* const from = std::max<const char*>(begin, write.address);
    const char* const to = std::min<const char*>(begin + bytes, write.address + write.bytes.size());
    if (from < to)
      std::memcpy(static_cast<char*>(into) + (from - begin),
                  write.bytes.data() + (from - write.address), static_cast<std::size_t>(to - from));
  }
}

void write_bytes(void* address, const void* from, std::size_t bytes, std::uint64_t due) {
  if (due > simulation().now && is_pinned(address)) {
    const char* const begin = static_cast<const char*>(from);
    host_writes.push_back({static_cast<char*>(address), {begin, begin + bytes}, due});
  } else {
    std::memcpy(alias(address), from, bytes);
    if (is_pinned(address)) simulation().ledger.forget(address, bytes);
  }
}

void land_host_writes(std::uint64_t now) {
  for (const HostWrite& write : host_writes)
    if (write.due <= now) {
      std::memcpy(write.address, write.bytes.data(), write.bytes.size());
      simulation().ledger.forget(write.address, write.bytes.size());
    }
  std::erase_if(host_writes, [&](const HostWrite& write) { return write.due <= now; });
}

}  // namespace pleat::simulated

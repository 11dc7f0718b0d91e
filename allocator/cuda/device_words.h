// DeviceWords holds memory of one device into which Pleat's kernels write words for Pleat. It
// allocates that memory once, from the driver itself, and keeps it until the process ends. It never
// allocates or frees memory later, when a graph capture can be under way.
//
//   slots       pinned host memory: a kernel writes its result there, and the host reads it without
//               a driver call
//   workspaces  device memory, one for each stream; zero before a launch and after it
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "allocator/cuda/driver.h"
#include "allocator/ids.h"

namespace pleat::allocator::cuda {

class DeviceWords {
 public:
  static constexpr std::size_t kSlots = 4096;
  static constexpr std::size_t kSlotBytes = 64;
  static constexpr std::size_t kWorkspaces = 512;
  static constexpr std::size_t kWorkspaceBytes = 4096;

  DeviceWords() = default;
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;

  // Allocates the memory. The device's context must be current and no capture under way. The
  // workspaces are zero for later work on `stream`; other streams must first wait for `stream`.
  // Returns the driver's error. Called once.
  [[nodiscard]] int open(const Driver& driver, DriverLife& life, StreamId stream) noexcept;

  // A free slot, filled with zeros; null if all slots are in use.
  struct Slot {
    void* host = nullptr;
    std::uint64_t device = 0;  // the slot's address on the device
    explicit operator bool() const noexcept { return host != nullptr; }
  };
  [[nodiscard]] Slot take_slot() noexcept;
  // All slots as one range. Valid only while no slot is in use.
  [[nodiscard]] Slot whole() const noexcept { return {host_, host_on_device_}; }
  // Returns a slot. No kernel writes to it any more.
  void give_slot(void* host) noexcept;
  [[nodiscard]] std::size_t slots_in_use() noexcept;

  // The workspace of `stream`, the same on every call; 0 if other streams have them all.
  [[nodiscard]] std::uint64_t workspace(StreamId stream) noexcept;
  // A workspace for a launch that becomes part of a graph, whose replays can overlap any other
  // work. The first kOfGraphs launches get one each; later launches share them in turn, and then
  // two graphs with a common workspace must not replay at the same time.
  static constexpr std::size_t kOfGraphs = 128;
  [[nodiscard]] std::uint64_t workspace_of_a_graph() noexcept;
  // The workspace of no stream or graph; 0 before open(). The caller prevents concurrent use.
  [[nodiscard]] std::uint64_t last_workspace() noexcept;

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_;  // innermost
  std::byte* host_ = nullptr;
  std::uint64_t host_on_device_ = 0;
  std::vector<std::uint16_t> idle_;  // numbers of slots
  std::uint64_t workspaces_ = 0;
  std::size_t of_graphs_ = 0;  // taken so far, from the end
  std::unordered_map<std::uint64_t, std::uint64_t> of_stream_;
};

}  // namespace pleat::allocator::cuda

// Words that the kernels of one device write for us. They are taken once, from the driver itself,
// and kept for good: nothing is allocated or freed later, when a graph may be being captured.
//
//   slots       pinned host memory: what a kernel has found out, for the host to see without a call
//   workspaces  device memory, zero before a launch and after it; one for each stream
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

  // Takes the memory, with the device's context current and no capture under way. The workspaces
  // are zero for what `stream` is given from now on; work of other streams comes after the caller
  // has waited for `stream`. The driver's error if it gives none. Once.
  [[nodiscard]] int open(const Driver& driver, DriverLife& life, StreamId stream) noexcept;

  // A slot that nobody has, filled with zeros; null if there is none.
  struct Slot {
    void* host = nullptr;
    std::uint64_t device = 0;  // its address there
    explicit operator bool() const noexcept { return host != nullptr; }
  };
  [[nodiscard]] Slot take_slot() noexcept;
  // All slots as one piece, as long as nobody has one.
  [[nodiscard]] Slot whole() const noexcept { return {host_, host_on_device_}; }
  // No kernel will write to the slot any more.
  void give_slot(void* host) noexcept;
  [[nodiscard]] std::size_t slots_in_use() noexcept;

  // The workspace of a stream, which is its own for good; 0 if those for streams
  // are all taken.
  [[nodiscard]] std::uint64_t workspace(StreamId stream) noexcept;
  // One for a launch that becomes part of a graph: its replays may run beside anything. After
  // kOfGraphs launches they take turns, and replays of two graphs of one script must then not run
  // at once.
  static constexpr std::size_t kOfGraphs = 128;
  [[nodiscard]] std::uint64_t workspace_of_a_graph() noexcept;
  // The last one, which is nobody's. Who uses it sees to it that nobody else does; 0 before open().
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

#include "allocator/cuda/device_words.h"

#include <cstring>

namespace pleat::allocator::cuda {

int DeviceWords::open(const Driver& driver, DriverLife& life, StreamId stream) noexcept {
  void* host = nullptr;
  std::uint64_t on_device = 0, workspaces = 0;
  int error = life.note(driver.host_allocate(&host, kSlots * kSlotBytes, kSeenByDevices));
  if (error == kSuccess) error = life.note(driver.host_address(&on_device, host, 0));
  if (error == kSuccess) {
    error = life.note(driver.memory_allocate(&workspaces, kWorkspaces * kWorkspaceBytes));
  }
  if (error == kSuccess) {
    error = life.note(driver.set_bytes(workspaces, 0, kWorkspaces * kWorkspaceBytes,
                                       reinterpret_cast<void*>(stream.value)));
  }
  if (error != kSuccess) return error;
  const std::lock_guard<std::mutex> guard(mutex_);
  try {
    idle_.reserve(kSlots);
    of_stream_.reserve(kWorkspaces);
  } catch (...) {
    return -1;
  }
  for (std::size_t i = kSlots; i != 0; --i) idle_.push_back(static_cast<std::uint16_t>(i - 1));
  host_ = static_cast<std::byte*>(host);
  host_on_device_ = on_device;
  workspaces_ = workspaces;
  return kSuccess;
}

DeviceWords::Slot DeviceWords::take_slot() noexcept {
  Slot slot;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (idle_.empty()) return {};
    const std::size_t at = idle_.back() * kSlotBytes;
    idle_.pop_back();
    slot = {host_ + at, host_on_device_ + at};
  }
  std::memset(slot.host, 0, kSlotBytes);
  return slot;
}

void DeviceWords::give_slot(void* host) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto at = static_cast<std::size_t>(static_cast<std::byte*>(host) - host_);
  idle_.push_back(static_cast<std::uint16_t>(at / kSlotBytes));  // has room: cannot throw
}

std::size_t DeviceWords::slots_in_use() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  return host_ == nullptr ? 0 : kSlots - idle_.size();
}

std::uint64_t DeviceWords::workspace(StreamId stream) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (const auto at = of_stream_.find(stream.value); at != of_stream_.end()) return at->second;
  if (workspaces_ == 0 || of_stream_.size() == kWorkspaces - kOfGraphs - 1) return 0;
  const std::uint64_t next = workspaces_ + of_stream_.size() * kWorkspaceBytes;
  try {
    of_stream_.emplace(stream.value, next);
  } catch (...) {
    return 0;
  }
  return next;
}

std::uint64_t DeviceWords::workspace_of_a_graph() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (workspaces_ == 0) return 0;
  return workspaces_ + (kWorkspaces - 2 - of_graphs_++ % kOfGraphs) * kWorkspaceBytes;
}

std::uint64_t DeviceWords::last_workspace() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  return workspaces_ == 0 ? 0 : workspaces_ + (kWorkspaces - 1) * kWorkspaceBytes;
}

}  // namespace pleat::allocator::cuda

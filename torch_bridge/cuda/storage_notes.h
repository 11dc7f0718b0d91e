// Notes about the memory of storages, by its address. A note holds the stream of the allocation,
// other recorded streams, and whether the memory belongs to a private pool. Nearly all memory is
// allocated for the first stream of its device and used there: it needs no note. Torch-free.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "allocator/ids.h"

namespace pleat::bridge::cuda {

class StorageNotes {
 public:
  static constexpr std::size_t kMostDevices = 128;

  struct Note {
    allocator::StreamId stream{};  // that the memory was allocated for
    bool used_elsewhere = false;   // some stream was said to use it
    bool is_private = false;       // of a private pool
  };

  // Memory of a device was allocated.
  void allocated(const void* pointer, std::size_t device, allocator::StreamId stream,
                 bool is_private) noexcept {
    const bool first = is_first_stream(device, stream);
    if (first && !is_private) [[likely]]
      return;
    change(pointer, device, [&](Note& note) {
      note.stream = stream;
      note.is_private = is_private;
    });
  }
  // A stream was said to use it.
  void used(const void* pointer, std::size_t device) noexcept {
    change(pointer, device, [](Note& note) { note.used_elsewhere = true; });
  }
  void freed(const void* pointer) noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    const std::lock_guard<std::mutex> guard(mutex_);
    notes_.erase(pointer);
    count_.store(notes_.size(), std::memory_order_relaxed);
  }
  // Of memory that is allocated. Everything is private once there was no memory for a note.
  [[nodiscard]] Note find(const void* pointer, std::size_t device) const noexcept {
    Note note{first_stream(device), false, lost_.load(std::memory_order_relaxed)};
    if (count_.load(std::memory_order_relaxed) == 0) [[likely]]
      return note;
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = notes_.find(pointer);
    return at == notes_.end() ? note : at->second;
  }

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // no stream's address

  [[nodiscard]] allocator::StreamId first_stream(std::size_t device) const noexcept {
    const std::uint64_t first = first_[device].value.load(std::memory_order_relaxed);
    return {first == kNone ? 0 : first};
  }
  bool is_first_stream(std::size_t device, allocator::StreamId stream) noexcept {
    std::atomic<std::uint64_t>& first = first_[device].value;
    std::uint64_t known = first.load(std::memory_order_relaxed);
    if (known == kNone && first.compare_exchange_strong(known, stream.value)) return true;
    return known == stream.value;
  }
  template <class Change>
  void change(const void* pointer, std::size_t device, Change&& change) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    try {
      const auto [at, added] = notes_.try_emplace(pointer);
      if (added) at->second.stream = first_stream(device);
      change(at->second);
      count_.store(notes_.size(), std::memory_order_relaxed);
    } catch (...) {
      lost_.store(true, std::memory_order_relaxed);
    }
  }

  struct First {
    std::atomic<std::uint64_t> value{kNone};
  };
  std::array<First, kMostDevices> first_{};
  mutable std::mutex mutex_;  // innermost
  std::unordered_map<const void*, Note> notes_;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> lost_{false};
};

}  // namespace pleat::bridge::cuda

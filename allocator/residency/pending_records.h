// Records that are held raw until the forward pass ends or their wait is over, in the order of
// their release: a list through the records themselves, so that joining and leaving it cannot fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "allocator/residency/record.h"

namespace pleat::allocator {

class PendingRecords {
 public:
  // The caller holds a reference.
  void add(Record& record) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    record.pending.store(true, std::memory_order_relaxed);
    record.pending_previous = last_;
    record.pending_next = nullptr;
    (last_ != nullptr ? last_->pending_next : first_) = &record;
    last_ = &record;
    count_.fetch_add(1, std::memory_order_relaxed);
  }

  // Nothing where the record is not on the list. Who takes a record off clears its flag last: once
  // it reads false, nobody else touches the links.
  void remove(Record& record) noexcept {
    if (!record.pending.load(std::memory_order_acquire)) return;
    const std::lock_guard<std::mutex> guard(mutex_);
    if (record.pending.load(std::memory_order_relaxed)) take_off(record);
  }

  // With the list locked, as for std::scoped_lock.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  bool try_lock() { return mutex_.try_lock(); }
  [[nodiscard]] Record* first() const noexcept { return first_; }
  // As of now if the list is not locked.
  [[nodiscard]] bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }
  void take_off(Record& record) noexcept {
    (record.pending_previous != nullptr ? record.pending_previous->pending_next : first_) =
        record.pending_next;
    (record.pending_next != nullptr ? record.pending_next->pending_previous : last_) =
        record.pending_previous;
    count_.fetch_sub(1, std::memory_order_relaxed);
    record.pending.store(false, std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  Record* first_ = nullptr;
  Record* last_ = nullptr;
  std::atomic<std::size_t> count_{0};
};

}  // namespace pleat::allocator

// WaitingRecords lists the records that are held raw for a reason that will end (Hold), in release
// order. The links are members of the records, so that joining and leaving the list cannot fail.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "allocator/lifecycle/record.h"

namespace pleat::allocator {

class WaitingRecords {
 public:
  // Adds `record`, to which the caller holds a reference, under the record's mutex.
  void add(Record& record, Hold hold) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    record.waiting.hold = hold;
    record.waiting.listed.store(true, std::memory_order_relaxed);
    record.waiting.previous = last_;
    record.waiting.next = nullptr;
    (last_ != nullptr ? last_->waiting.next : first_) = &record;
    last_ = &record;
    count(record, 1);
  }

  // False if the record is not on the list. take_off() clears the record's flag last: once the flag
  // reads false, no other thread touches the links.
  bool remove(Record& record) noexcept {
    if (!record.waiting.listed.load(std::memory_order_acquire)) return false;
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!record.waiting.listed.load(std::memory_order_relaxed)) return false;
    take_off(record);
    return true;
  }

  // For std::scoped_lock. first() and take_off() are called with the list locked.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  bool try_lock() { return mutex_.try_lock(); }
  [[nodiscard]] Record* first() const noexcept { return first_; }
  void take_off(Record& record) noexcept {
    const Record::Waiting& links = record.waiting;
    (links.previous != nullptr ? links.previous->waiting.next : first_) = links.next;
    (links.next != nullptr ? links.next->waiting.previous : last_) = links.previous;
    count(record, -1);
    record.waiting.listed.store(false, std::memory_order_release);
  }

  // Without the lock, the result is a snapshot.
  [[nodiscard]] std::size_t count(Hold hold) const noexcept {
    return counts_[static_cast<std::size_t>(hold)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool empty() const noexcept {
    return count(Hold::kForwardEnd) + count(Hold::kProof) + count(Hold::kVerdict) == 0;
  }
  [[nodiscard]] std::size_t bytes(Hold hold) const noexcept {
    return bytes_[static_cast<std::size_t>(hold)].load(std::memory_order_relaxed);
  }
  // Bytes and count of the records that wait for a proof or a verdict. Residency bounds these.
  [[nodiscard]] std::size_t bounded_bytes() const noexcept {
    return bytes(Hold::kProof) + bytes(Hold::kVerdict);
  }
  [[nodiscard]] std::size_t bounded_count() const noexcept {
    return count(Hold::kProof) + count(Hold::kVerdict);
  }

 private:
  void count(const Record& record, int change) noexcept {
    const auto hold = static_cast<std::size_t>(record.waiting.hold);
    add(counts_[hold], 1, change);
    add(bytes_[hold], record.bytes, change);
  }
  // Called under the lock: plain additions, which readers without the lock see whole.
  static void add(std::atomic<std::size_t>& number, std::size_t by, int sign) noexcept {
    const std::size_t n = number.load(std::memory_order_relaxed);
    number.store(sign > 0 ? n + by : n - by, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  Record* first_ = nullptr;
  Record* last_ = nullptr;
  std::array<std::atomic<std::size_t>, 4> counts_{}, bytes_{};  // by Hold
};

}  // namespace pleat::allocator

// What has been learned, while the job runs, of the tensors that a call site or a family of keys
// saves. Lessons only ever raise what such tensors need. Torch-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "torch_bridge/core/needs.h"

namespace pleat::bridge {

// Any thread. A lesson is named by a hash of what it is about.
class LessonBook {
 public:
  // Raises what is known of `lesson`. Nothing new is taken once 65536 lessons are known: shapes
  // that change make new ones without end.
  void learn(std::uint64_t lesson, Needs needs);
  [[nodiscard]] Needs learned(std::uint64_t lesson);
  // The same as it changes, readable without a lock; lives as long as the book. Null where nothing
  // new is taken.
  using Known = std::atomic<Needs>;
  [[nodiscard]] const Known* follow(std::uint64_t lesson);
  // True if `lesson` was asked for first in backward pass `pass` or one of the three before it.
  [[nodiscard]] bool is_new(std::uint64_t lesson, std::uint64_t pass);

  // Rises whenever learned() may answer otherwise: a cached answer is good while it stands still.
  [[nodiscard]] std::uint64_t edition() const noexcept {
    return edition_.load(std::memory_order_acquire);
  }
  void forget_cached_answers() noexcept { edition_.fetch_add(1, std::memory_order_release); }

  // One of the lessons is of before_pole.h.
  [[nodiscard]] bool knows_poles() const noexcept {
    return knows_poles_.load(std::memory_order_acquire);
  }
  void note_pole() noexcept { knows_poles_.store(true, std::memory_order_release); }

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  // Nothing is ever taken out: entries stay where they are.
  std::unordered_map<std::uint64_t, Known> learned_;
  Known* entry(std::uint64_t lesson);  // under mutex_; null if there is no room
  std::unordered_map<std::uint64_t, std::uint64_t> first_asked_;  // in which backward pass
  std::atomic<std::uint64_t> edition_{1};
  std::atomic<bool> knows_poles_{false};
};

}  // namespace pleat::bridge

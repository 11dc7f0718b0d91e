// The lessons of the keys of one device, and the verdicts that are still to come. Torch-free.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "compress/block/key_lesson.h"

namespace pleat::bridge::cuda {

using compress::block::KeyLesson;

class KeyLessons {
 public:
  // A payload of the key has been queued; its verdict is to come.
  void expect(allocator::TensorKey key) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (const auto at = entries_.find(key.value); at != entries_.end()) ++at->second.expected;
  }
  // Whether verdicts of the key are to come.
  [[nodiscard]] bool expects(allocator::TensorKey key) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = entries_.find(key.value);
    return at != entries_.end() && at->second.expected != 0;
  }

  // The lesson of a key of which `choice` is asked, and whether its next block is to be tried.
  // Without memory for it nothing is.
  struct Answer {
    KeyLesson lesson;
    bool pauses = true;
  };
  [[nodiscard]] Answer ask(allocator::TensorKey key, const allocator::CodecWords& choice) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    Entry* const entry = find(key, choice);
    if (entry == nullptr) return {};
    const bool pauses = entry->lesson.pause != 0;
    if (pauses) --entry->lesson.pause;
    return {entry->lesson, pauses};
  }
  // A verdict has come. Calls change(KeyLesson&), unless the key is asked for something else by
  // now.
  template <class Change>
  void learn(allocator::TensorKey key, const allocator::CodecWords& choice,
             Change&& change) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto at = entries_.find(key.value);
    if (at == entries_.end()) return;
    if (at->second.expected != 0) --at->second.expected;
    if (at->second.choice == choice) change(at->second.lesson);
  }

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  static constexpr std::size_t kMostKeys = 1u << 16;  // a job with more has new keys in each step
  struct Entry {
    allocator::CodecWords choice;
    KeyLesson lesson;
    std::uint32_t expected = 0;
  };

  Entry* find(allocator::TensorKey key, const allocator::CodecWords& choice) noexcept {
    try {
      if (entries_.size() >= kMostKeys && !entries_.contains(key.value)) entries_.clear();
      Entry& entry = entries_[key.value];
      if (entry.choice != choice) {
        entry = {choice, {}, entry.expected};
        // A block for which groups are tried in vain is held raw: not all keys try in one step.
        entry.lesson.frames_before_groups = 1 + key.value % 8;
      }
      return &entry;
    } catch (...) {
      return nullptr;
    }
  }

  std::mutex mutex_;  // innermost
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace pleat::bridge::cuda

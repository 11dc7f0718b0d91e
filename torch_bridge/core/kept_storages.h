// Restored storages that are kept for hooks to come. A loop over slices of one tensor saves each of
// them, and all have one record: without the storage that the slice before was cut from, backward
// would restore the whole tensor for every slice.
//
// A kept storage costs as much as stock holds at that time anyway: the original of the same record.
// A storage has a worth in bytes, and goes once other records have restored as many bytes since it
// was asked for last. So a storage that no loop asks for any more does not stay. Restoring one
// again costs a share of what was restored meanwhile.
//
// Torch-free: a Storage is what keeps the bytes by living, null if it keeps none.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace pleat::bridge {

// Any thread. Storages die here, but under no lock of ours: the caller must hold no record's.
template <class Storage>
class KeptStorages {
 public:
  using Record = const void*;  // compared only

  // Makes room for `bytes` that `record` is about to restore. Drops the storages that are not worth
  // waiting for any longer; those worth nothing go at once.
  void make_room(Record record, std::size_t bytes) noexcept {
    if (count_.load(std::memory_order_relaxed) == 0) {
      return;
    }
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      for (Kept& kept : kept_) {
        kept.waited += kept.record == record ? 0 : bytes;
      }
    }
    let_go([&](const Kept& kept) { return kept.record != record && kept.waited >= kept.worth; });
  }

  // Keeps `storage`, of `bytes`, into which the record was restored, in place of the record's
  // earlier one. A null storage takes no place. Of storages worth nothing only the last is kept.
  // But for one, the storages kept never take more bytes than the other live storages have taken at
  // any time.
  struct Live {
    std::size_t now = 0, peak = 0;  // bytes, those kept here included
  };
  void keep(Record record, Storage storage, std::size_t bytes, std::size_t worth,
            Live live) noexcept {
    const bool none = !storage;
    if (none && count_.load(std::memory_order_relaxed) == 0) {
      return;
    }
    let_go([&](const Kept& kept) { return kept.record != record && kept.worth == 0; });
    Storage earlier;  // dies after the lock is gone
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = find(record);
    if (found != kept_.end()) {
      earlier = std::move(found->storage);
      take_out(found);
    }
    if (none) {
      return;
    }
    const std::size_t together = bytes_ + bytes;
    // The first time nothing of what was ever live was kept here.
    const std::size_t beside = live.now > together ? live.now - together : 0;
    most_beside_ = std::max(most_beside_, most_beside_ == 0 ? live.peak : beside);
    try {
      kept_.push_back({record, std::move(storage), bytes, together <= most_beside_ ? worth : 0, 0});
      bytes_ = together;
      count_.store(kept_.size(), std::memory_order_relaxed);
    } catch (...) {  // no memory: it is restored again
    }
  }

  void forget(Record record) noexcept {
    // Who put something here for the record has returned before it died.
    if (count_.load(std::memory_order_relaxed) != 0) {
      let_go([&](const Kept& kept) { return kept.record == record; });
    }
  }
  // False if none was kept.
  bool forget_all() noexcept {
    return count_.load(std::memory_order_relaxed) != 0 && let_go([](const Kept&) { return true; });
  }

  void lock_for_fork() noexcept { mutex_.lock(); }
  void unlock_after_fork() noexcept { mutex_.unlock(); }

 private:
  struct Kept {
    Record record;
    Storage storage;
    std::size_t bytes;
    std::size_t worth;
    std::size_t waited;  // bytes that others have restored since it was asked for
  };
  using Place = typename std::vector<Kept>::iterator;

  Place find(Record record) noexcept {
    return std::find_if(kept_.begin(), kept_.end(),
                        [&](const Kept& kept) { return kept.record == record; });
  }
  void take_out(Place place) noexcept {
    bytes_ -= place->bytes;
    if (place != kept_.end() - 1) {
      *place = std::move(kept_.back());
    }
    kept_.pop_back();
    count_.store(kept_.size(), std::memory_order_relaxed);
  }
  // One after the other, each outside of the lock. False if there was none.
  template <class Predicate>
  bool let_go(Predicate&& gone) noexcept {
    for (bool any = false;; any = true) {
      Storage storage;  // dies after the lock is gone
      const std::lock_guard<std::mutex> guard(mutex_);
      const auto found = std::find_if(kept_.begin(), kept_.end(), gone);
      if (found == kept_.end()) {
        return any;
      }
      storage = std::move(found->storage);
      take_out(found);
    }
  }

  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::size_t bytes_ = 0;              // of all that are kept
  std::size_t most_beside_ = 0;        // live bytes beside them, at the most
  std::atomic<std::size_t> count_{0};  // of kept_, to look at without the lock
};

}  // namespace pleat::bridge

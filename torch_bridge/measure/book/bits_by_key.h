// How many bits each saved tensor gets where noise does it no harm: by its key, one uniform width
// for every key that no table names. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/ids.h"
#include "torch_bridge/core/reasons.h"

namespace pleat::bridge {

class BitsByKey {
 public:
  struct Entry {
    allocator::TensorKey key;
    std::uint8_t width;  // of the codec: 1, 2, 3, 4, 6, 8; 0: lossless
    Why why = Why::kProfile;
    bool operator==(const Entry&) const = default;
  };

  // ---- one thread at a time each; readers meanwhile get the old or the new ---- 0: all is
  // lossless, including the entries of the table.
  void set_uniform(std::uint8_t width) noexcept {
    uniform_.store(width, std::memory_order_relaxed);
  }
  // Replaces the table; of two entries with one key the last holds. Throws std::bad_alloc and
  // leaves all as it was. A table is kept for as long as this lives: readers take no reference.
  void set_table(std::span<const Entry> entries);

  // ---- any thread, without a lock ----
  [[nodiscard]] std::uint8_t uniform() const noexcept {
    return uniform_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] Entry entry_of(allocator::TensorKey key) const noexcept {
    const Entry uniform{key, this->uniform(), Why::kBits};
    const Table* const table = table_.load(std::memory_order_acquire);
    return uniform.width == 0 || table == nullptr ? uniform : entry_in(*table, uniform);
  }
  [[nodiscard]] std::uint8_t width_of(allocator::TensorKey key) const noexcept {
    return entry_of(key).width;
  }

 private:
  using Table = std::vector<Entry>;  // ascending by key
  static Entry entry_in(const Table& table, const Entry& otherwise) noexcept;

  std::atomic<std::uint8_t> uniform_{0};
  std::atomic<const Table*> table_{nullptr};
  std::vector<std::unique_ptr<const Table>> tables_;
};

}  // namespace pleat::bridge

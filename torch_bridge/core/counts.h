// How many tensors or storages, and of how many bytes, were given each value of an enum that ends
// with kCount. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pleat::bridge {

// Any thread.
template <class Enum>
class Counts {
 public:
  struct Count {
    std::atomic<std::uint64_t> number{0}, bytes{0};
  };
  void add(Enum value, std::size_t bytes) noexcept {
    Count& c = counts_[static_cast<std::size_t>(value)];
    c.number.fetch_add(1, std::memory_order_relaxed);
    c.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] const Count& operator[](Enum value) const noexcept {
    return counts_[static_cast<std::size_t>(value)];
  }

 private:
  std::array<Count, static_cast<std::size_t>(Enum::kCount)> counts_{};
};

}  // namespace pleat::bridge

// One item for each thread of a trace. A file may name any number of threads: those beyond a bound
// have none that lasts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace pleat::trace {

template <class Item>
class PerThread {
 public:
  static constexpr std::size_t kMostThreads = 1u << 16;

  // The item of the thread, a new one if it has none. Most events are of the thread of the one
  // before.
  Item& of(std::uint32_t thread) {
    if (last_ != nullptr && thread == last_thread_) return *last_;
    if (threads_.size() >= kMostThreads && !threads_.contains(thread)) return nobody_ = {};
    last_thread_ = thread;
    last_ = &threads_[thread];
    return *last_;
  }

 private:
  std::unordered_map<std::uint32_t, Item> threads_;
  std::uint32_t last_thread_ = 0;
  Item* last_ = nullptr;
  Item nobody_{};
};

}  // namespace pleat::trace

#include "torch_bridge/core/key_book.h"

namespace pleat::bridge {

KeyBook::Recording::Recording(KeyBook& book, std::uint64_t thread) : book_(book), thread_(thread) {
  const std::lock_guard<std::mutex> guard(book_.mutex_);
  book_.recordings_[thread_] = this;
}

KeyBook::Recording::~Recording() {
  const std::lock_guard<std::mutex> guard(book_.mutex_);
  book_.recordings_.erase(thread_);
}

KeyBook::Recording::Count* KeyBook::Recording::count_of(std::uint64_t family) noexcept {
  constexpr std::size_t kFewFamilies = 4096;  // shapes that change make new ones without end
  const std::uint64_t graph = graph_.load(std::memory_order_relaxed);
  if (graph != counted_graph_) {
    counted_graph_ = graph;
    if (counts_.size() > kFewFamilies) {
      counts_.clear();
    }
  }
  try {
    Count& count = counts_[family];
    if (count.graph != graph) {
      count = {graph, 0};
    }
    return &count;
  } catch (...) {
    return nullptr;
  }
}

std::uint32_t KeyBook::Recording::next(std::uint64_t family) noexcept {
  const Count* const count = count_of(family);
  return count != nullptr ? count->ordinal : 0;
}

void KeyBook::Recording::take(std::uint64_t family) noexcept {
  if (Count* const count = count_of(family)) {
    ++count->ordinal;
  }
}

void KeyBook::start_anew(std::span<const std::uint64_t> threads) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (const std::uint64_t thread : threads) {
    if (const auto found = recordings_.find(thread); found != recordings_.end()) {
      found->second->graph_.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

}  // namespace pleat::bridge

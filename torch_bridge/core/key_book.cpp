#include "torch_bridge/core/key_book.h"

#include <algorithm>

namespace pleat::bridge {

KeyBook::Recording::Recording(KeyBook& book, std::uint64_t thread) : book_(book), thread_(thread) {
  const std::lock_guard<std::mutex> guard(book_.mutex_);
  book_.recordings_[thread_] = this;
}

KeyBook::Recording::~Recording() {
  const std::lock_guard<std::mutex> guard(book_.mutex_);
  book_.recordings_.erase(thread_);
}

KeyBook::Recording::Count& KeyBook::Recording::place_of(std::uint64_t family) noexcept {
  const std::size_t mask = counts_.size() - 1;
  std::size_t place = family & mask;
  while (counts_[place].graph != 0 && counts_[place].family != family) {
    place = (place + 1) & mask;
  }
  return counts_[place];
}

bool KeyBook::Recording::make_room() noexcept {
  constexpr std::size_t kFirst = 128;
  constexpr std::size_t kMost = 1 << 17;  // in one graph
  if (counts_.size() == kMost) {
    return false;
  }
  try {
    std::vector<Count> counts(counts_.empty() ? kFirst : 2 * counts_.size());
    counts.swap(counts_);
    for (const Count& count : counts) {
      if (count.graph != 0) {
        place_of(count.family) = count;
      }
    }
    return true;
  } catch (...) {
    return false;
  }
}

KeyBook::Recording::Count* KeyBook::Recording::count_of(std::uint64_t family) noexcept {
  constexpr std::size_t kFewFamilies = 4096;  // shapes that change make new ones without end
  const std::uint64_t graph = graph_.load(std::memory_order_relaxed);
  if (graph != counted_graph_) {
    counted_graph_ = graph;
    if (families_ > kFewFamilies) {
      std::fill(counts_.begin(), counts_.end(), Count{});
      families_ = 0;
    }
  }
  if (counts_.empty() && !make_room()) {
    return nullptr;
  }
  Count* count = &place_of(family);
  if (count->graph == 0) [[unlikely]] {
    if (2 * (families_ + 1) > counts_.size()) {
      if (!make_room()) {
        return nullptr;
      }
      count = &place_of(family);
    }
    ++families_;
  }
  if (count->graph != graph) {
    *count = {family, graph, 0};
  }
  return count;
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

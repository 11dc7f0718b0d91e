// GraphMarks stores one mark for each visited node of the graphs being recorded. A mark is valid
// while the node's sequence number matches. Guarded by the ledger's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct Claim;

class GraphMarks {
 public:
  enum class Weight : std::uint8_t { kUnknown, kNo, kYes };
  struct Mark {
    const torch::autograd::Node* node = nullptr;  // null: free place
    std::uint64_t sequence = 0;
    std::uint64_t thread = 0;  // the thread that recorded it
    Claim* claims = nullptr;   // claims of the node's saves that need a proof
    std::uint8_t closed = 0;   // 1: closed; 2: through an exponential
    bool open = false;
    bool met = false;             // by find_nodes()
    bool derivative = false;      // its result depends on a leaf whose gradient is a result
    bool differentiated = false;  // its result depends on a weight whose gradient is differentiated
    bool normalises = false;      // a normalisation by hand
    bool of_factor = false;       // its result depends on a factor of linear algebra, or on a gram
    bool gram = false;            // it contracts a tensor with itself
    // Results that contractions without a weight read; those that the last such one read.
    std::uint8_t read = 0, read_by_last = 0;
    Weight weight = Weight::kUnknown;
    std::uint64_t structure = 0;  // Ledger::structure_of(); 0: not computed yet
    const torch::autograd::Node* last_reader = nullptr;  // compare only
  };

  // The mark of `node`, which is alive; valid until the next call. Throws std::bad_alloc.
  Mark& of(const torch::autograd::Node& node) {
    if (2 * (used_ + 1) > places_.size()) {
      grow();
    }
    Mark& mark = place_of(&node);
    if (mark.node == nullptr) {
      ++used_;
      mark.node = &node;
      take_over(mark, node);
    } else if (mark.sequence != node.sequence_nr() || mark.thread != node.thread_id()) {
      take_over(mark, node);  // the mark of a dead node, whose claims are gone too
    }
    return mark;
  }
  // Null if the node has no mark. The node need not be alive.
  Mark* find(const torch::autograd::Node* node) noexcept {
    if (places_.empty()) {
      return nullptr;
    }
    Mark& mark = place_of(node);
    return mark.node != nullptr ? &mark : nullptr;
  }

  // Calls `visit` with the marks of nodes that these threads recorded.
  template <class Visit>
  void for_each(std::span<const std::uint64_t> threads, Visit&& visit) noexcept {
    for (const Mark& mark : places_) {
      if (mark.node != nullptr && is_one_of(mark.thread, threads)) {
        visit(mark);
      }
    }
  }
  [[nodiscard]] bool are_all_of(std::span<const std::uint64_t> threads) const noexcept {
    return std::all_of(places_.begin(), places_.end(), [&](const Mark& mark) {
      return mark.node == nullptr || is_one_of(mark.thread, threads);
    });
  }

  // Removes the marks of nodes that these threads recorded, and calls `end` with each.
  template <class End>
  void forget(std::span<const std::uint64_t> threads, End&& end) noexcept {
    std::size_t kept = 0;
    for (Mark& mark : places_) {
      if (mark.node == nullptr) {
        continue;
      }
      if (is_one_of(mark.thread, threads)) {
        end(mark);
        mark = {};
      } else {
        ++kept;
      }
    }
    used_ = kept;
    if (kept != 0) {
      spread(places_.size());
    }
  }

 private:
  static bool is_one_of(std::uint64_t thread, std::span<const std::uint64_t> threads) noexcept {
    return std::find(threads.begin(), threads.end(), thread) != threads.end();
  }
  static void take_over(Mark& mark, const torch::autograd::Node& node) noexcept {
    mark = {.node = &node, .sequence = node.sequence_nr(), .thread = node.thread_id()};
  }
  Mark& place_of(const torch::autograd::Node* node) noexcept {
    // Nodes are aligned to 16 bytes. Fibonacci hashing (Knuth, TAOCP 3, 6.4).
    const std::uint64_t hash =
        (reinterpret_cast<std::uintptr_t>(node) >> 4) * 0x9e3779b97f4a7c15ULL >> 20;
    std::size_t at = hash & (places_.size() - 1);
    while (places_[at].node != nullptr && places_[at].node != node) {
      at = (at + 1) & (places_.size() - 1);
    }
    return places_[at];
  }
  void grow() {
    constexpr std::size_t kFirst = 1024;
    std::vector<Mark> larger(places_.empty() ? kFirst : 2 * places_.size());
    larger.swap(places_);
    for (const Mark& mark : larger) {
      if (mark.node != nullptr) {
        place_of(mark.node) = mark;
      }
    }
  }
  // Puts every mark where a search from its own place finds it. If memory is short the marks are
  // lost: walks visit the nodes again, and their claims stay undecided.
  void spread(std::size_t places) noexcept {
    try {
      std::vector<Mark> all(places);
      all.swap(places_);
      for (const Mark& mark : all) {
        if (mark.node != nullptr) {
          place_of(mark.node) = mark;
        }
      }
    } catch (...) {
    }
  }

  std::vector<Mark> places_;  // open addressing, a power of two, at most half of them taken
  std::size_t used_ = 0;
};

}  // namespace pleat::bridge

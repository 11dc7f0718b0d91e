// GraphMarks stores one mark for each visited node of the graphs being recorded. A mark is valid
// while the node's sequence number and thread match. Marks of dead nodes are removed when the table
// is full. Guarded by the ledger's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

struct Claim;

// Reports the death of a node without keeping its memory. From torch 2.15 on that is impossible: a
// weak reference keeps the memory, and the last one runs the node's destructor.
template <class Node>
class WitnessOf {
 public:
  WitnessOf() = default;
  explicit WitnessOf(const Node& node) {
    if constexpr (kSees) {
      weak_ = node.weak_from_this();
    }
  }
  [[nodiscard]] bool is_dead() const noexcept {
    if constexpr (kSees) {
      return weak_.expired();
    }
    return false;
  }

 private:
  static constexpr bool kSees = requires(const Node& node) { node.weak_from_this(); };
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<kSees, std::weak_ptr<const Node>, Nothing> weak_;
};
using NodeWitness = WitnessOf<torch::autograd::Node>;

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
    NodeWitness witness{};

    // False for the mark of a dead node at the same address. `present` is alive.
    [[nodiscard]] bool is_of(const torch::autograd::Node& present) const noexcept {
      return sequence == present.sequence_nr() && thread == present.thread_id();
    }
  };

  // The mark of `node`, which is alive; valid until the next call. Throws std::bad_alloc.
  Mark& of(const torch::autograd::Node& node) {
    if (2 * (used_ + 1) > places_.size()) {
      make_room();
    }
    Mark& mark = place_of(&node);
    if (mark.node == nullptr) {
      ++used_;
      mark.node = &node;
      take_over(mark, node);
    } else if (!mark.is_of(node)) {
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

  // Removes the marks of nodes that these threads recorded, and calls `end` with each. If memory is
  // short the other marks are lost, too: walks visit their nodes again, and their claims stay
  // undecided.
  template <class End>
  void forget(std::span<const std::uint64_t> threads, End&& end) noexcept {
    const std::size_t had = used_;
    used_ = 0;
    for (Mark& mark : places_) {
      if (mark.node == nullptr) {
        continue;
      }
      if (is_one_of(mark.thread, threads)) {
        end(mark);
        mark = {};
      } else {
        ++used_;
      }
    }
    // The next graph is probably about as large as this one.
    const bool shrinks = 16 * had < places_.size() && places_.size() > kFewest;
    if (used_ != 0 || shrinks) {
      try {
        rebuild(shrinks ? places_.size() / 2 : places_.size());
      } catch (...) {
      }
    }
  }

 private:
  static bool is_one_of(std::uint64_t thread, std::span<const std::uint64_t> threads) noexcept {
    return std::find(threads.begin(), threads.end(), thread) != threads.end();
  }
  static void take_over(Mark& mark, const torch::autograd::Node& node) noexcept {
    mark = {.node = &node,
            .sequence = node.sequence_nr(),
            .thread = node.thread_id(),
            .witness = NodeWitness(node)};
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
  // Forward passes need not have a backward pass, so this also removes the marks of dead nodes.
  void make_room() {
    const auto living = std::count_if(places_.begin(), places_.end(), is_in_use);
    rebuild(std::max(std::bit_ceil(4 * static_cast<std::size_t>(living)), kFewest));
  }
  // Puts the marks of living nodes where a search from their own places finds them.
  void rebuild(std::size_t places) {
    std::vector<Mark> all(places);
    all.swap(places_);
    used_ = 0;
    for (Mark& mark : all) {
      if (is_in_use(mark)) {
        place_of(mark.node) = std::move(mark);
        ++used_;
      }
    }
  }
  static bool is_in_use(const Mark& mark) noexcept {
    return mark.node != nullptr && !mark.witness.is_dead();
  }

  static constexpr std::size_t kFewest = 1024;
  std::vector<Mark> places_;  // open addressing, a power of two, at most half of them taken
  std::size_t used_ = 0;
};

}  // namespace pleat::bridge

// BlockStore allocates Block structures from slabs with a free list. Their addresses are stable,
// and the steady state never calls malloc. Not thread-safe.
#pragma once

#include <cstddef>
#include <new>

#include "allocator/blocks/block.h"

namespace pleat::allocator {

class BlockStore {
 public:
  BlockStore() noexcept = default;
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;
  ~BlockStore() {
    while (slabs_ != nullptr) {
      Slab* next = slabs_->next;
      delete slabs_;
      slabs_ = next;
    }
  }

  // Returns nullptr if memory is short.
  [[nodiscard]] Block* get() noexcept {
    if (free_ == nullptr && !refill()) [[unlikely]]
      return nullptr;
    Node* node = free_;
    free_ = node->next;
    return &node->block;
  }
  void put(Block* block) noexcept {
    Node* node = reinterpret_cast<Node*>(block);
    node->next = free_;
    free_ = node;
  }

 private:
  // One cache line: threads that free different blocks do not share one.
  struct alignas(64) Node {
    Block block;  // first, so that a Block* is a Node*
    Node* next = nullptr;
  };
  static_assert(sizeof(Node) == 64);
  struct Slab {
    Slab* next = nullptr;
    Node nodes[255];
  };

  [[gnu::noinline]] bool refill() noexcept {
    auto* slab = new (std::nothrow) Slab;
    if (slab == nullptr) return false;
    slab->next = slabs_;
    slabs_ = slab;
    for (Node& node : slab->nodes) put(&node.block);
    return true;
  }

  Slab* slabs_ = nullptr;
  Node* free_ = nullptr;
};

}  // namespace pleat::allocator

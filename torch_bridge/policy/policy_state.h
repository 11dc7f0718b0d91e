// PolicyState and ThreadPolicy hold this folder's state: one object per process, one per thread.
// The rest of the folder is tables and functions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/core/fork_locks.h"

namespace pleat::bridge {

struct ConstructionScope;
struct NodeClass;

// A place in torch's code that calls the constructor of SavedVariable: one operand of one operator.
struct CallSite {
  const NodeClass* saver = nullptr;  // class of the node that saves here; null: unknown
  std::uint32_t order = 0;           // rank among the sites of one node, which saves in this order
};

// State of the process. Only grows; fork() finds it consistent.
struct PolicyState {
  std::mutex mutex;  // guards both tables. Held for a look-up, never while an operator runs
  std::unordered_map<const std::type_info*, const NodeClass*> classes;  // never freed
  std::unordered_map<const void*, CallSite> call_sites;
  std::atomic<std::uint64_t> edition{1};  // rises when a call site is learned

  ForkLock fork_lock{ForkPlace::kPolicy, mutex};

  [[nodiscard]] static PolicyState& get() noexcept;
};

// State of a thread. Trivially destructible, because tensors are freed in ending threads, too.
struct ThreadPolicy {
  // ---- the current save: saving_node.h ----
  std::uint64_t gradient_edges = 0;
  bool last_is_python = false;    // the last recorded node is a function in Python
  bool last_is_cpp = false;       // ... in C++
  bool last_is_compiled = false;  // ... that torch.compile made
  CodeRange python_code;          // libtorch_python's, once a function in Python was recorded
  ConstructionScope* construction = nullptr;  // of the SavedVariable: hooks/saved_tensor_hooks.h

  // ---- call sites are being learned: call_sites.h, entry/in_place_gradient.h ----
  std::vector<const void*>* sites_being_learned = nullptr;
  PleatGradient formula_being_learned = PLEAT_GRADIENTS;  // PLEAT_GRADIENTS: none

  // ---- cached look-ups ----
  struct CachedClass {
    const std::type_info* type = nullptr;
    const NodeClass* known = nullptr;
  };
  struct CachedSite {
    const void* call_site = nullptr;
    std::uint64_t edition = 0;  // edition of the call sites at that time
    CallSite known;
  };
  static constexpr std::size_t kCached = 64;  // a program has a few dozen of either
  std::array<CachedClass, kCached> classes{};
  std::array<CachedSite, kCached> call_sites{};

  [[nodiscard]] CachedClass& cached_class(const std::type_info* type) noexcept {
    return classes[(reinterpret_cast<std::uintptr_t>(type) >> 4) % kCached];
  }
  [[nodiscard]] CachedSite& cached_site(const void* call_site) noexcept {
    return call_sites[(reinterpret_cast<std::uintptr_t>(call_site) >> 2) % kCached];
  }
};

extern constinit thread_local ThreadPolicy thread_policy;

}  // namespace pleat::bridge

// What this folder remembers: one object of the process, one of each thread. All else in it is
// tables and functions.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/core/fork_locks.h"

namespace pleat::bridge {

struct NodeClass;

// A place in torch's code that calls the constructor of SavedVariable: one operand of one operator.
struct CallSite {
  const NodeClass* saver = nullptr;  // of the node that saves here; null: not known
  std::uint32_t order = 0;           // of the sites of one node, which saves in this order
};

// Of the process. Only grows; fork finds it whole.
struct PolicyState {
  std::mutex mutex;  // of both. Held for a look-up, never while an operator runs
  std::unordered_map<const std::type_info*, const NodeClass*> classes;  // never freed
  std::unordered_map<const void*, CallSite> call_sites;
  std::atomic<std::uint64_t> edition{1};  // rises when a call site is learned

  ForkLock fork_lock{ForkPlace::kPolicy, mutex};

  [[nodiscard]] static PolicyState& get() noexcept;
};

// Of a thread. Trivial to destroy: tensors die in threads that are ending, too.
struct ThreadPolicy {
  // ---- what it is saving now: saving_node.h ----
  std::uint64_t gradient_edges = 0;
  bool last_is_python = false;    // the node recorded last is a function in Python
  bool last_is_cpp = false;       // one in C++
  bool last_is_compiled = false;  // one that torch.compile has made
  CodeRange python_code;          // libtorch_python's, once a function in Python was recorded
  std::vector<const void*>* sites_being_learned = nullptr;  // call_sites.h

  // ---- answers it has looked up ----
  struct CachedClass {
    const std::type_info* type = nullptr;
    const NodeClass* known = nullptr;
  };
  struct CachedSite {
    const void* call_site = nullptr;
    std::uint64_t edition = 0;  // of the call sites when this was written
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

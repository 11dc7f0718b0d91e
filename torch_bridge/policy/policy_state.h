// What this folder remembers: one object of the process, one of each thread. All else in it is
// tables and functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "torch_bridge/core/code_pages.h"
#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/needs.h"

namespace pleat::bridge {

struct NodeClass;

// A place in torch's code that calls the constructor of SavedVariable: one operand of one operator.
struct CallSite {
  Needs needs;
  const NodeClass* saver = nullptr;  // of the node that saves here; null: not known
};

// Of the process. Only grows; fork finds it whole.
struct PolicyState {
  std::mutex mutex;  // of both. Held for a look-up, never while an operator runs
  std::unordered_map<const std::type_info*, const NodeClass*> classes;  // never freed
  std::unordered_map<const void*, CallSite> call_sites;

  ForkLock fork_lock{ForkPlace::kPolicy, mutex};

  [[nodiscard]] static PolicyState& get() noexcept;
};

// Of a thread. Trivial to destroy: tensors die in threads that are ending, too.
struct ThreadPolicy {
  // ---- what it is saving now: saving_node.h ----
  struct PythonFunction {
    bool compiled = false;
    Care care = Care::kNone;  // of what it saves
  };
  std::uint64_t gradient_edges = 0;
  PythonFunction last_function;  // recorded last
  CodeRange python_code;         // libtorch_python's, once a function that needs care was recorded
  int pows = 0;
  bool pow_with_pole = false;
  std::vector<const void*>* sites_being_learned = nullptr;  // call_sites.h

  // ---- answers it has looked up ----
  struct CachedClass {
    const std::type_info* type = nullptr;
    const NodeClass* known = nullptr;
  };
  struct CachedSite {
    const void* call_site = nullptr;
    std::uint64_t lessons = 0;  // edition of the lesson book when this was written
    CallSite known;
  };
  static constexpr std::size_t kCached = 64;  // a program has a few dozen of either
  std::array<CachedClass, kCached> classes{};
  std::array<CachedSite, kCached> call_sites{};

  [[nodiscard]] CachedClass& cached_class(const std::type_info* type) noexcept {
    return classes[(reinterpret_cast<std::uintptr_t>(type) >> 4) % kCached];
  }
  [[nodiscard]] CachedSite& cached_site(std::uint64_t lesson) noexcept {
    return call_sites[lesson % kCached];
  }
};

extern constinit thread_local ThreadPolicy thread_policy;

}  // namespace pleat::bridge

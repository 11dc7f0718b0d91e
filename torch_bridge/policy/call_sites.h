// Which call sites of the SavedVariable constructor belong to operators that close a path. Pleat
// decides about these saves before the kernel runs. To learn the sites, Pleat runs each such
// operator once on a few numbers and records the callers.
#pragma once

#include "torch_bridge/policy/policy_state.h"

namespace pleat::bridge {

// Looks the site up in the process's table and caches the answer for this thread.
[[nodiscard]] CallSite look_up_call_site(const void* return_address) noexcept;

// The operand that a call site saves. Thread-safe.
[[nodiscard]] inline CallSite call_site_at(const void* return_address) noexcept {
  const ThreadPolicy::CachedSite& cached = thread_policy.cached_site(return_address);
  const bool hit = cached.call_site == return_address &&
                   cached.edition == PolicyState::get().edition.load(std::memory_order_acquire);
  return hit ? cached.known : look_up_call_site(return_address);
}

// Runs the known operators once, outside of any lock. None of them draws a random number of the
// job's. Calls `also` last, while this thread's saves get no hooks and operators no reports.
void learn_call_sites(void (*also)());

// Called by the constructor hook while learn_call_sites() runs in this thread.
[[nodiscard]] bool learning_call_sites() noexcept;
void note_call_site(const void* return_address) noexcept;

}  // namespace pleat::bridge

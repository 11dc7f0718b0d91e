// Which call sites of the SavedVariable constructor belong to operators that close a path, or start
// one that does: those are told before their kernel runs. Learned by running each such operator once
// on a few numbers and noting who called.
#pragma once

#include "torch_bridge/policy/policy_state.h"

namespace pleat::bridge {

// Asks the process, and remembers the answer for this thread.
[[nodiscard]] CallSite look_up_call_site(const void* return_address) noexcept;

// What is known of a call site. Thread-safe.
[[nodiscard]] inline CallSite call_site_at(const void* return_address) noexcept {
  const ThreadPolicy::CachedSite& cached = thread_policy.cached_site(return_address);
  const bool hit = cached.call_site == return_address &&
                   cached.edition == PolicyState::get().edition.load(std::memory_order_acquire);
  return hit ? cached.known : look_up_call_site(return_address);
}

// Runs the known operators once, outside of any lock. None of them draws a random number of the
// job's. Calls `also` last, while this thread's saves get no hooks and nothing that its operators
// do is reported.
void learn_call_sites(void (*also)());

// Called by the constructor hook while learn_call_sites() runs in this thread.
[[nodiscard]] bool learning_call_sites() noexcept;
void note_call_site(const void* return_address) noexcept;

}  // namespace pleat::bridge

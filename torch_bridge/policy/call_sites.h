// Which call sites of the SavedVariable constructor belong to operators whose saved tensors need
// care. So the consumer is known when a tensor is packed, and not only at its first unpack. Learned
// by running each such operator once on a few numbers and noting who called.
#pragma once

#include <cstdint>

#include "sensitivity/key.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/policy_state.h"

namespace pleat::bridge {

// Under which name the lessons of a call site are booked.
[[nodiscard]] inline std::uint64_t lesson_of(const void* call_site) noexcept {
  return sensitivity::mix(reinterpret_cast<std::uintptr_t>(call_site));
}

// Asks the process and the book of lessons, and remembers the answer for this thread.
[[nodiscard]] CallSite look_up_call_site(Runtime& runtime, const void* return_address) noexcept;

// What is known of a call site, from the start or by lessons since; nothing for a null address.
// Thread-safe.
[[nodiscard]] inline CallSite call_site_at(Runtime& runtime, const void* return_address) noexcept {
  if (return_address == nullptr) {
    return {};
  }
  const ThreadPolicy::CachedSite& cached = thread_policy.cached_site(lesson_of(return_address));
  const bool hit =
      cached.call_site == return_address && cached.lessons == runtime.lessons.edition();
  return hit ? cached.known : look_up_call_site(runtime, return_address);
}

// Runs the known operators once, outside of any lock. None of them draws a random number of the
// job's. Calls `also` last, while this thread's saves get no hooks and nothing that its operators
// do is reported.
void learn_call_sites(void (*also)());

// Called by the constructor hook while learn_call_sites() runs in this thread.
[[nodiscard]] bool learning_call_sites() noexcept;
void note_call_site(const void* return_address) noexcept;

}  // namespace pleat::bridge

// Which call sites of the SavedVariable constructor belong to operators whose saved tensors need
// care: so the consumer is known when a tensor is packed, and not only at its first unpack. Learned
// by running each such operator once on a scalar and noting who called.
#pragma once

#include <cstdint>

#include "torch_bridge/policy/node_class.h"

namespace pleat::bridge {

struct CallSite {
  Needs needs;
  std::uint64_t saver = 0;   // hash of the class of the node that saves here
  bool saves_input = false;  // BeforePole::kSavesInput
  bool bears_noise = false;  // NodeClass::bears_noise
};

// Nothing for an unknown site. Thread-safe.
[[nodiscard]] CallSite known_call_site(const void* return_address) noexcept;

// Runs the operators, none of which draws a random number; once, outside of any lock. Calls `also`
// last, while this thread's saves get no hooks and nothing that its operators do is reported.
void learn_call_sites(void (*also)());

// Called by the constructor hook while learn_call_sites() runs in this thread.
[[nodiscard]] bool learning_call_sites() noexcept;
void note_call_site(const void* return_address) noexcept;

}  // namespace pleat::bridge

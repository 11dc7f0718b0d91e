// The backward of an activation makes a gradient as large as the one it is given, element by
// element, and then drops that one: for a moment a step holds both gradients, beside the restored
// tensor. Where no other code can see the first gradient, the result is written over it: same
// values, a third less memory there, and fewer bytes to move. Torch's own engine does so where it
// adds up gradients, under the same conditions (InputBuffer, can_accumulate_inplace).
#pragma once

#include "torch_bridge/c_abi.h"

namespace pleat::bridge {

// Remembers torch's functions (`real`, null: there is none) and fills `ours` with what calls of
// them shall reach instead; null where the call has to stay what it is.
void install_in_place_gradients(void* const (&real)[PLEAT_GRADIENTS],
                                void* (&ours)[PLEAT_GRADIENTS]) noexcept;

// Finds out from where torch's formulas call those operators, by running each once on four numbers;
// until then no gradient is written over. Called by learn_call_sites(), under its terms.
void learn_gradient_call_sites();

}  // namespace pleat::bridge

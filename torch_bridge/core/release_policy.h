// Decides about a saved tensor when its block is released: how exactly it is stored, given what was
// proven since it was saved, and whether it may be recomputed from another's payload instead.
// Does not look at values: the codec does, and has the last word. Torch-free.
#pragma once

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/reasons.h"

namespace pleat::bridge {

// The facts about a storage when it is released.
struct ReleasedStorage {
  CodecChoice choice{};                            // of all its saves
  Exactness exactness = Exactness::kMayBearNoise;  // else it must be exact
  bool written = false;  // before one of its saves: it is nobody's result any more
  bool whole = false;    // its saves cover it
};

struct ReleaseDecision {
  CodecChoice choice{};
  bool may_be_recomputed = false;  // if the codec finds the bytes to be the argument's function
};

// `argument`: the storage, with a payload, that the released one may be recomputed from; null:
// none.
[[nodiscard]] ReleaseDecision decide_at_release(const ReleasedStorage& released,
                                                const ReleasedStorage* argument) noexcept;

}  // namespace pleat::bridge

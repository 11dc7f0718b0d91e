// A claim is a saved tensor whose noise is not yet shown to be harmless or harmful.
#pragma once

#include <ATen/core/TensorBase.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "torch_bridge/core/decision.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

class TorchRecord;

// The layout of a saved tensor, as far as the lines of a normalisation depend on it.
struct SavedShape {
  static constexpr std::size_t kMostDimensions = 6;
  std::uint8_t rank = 0;  // above kMostDimensions the sizes are unknown
  bool contiguous = false;
  bool channels_last = false;  // dense, dimension 1 innermost
  std::int64_t row = 0;  // elements of a row in memory: dense, the last dimension innermost; else 0
  std::array<std::int64_t, kMostDimensions> sizes{};

  SavedShape() = default;
  explicit SavedShape(const c10::TensorImpl& tensor) noexcept;
};

// For CodecChoice::lines: kParts for an operator without lines whose tensor can have rows of
// zeros; kNone if the lines are not separate in memory.
// `groups`: of the channels, for kSamples.
[[nodiscard]] compress::block::Lines lines_of(const SavedShape& shape, Rows rows,
                                              std::int64_t groups = 1) noexcept;
// The dimension whose elements can differ in size: dimension 1 of images, unless a group of codes
// lies in one channel, else the last one.
[[nodiscard]] compress::block::Channels channels_of(const SavedShape& shape,
                                                    bool of_image) noexcept;

// Links a result to the argument that it can be recomputed from, once the argument has a payload.
class LateLink {
 public:
  virtual void link_argument() noexcept = 0;

 protected:
  ~LateLink() = default;
};

// The treatment of a claim: exact, or noise at once or after a proof.
struct Treatment {
  Decision decision{};
  bool waits = false;
  bool beyond_doubt = false;  // an operand next to a weight, or input of a native normalisation
};

// The decision with at least the given care, because of `why`.
[[nodiscard]] Decision with_noise(const Decision& decision, Noise noise, Why why) noexcept;

// Created by the hooks of a tensor that can become lossy. The hooks and the list of the claim's
// node hold counted references.
struct Claim {
  enum class State : std::uint8_t { kNoted, kWaits, kClosed, kDone };

  // ---- constant ----
  SavedShape shape;
  bool is_output = false;  // by hand: set when its node is found
  std::uint32_t output_number = 0;
  const torch::autograd::Node* producer = nullptr;  // alive as long as the record
  LateLink* link = nullptr;                         // likewise
  // The hooks in the node's SavedVariable; compare only.
  const torch::autograd::SavedVariableHooks* hooks = nullptr;

  // ---- guarded by the ledger's lock ----
  Decision lossy{};  // at first by type and the width of its key
  State state = State::kNoted;
  bool beyond_doubt = false;                    // as in Treatment
  TorchRecord* record = nullptr;                // valid as long as the hooks live
  const torch::autograd::Node* node = nullptr;  // the node whose list the claim is on; compare only
  Claim* next = nullptr;
  Claim* previous = nullptr;

  std::atomic<int> references{1};
  void let_go() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete this;
    }
  }
};

}  // namespace pleat::bridge

// A claim: a save of which it has yet to be decided whether its noise is harmless.
#pragma once

#include <ATen/core/TensorBase.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

class TorchRecord;

// How a saved tensor lay in memory, as far as the lines of a normalisation depend on it.
struct SavedShape {
  static constexpr std::size_t kMostDimensions = 6;
  std::uint8_t rank = 0;  // with more than kMostDimensions no size is known
  bool contiguous = false;
  bool channels_last = false;  // dense, dimension 1 innermost
  std::array<std::int64_t, kMostDimensions> sizes{};

  SavedShape() = default;
  explicit SavedShape(const c10::TensorImpl& tensor) noexcept;
};

// For CodecChoice::lines: kZeroRows where none are asked for but rows of zeros may be worth a look,
// kNone where the lines are not apart in memory.
[[nodiscard]] compress::block::Lines lines_of(const SavedShape& shape, Rows rows) noexcept;

// May link a result to the argument that it can be recomputed from, once that has a payload.
class LateLink {
 public:
  virtual void link_argument() noexcept = 0;

 protected:
  ~LateLink() = default;
};

// Made by the hooks of a tensor that might be lossy. References are counted: of the hooks, and of
// the list that the claim is on.
struct Claim {
  enum class State : std::uint8_t { kNoted, kWaits, kClosed, kDone };

  // ---- constant ----
  SavedShape shape;
  bool is_output = false;  // by hand set when its node is found
  std::uint32_t output_number = 0;
  const torch::autograd::Node* producer = nullptr;  // alive as long as the record is there
  LateLink* link = nullptr;                         // the same
  // What the node's SavedVariable has; compare only.
  const torch::autograd::SavedVariableHooks* hooks = nullptr;

  // ---- guarded by the ledger's lock ----
  CodecChoice lossy{};  // if it may be; at first of its type and the width of its key
  State state = State::kNoted;
  bool beyond_doubt = false;                    // as in Treatment
  TorchRecord* record = nullptr;                // as long as the hooks live
  const torch::autograd::Node* node = nullptr;  // whose list it is on; compare only
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

// The rule for noise: it is allowed where it is shown to be harmless, everything else is exact.
// Some tensors are shown so when they are saved, such as operands beside a weight. For others the
// proof is a path from the result of the node that saves them to a node that closes it. A node
// knows its inputs only, so the later node brings the proof, or finds a pole and takes it away: it
// walks back over what it reads (ledger.h). docs/eligibility.md says the rule, and why.
//
//   claim   a save of which it has yet to be decided whether its noise is harmless
//   note    a claim whose node is not known yet: a node saves its inputs before it is recorded
#pragma once

#include <ATen/core/TensorBase.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "torch_bridge/core/codec_adapter.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/leaves.h"
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
  bool is_output = false;
  std::uint32_t output_number = 0;
  const torch::autograd::Node* producer = nullptr;  // alive as long as the record is there
  LateLink* link = nullptr;                         // the same

  // ---- guarded by the ledger's lock ----
  CodecChoice lossy{};  // if it may be; at first of its type and the width of its key
  State state = State::kNoted;
  TorchRecord* record = nullptr;  // as long as the hooks live
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

// A tensor of `claim` was saved: by the node that has made it (Claim::is_output), or by the
// function that this thread has recorded last (`by_function`), or by the node that it will record
// next.
void add_claim(Runtime& runtime, Claim& claim, bool by_function) noexcept;

// The hooks of `claim` go, and with them their reference to the record.
void drop_claim(Claim& claim) noexcept;

// This thread has saved `variable` from a place in torch's code where a node of that class saves its
// inputs, and the kernel is yet to run. What that closes is closed now, so that it is encoded before
// the kernel takes memory.
void note_operand(const NodeClass& saver, const at::TensorBase& variable) noexcept;

// This thread has recorded `node`.
void note_node(Runtime& runtime, const torch::autograd::Node& node) noexcept;

// A backward pass begins over the graph of these roots, which these threads have recorded: what
// waits there is exact.
void end_proofs(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
                PassKind kind) noexcept;

// Some pass has differentiated what backward works out of weights alone: from then on nothing is
// lossy.
[[nodiscard]] bool differentiates_weights() noexcept;

// The result of `producer` is a weight's view or cast, or computed from weights alone.
[[nodiscard]] bool is_made_of_weights(const torch::autograd::Node& producer) noexcept;

}  // namespace pleat::bridge

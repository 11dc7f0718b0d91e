// The rule for noise: it is allowed where it is shown to be harmless, everything else is exact.
// Some tensors are shown so when they are saved, such as operands beside a weight. For others the
// proof is a path from the result of the node that saves them to a node that closes it. A node
// knows its inputs only, so the later node brings the proof, or finds a pole and takes it away: it
// walks back over what it reads (ledger.h). docs/eligibility.md says the rule, and why.
//
// A note is a claim (claim.h) whose node is not known yet: a node saves its inputs before it is
// recorded.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>
#include <span>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/claim.h"
#include "torch_bridge/policy/leaves.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

// A tensor of `claim` was saved: by the node that has made it (Claim::is_output), or by the
// function that this thread has recorded last (`by_function`), or by the node that it will record
// next.
void add_claim(Runtime& runtime, Claim& claim, bool by_function) noexcept;
// The same by hand, where no node is seen as it is recorded: its node is looked for when a later
// save leads to it.
void add_unplaced_claim(Runtime& runtime, Claim& claim,
                        const torch::autograd::Node& producer) noexcept;
// This thread saves that tensor: what of its graph was not met yet is met now.
void find_nodes(Runtime& runtime, const at::TensorBase& saved) noexcept;

// The hooks of `claim` go, and with them their reference to the record.
void drop_claim(Claim& claim) noexcept;

// This thread has saved `variable`, an input of the node that it makes, from a known site; the
// kernel is yet to run. What that closes is closed now, so that it is encoded before the kernel
// takes memory.
void note_operand(const CallSite& site, const at::TensorBase& variable) noexcept;

// This thread has recorded `node`.
void note_node(Runtime& runtime, const torch::autograd::Node& node) noexcept;

// A backward pass begins over the graph of these roots, which these threads have recorded: what
// waits there is exact.
void end_proofs(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
                PassKind kind) noexcept;

// Ledger::structure_of(); that of the node's class where there is no memory for it.
[[nodiscard]] std::uint64_t structure_of(const torch::autograd::Node& node) noexcept;

// Some pass has differentiated what backward works out of weights alone: from then on nothing is
// lossy.
[[nodiscard]] bool differentiates_weights() noexcept;

// The result of `producer` is a weight's view or cast, or computed from weights alone.
[[nodiscard]] bool is_made_of_weights(const torch::autograd::Node& producer) noexcept;

}  // namespace pleat::bridge

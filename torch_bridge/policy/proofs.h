// The rule for noise: noise is allowed only where it is shown to be harmless. Some tensors are
// shown so when they are saved, such as operands of a contraction with a weight. For others the
// proof is a path from the result of the saving node to a node that closes it. A node has edges to
// its inputs only, so the later node brings the proof, or finds a pole and revokes it: it walks
// back over its inputs (ledger.h). docs/eligibility.md explains the rule and its reasons.
//
// A note is a claim (claim.h) without a node: a node saves its inputs before it is recorded.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstdint>
#include <span>

#include "torch_bridge/core/runtime.h"
#include "torch_bridge/policy/claim.h"
#include "torch_bridge/policy/leaves.h"
#include "torch_bridge/policy/node_facts.h"

namespace pleat::bridge {

// Adds the claim of a save. The saving node is the claim's producer (Claim::is_output), or the
// function that this thread recorded last (`by_function`), or the node that it records next.
void add_claim(Runtime& runtime, Claim& claim, bool by_function) noexcept;
// The same by hand, where recording is not observed: a later save leads to the claim's node.
void add_unplaced_claim(Runtime& runtime, Claim& claim,
                        const torch::autograd::Node& producer) noexcept;
// Visits the unvisited part of the graph of a tensor that this thread saves.
void find_nodes(Runtime& runtime, const at::TensorBase& saved) noexcept;

// Ends a claim whose hooks are destroyed; they drop their reference to the record.
void drop_claim(Claim& claim) noexcept;

// This thread has saved `variable`, an input of the node that it makes, from a known site; the
// kernel has yet to run. Claims that this save closes are closed now, so that they are encoded
// before the kernel allocates memory.
void note_operand(const CallSite& site, const at::TensorBase& variable) noexcept;

// This thread has recorded `node`.
void note_node(Runtime& runtime, const torch::autograd::Node& node) noexcept;

// Ends the proofs for the graph of these roots, which these threads recorded: a backward pass
// begins, and its waiting claims become exact.
void end_proofs(const torch::autograd::edge_list& roots, std::span<const std::uint64_t> recorders,
                PassKind kind) noexcept;

// Ledger::structure_of(), or the hash of the node's class if memory is short.
[[nodiscard]] std::uint64_t structure_of(const torch::autograd::Node& node) noexcept;

// True if the script is about to differentiate a gradient of what this thread records: code that
// this thread runs asks for create_graph, and plain passes alone have not followed it lately. Takes
// the interpreter's lock, once for each pass.
[[nodiscard]] bool expects_derivative() noexcept;

// True if the result of `producer` is a weight's view or cast, or computed from weights alone.
[[nodiscard]] bool is_made_of_weights(const torch::autograd::Node& producer) noexcept;

}  // namespace pleat::bridge

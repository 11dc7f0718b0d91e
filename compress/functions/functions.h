// Activations whose results are recomputed from their arguments. function_kernels.h deals with the
// noise of a payload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/types.h"

namespace pleat::compress {

// Replaces exact values by their function, in place; `type` is a floating type.
void apply_function(void* data, std::size_t elements, ElementType type, Function function,
                    const Executor& executor) noexcept;

// ---- internal to compress/: what decode_function() and may_be_result() (codec.h) are made of ----

struct DecodeGroups;     // kernels.h
struct GroupedSections;  // grouped/grouped_sections.h
struct Header;           // format.h

// Applies the function (not kNone) to the decoded elements of a block, which lie in job.target.
void apply_to_block(const GroupedSections& sections, const DecodeGroups& job,
                    Function function) noexcept;
// The same for all blocks of a grouped payload that was decoded to `target`.
[[nodiscard]] Status apply_to_groups(const Header& header, const std::uint8_t* payload,
                                     void* target, Function function,
                                     const Executor& executor) noexcept;

// may_be_result() for a payload of lossy groups without a transform.
bool groups_may_be_result(const Header& header, const std::uint8_t* payload, Function function,
                          const void* results) noexcept;

}  // namespace pleat::compress

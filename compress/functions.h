// Activations whose results are recomputed from their arguments. What a payload's noise does to
// them is in function_kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/types.h"

namespace pleat::compress {

// The function of values that are exact, in their place; `type` a floating one.
void apply_function(void* data, std::size_t elements, ElementType type, Function function,
                    const Executor& executor) noexcept;

// ---- internal to compress/: what decode_function() and may_be_result() (codec.h) are made of ----

struct ApplyFunction;  // kernels.h
struct Header;         // format.h

// A job of the function (not kNone) with nothing else in it yet.
ApplyFunction application(Function function) noexcept;

// may_be_result() of a payload of lossy groups that are not transformed.
bool groups_may_be_result(const Header& header, const std::uint8_t* payload, Function function,
                          const void* results) noexcept;

}  // namespace pleat::compress

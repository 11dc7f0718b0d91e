// What codec.cpp and functions.cpp share of decode_function() and its kin (codec.h).
#pragma once

#include <cstdint>

#include "compress/format.h"
#include "compress/kernels.h"
#include "compress/types.h"

namespace pleat::compress {

// A job of the function (not kNone) with nothing else in it yet.
ApplyFunction application(Function function) noexcept;

// may_be_result() of a payload of lossy groups that are not transformed.
bool groups_may_be_result(const Header& header, const std::uint8_t* payload, Function function,
                          const void* results) noexcept;

}  // namespace pleat::compress

// Payloads of booleans: a bit for each element. Internal to compress/.
#pragma once

#include "compress/payload_writer.h"

namespace pleat::compress {

// True if every byte of the span is 0 or 1.
[[nodiscard]] bool are_booleans(const Span& span, const Executor& executor) noexcept;

// Encodes into `payload`. False if some byte is neither 0 nor 1 and the request does not take any;
// the payload's contents are then undefined.
[[nodiscard]] bool encode_booleans(const Request& request, const Executor& executor,
                                   std::uint8_t* payload, std::size_t capacity,
                                   EncodeResult* result) noexcept;

// Restores header.elements elements from `payload`, which holds header.payload_bytes bytes.
[[nodiscard]] Status decode_booleans(const Header& header, const std::uint8_t* payload,
                                     void* target, const Executor& executor) noexcept;

}  // namespace pleat::compress

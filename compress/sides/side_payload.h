// Payloads of sides, written and read. Internal to compress/; sides.h is what others call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/format.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"
#include "compress/types.h"

namespace pleat::compress {

// The plan for a request for sides: its header, and the bounds that elements are compared with.
// Only for requests with `sides_only`.
struct SidePlan {
  Header header;
  SideTest test;

  explicit SidePlan(const Request& request) noexcept;
  [[nodiscard]] unsigned width() const noexcept { return header.bits; }
};

// Writes the codes of elements [first, first + count); both are multiples of 32, but for the end.
void pack_sides(const Request& request, const SideTest& test, std::size_t first, std::size_t count,
                std::uint8_t* codes) noexcept;

// Encodes into `payload`. kNoRoom if that takes more than `capacity` bytes.
[[nodiscard]] EncodeResult encode_sides(const Request& request, const Executor& executor,
                                        std::uint8_t* payload, std::size_t capacity) noexcept;

// Restores header.elements elements from `payload`, which holds header.payload_bytes bytes.
[[nodiscard]] Status decode_sides(const Header& header, const std::uint8_t* payload, void* target,
                                  bool stream, const Executor& executor) noexcept;

// The sides that a payload's header tells; none if the header is damaged.
[[nodiscard]] Sides sides_of(const Header& header) noexcept;

}  // namespace pleat::compress

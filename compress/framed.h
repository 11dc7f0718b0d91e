// Framed payloads: integers and lossless floats in frames of reference, each of its own width.
// Internal to compress/. The frames' sizes follow from their entries, so offsets are a prefix sum.
#pragma once

#include "compress/payload_writer.h"

namespace pleat::compress {

struct FramedLayout {
  std::size_t frame_elements;
  std::size_t frames;
  std::size_t entry_bytes;
  std::size_t codes_offset;

  FramedLayout(ElementType type, std::size_t elements) noexcept;
};

[[nodiscard]] bool has_frames(ElementType type) noexcept;

// Code bytes of frames [first, last); SIZE_MAX if an entry is not one an encoder writes.
//   entries   of frame 0
[[nodiscard]] std::size_t frames_bytes(const FramedLayout& layout, ElementType type,
                                       std::size_t elements, const void* entries, std::size_t first,
                                       std::size_t last) noexcept;

// False: not smaller than raw, or than `capacity`; the payload's contents are undefined then.
[[nodiscard]] bool encode_framed(const Request& request, const Executor& executor,
                                 std::uint8_t* payload, std::size_t capacity,
                                 EncodeResult* result) noexcept;

// Over the head of the source. False: as above, or no memory; the source is untouched then.
[[nodiscard]] bool encode_framed_in_place(const Request& request, const Executor& executor,
                                          std::uint8_t* buffer, std::size_t capacity,
                                          EncodeResult* result) noexcept;

[[nodiscard]] Status decode_framed(const Header& header, const std::uint8_t* payload, void* target,
                                   const Executor& executor) noexcept;

}  // namespace pleat::compress

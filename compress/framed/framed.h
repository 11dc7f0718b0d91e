// Framed payloads: integers and lossless floats in frames of reference, each frame with its own
// width. The size of a frame follows from its entry, so offsets are a prefix sum. Internal to
// compress/.
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

// True for floats and integers.
[[nodiscard]] bool has_frames(ElementType type) noexcept;

// Code bytes of frames [first, last); SIZE_MAX if no encoder writes such an entry.
//   entries   of frame 0
[[nodiscard]] std::size_t frames_bytes(const FramedLayout& layout, ElementType type,
                                       std::size_t elements, const void* entries, std::size_t first,
                                       std::size_t last) noexcept;

// Encodes into `payload`. False if the result is not smaller than raw or exceeds `capacity`; the
// payload's contents are then undefined.
[[nodiscard]] bool encode_framed(const Request& request, const Executor& executor,
                                 std::uint8_t* payload, std::size_t capacity,
                                 EncodeResult* result) noexcept;

// Encodes over the head of the source. False as above, or if there is no memory; the source is then
// untouched.
[[nodiscard]] bool encode_framed_in_place(const Request& request, const Executor& executor,
                                          std::uint8_t* buffer, std::size_t capacity,
                                          EncodeResult* result) noexcept;

// Restores header.elements elements from `payload`, which holds header.payload_bytes bytes.
// kCorrupt, with the target untouched, if type, entries and lengths do not agree.
[[nodiscard]] Status decode_framed(const Header& header, const std::uint8_t* payload, void* target,
                                   const Executor& executor) noexcept;

}  // namespace pleat::compress

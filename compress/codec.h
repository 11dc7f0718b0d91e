// Encodes a span into a self-describing payload, and decodes it. Every instruction set, CUDA
// (cuda/device_codec.h) and any number of threads give identical bytes. See docs/payload_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/types.h"

namespace pleat::compress {

// Largest payload, in bytes, that encode() can produce for this request (header, metadata, codes
// and the bounded escape table, if groups may be escaped; for lossless requests the raw size plus
// header). Closed form. With near_zero, near_zero_room() bytes come on top.
[[nodiscard]] std::size_t payload_bound(const CodecSpec& spec, ElementType type,
                                        std::size_t elements) noexcept;

// Compresses `source` into `payload`.
//   source    aligned to its elements; must not change during the call
//   nonce     64-bit number no other payload of the run shares: the Philox key of the dither
//   payload   `capacity` bytes, 64-byte aligned; must not overlap the source. Nothing beyond is
//             written. Lossy requests and force_raw need payload_bound() bytes; kNoRoom says that
//             there is no room for what near_zero keeps. A lossless request
//             needs only the room of its payload; kNoRoom says that neither the short nor the raw
//             form fits. But floats need room for the form before compaction (32 bytes even for a
//             constant group) and, from 16385 elements on, 8 bytes per 16384.
//   statistics  what the encoder saw; may be nullptr
// Reads each element once (twice when groups escape). Thread-safe, never throws. Deterministic: the
// same (source, spec, nonce) gives the same bytes on every path, whatever the caller's MXCSR.
// On a status other than kOk the payload's contents are undefined and the source is untouched.
[[nodiscard]] EncodeResult encode(const Span& source, const CodecSpec& spec, std::uint64_t nonce,
                                  void* payload, std::size_t capacity, const Executor& executor,
                                  SpanStatistics* statistics) noexcept;

// How many groups encode() would escape. Reads the span once. Of elements near zero it takes no
// account: there may be fewer.
[[nodiscard]] std::size_t count_escapes(const Span& source, const CodecSpec& spec,
                                        std::uint64_t nonce, const Executor& executor) noexcept;

// The payload of `elements` elements that are zeros whatever was there: a header. kNoRoom if there
// is none for it. Thread-safe, never throws.
[[nodiscard]] EncodeResult encode_zeros(ElementType type, std::size_t elements, std::uint64_t nonce,
                                        void* payload, std::size_t capacity) noexcept;

// As encode(), but the payload is written over the head of the source itself (place:inplace).
//   buffer    64-byte aligned; holds the span on entry and on success the payload, with the same
//             bytes as encode() gives
//   capacity  bytes of the buffer that may be written, >= the span's bytes
// Works tile by tile through a small bounce buffer (about 1/64 of the payload, at least 256 KiB,
// from malloc). Returns kNoRoom if the payload cannot be proven to fit within capacity or there is
// no memory for the bounce buffer, or for near_zero. On kNoRoom and on kTooManyEscapes the source
// is untouched.
[[nodiscard]] EncodeResult encode_in_place(void* buffer, std::size_t capacity, std::size_t elements,
                                           ElementType type, const CodecSpec& spec,
                                           std::uint64_t nonce, const Executor& executor,
                                           SpanStatistics* statistics) noexcept;

// Restores a payload.
//   payload   `payload_bytes` bytes of any origin: header and lengths are checked, and whatever
//             they hold, nothing outside the two buffers is read or written
//   target    `target_bytes` must equal the span's byte count recorded in the header
// Thread-safe, never throws.
[[nodiscard]] Status decode(const void* payload, std::size_t payload_bytes, void* target,
                            std::size_t target_bytes, const Executor& executor) noexcept;

// As decode(), but writes `function` (not kNone) of each restored element, less the mean error that
// the argument's noise causes (function_kernels.h). For exact arguments x the result is within 2e-6
// (1 + |x|) of the function. kCorrupt for elements that are not floats, and where only sides were
// kept.
[[nodiscard]] Status decode_function(const void* payload, std::size_t payload_bytes, void* target,
                                     std::size_t target_bytes, Function function,
                                     const Executor& executor) noexcept;
// Applies the function of decode_function() to decoded values, changed or not since: `target` holds
// what decode() gave of the payload. The same errors.
[[nodiscard]] Status apply_decoded_function(const void* payload, std::size_t payload_bytes,
                                            void* target, std::size_t target_bytes,
                                            Function function, const Executor& executor) noexcept;
// True if `results` appear to be the function of what a lossy payload was made of, and recomputing
// them is about as accurate as storing them. `results` has as many elements as the payload.
//   In sixteen groups, drawn from all over the span, every element must be the function of a value
//   that its argument may have had, the largest result must be the function of the largest
//   argument, and the errors must average out as rounding errors do. False if none of these groups
//   has an argument above zero.
//   The argument steps of all groups must be below 2, and their root mean square at most three
//   times that of the steps the results would have. (An argument of -50 makes a step wider than any
//   result.)
// A write to a few elements can go unnoticed.
[[nodiscard]] bool may_be_result(const void* payload, std::size_t payload_bytes, Function function,
                                 const void* results) noexcept;

// The contents of the header of a payload; inspect() returns kCorrupt for bytes that are no
// payload.
struct PayloadInfo {
  ElementType type = ElementType::kBytes;
  CodecSpec spec;  // of sides: closed bounds, and bits of a side
  std::uint64_t elements = 0;
  std::uint64_t nonce = 0;
  std::uint64_t payload_bytes = 0;  // header included
  bool lossy = false;               // any group of it was quantised
};
[[nodiscard]] Status inspect(const void* payload, std::size_t payload_bytes,
                             PayloadInfo* info) noexcept;

// The instruction-set paths. kAuto is the best the CPU has. No environment variable is read here.
enum class Isa : std::uint8_t { kAuto, kScalar, kAvx2, kAvx512 };
[[nodiscard]] bool isa_supported(Isa isa) noexcept;
[[nodiscard]] const char* isa_name(Isa isa) noexcept;
[[nodiscard]] Isa active_isa() noexcept;
// For tests and benchmarks: chooses the path of the whole process. Not thread-safe.
void set_isa(Isa isa) noexcept;

}  // namespace pleat::compress

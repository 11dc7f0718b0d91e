// Encode a span into a self-describing payload, and back. One format for every instruction set and
// for CUDA (cuda/device_codec.h): identical bytes whichever path ran, however many threads. See
// docs/payload_format.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/types.h"

namespace pleat::compress {

// Largest payload, in bytes, that encode() can produce for this request (header, metadata, codes
// and the bounded escape table; for lossless requests the raw size plus header). Closed form.
[[nodiscard]] std::size_t payload_bound(const CodecSpec& spec, ElementType type,
                                        std::size_t elements) noexcept;

// Compresses `source` into `payload`.
//   source    any alignment of its element size; must not change during the call
//   nonce     64-bit number no other payload of the run shares: the Philox key of the dither
//   payload   `capacity` bytes, 64-byte aligned; must not overlap the source. Nothing beyond them
//   is
//             written. Lossy requests and force_raw need payload_bound(). A lossless one needs only
//             its payload, short or raw, and kNoRoom says that this does not fit; but floats need
//             room for the form before compaction (32 bytes for a constant group too) and, from
//             16385 elements on, 8 bytes per 16384.
// Each element is read once (twice when groups escape). Thread-safe, never throws. Deterministic:
// same bytes for same (source, spec, nonce) on every path, whatever the caller's MXCSR says.
// On a status other than kOk the payload's contents are undefined and the source is untouched.
[[nodiscard]] EncodeResult encode(const Span& source, const CodecSpec& spec, std::uint64_t nonce,
                                  void* payload, std::size_t capacity, const Executor& executor,
                                  SpanStatistics* statistics) noexcept;

// As encode(), but the payload is written over the head of the source itself (place:inplace).
//   buffer    64-byte aligned; holds the span on entry, the payload on success; the same bytes that
//             encode() would have produced
//   capacity  bytes of the buffer that may be written, >= the span's bytes
// Works tile by tile through a small bounce buffer (about 1/64 of the payload, at least 256 KiB,
// from malloc). Returns kNoRoom, with the source untouched, when the payload could not be proven
// to fit within capacity or the bounce buffer is not to be had, and kTooManyEscapes likewise.
[[nodiscard]] EncodeResult encode_in_place(void* buffer, std::size_t capacity, std::size_t elements,
                                           ElementType type, const CodecSpec& spec,
                                           std::uint64_t nonce, const Executor& executor,
                                           SpanStatistics* statistics) noexcept;

// Restores a payload.
//   payload   `payload_bytes` bytes of any origin: lengths and header are checked, nothing outside
//             the two buffers is read or written whatever they hold
//   target    `target_bytes` must equal the span's byte count recorded in the header
// Thread-safe, never throws.
[[nodiscard]] Status decode(const void* payload, std::size_t payload_bytes, void* target,
                            std::size_t target_bytes, const Executor& executor) noexcept;

// As decode(), with `function` (not kNone) of what is restored in its place, less the mean error
// that the argument's noise makes there (function_kernels.h). Within 2e-6 (1 + |x|) of the function
// of exact arguments; kCorrupt for elements that are no floats.
[[nodiscard]] Status decode_function(const void* payload, std::size_t payload_bytes, void* target,
                                     std::size_t target_bytes, Function function,
                                     const Executor& executor) noexcept;
// Whether `results`, as many elements as a lossy payload has, look like the function of what was
// encoded, and may be restored that way.
//   Of sixteen groups, drawn from all over the span, every element must be the function of what its
//   argument may have been, the largest that of the largest, and the errors must average out as
//   those of rounding do. False where none has an argument above zero to compare.
//   Of all groups the arguments' steps must be below 2, and in the root mean square no more than
//   three times as wide as the results' own would be (an argument of -50 makes a step that is wide
//   beside any result).
// A write to fewer elements than that can go unnoticed.
[[nodiscard]] bool may_be_result(const void* payload, std::size_t payload_bytes, Function function,
                                 const void* results) noexcept;

// What a payload's header says; kCorrupt if it is none.
struct PayloadInfo {
  ElementType type = ElementType::kBytes;
  CodecSpec spec;
  std::uint64_t elements = 0;
  std::uint64_t nonce = 0;
  std::uint64_t payload_bytes = 0;  // header included
  bool lossy = false;               // any group of it was quantised
};
[[nodiscard]] Status inspect(const void* payload, std::size_t payload_bytes,
                             PayloadInfo* info) noexcept;

// The instruction-set paths. kAuto is the best the CPU has; PLEAT does not read the environment
// here.
enum class Isa : std::uint8_t { kAuto, kScalar, kAvx2, kAvx512 };
[[nodiscard]] bool isa_supported(Isa isa) noexcept;
[[nodiscard]] const char* isa_name(Isa isa) noexcept;
[[nodiscard]] Isa active_isa() noexcept;
// For tests and benchmarks: choose the path of the whole process. Not thread-safe.
void set_isa(Isa isa) noexcept;

}  // namespace pleat::compress

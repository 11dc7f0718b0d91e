// Payloads in memory of the caller, without a block, a record or a verdict: for code that knows a
// payload's size before its values, such as a compiled graph, whose payloads are its own tensors.
// Store::put() adds to this a place, a verdict and the choice to stay raw.
//
// Streams: the work is queued on `stream`. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"
#include "allocator/store/block_codec.h"
#include "allocator/store/byte_ranges.h"

namespace pleat::allocator {

// Bytes of the payload of `bytes` of values, whatever they are; 0: there is no such form for
// `choice`, and the values stay as they are.
[[nodiscard]] inline std::size_t closed_bytes(BlockCodec& codec, const CodecWords& choice,
                                              std::size_t bytes) noexcept {
  const ByteRange all{0, bytes};
  return codec
      .plan({.source_bytes = bytes,
             .ranges = &all,
             .range_count = 1,
             .choice = choice,
             .closed = true})
      .room;
}

struct ClosedWrite {
  const void* source = nullptr;
  std::size_t bytes = 0;
  CodecWords choice{};
  std::uint64_t nonce = 0;  // unique among the payloads of the run
  void* target = nullptr;   // closed_bytes(), 64-byte aligned
  StreamId stream{};
};

// Writes the payload, and sets `form`, which read() needs. kKeepRaw: nothing was written, because
// there is no closed form, no memory, or no device.
[[nodiscard]] inline CodecStatus write(BlockCodec& codec, const ClosedWrite& what,
                                       PayloadForm* form) noexcept {
  const ByteRange all{0, what.bytes};
  const EncodeRequest request{.source = const_cast<void*>(what.source),
                              .source_bytes = what.bytes,
                              .ranges = &all,
                              .range_count = 1,
                              .choice = what.choice,
                              .nonce = what.nonce,
                              .stream = what.stream,
                              .closed = true};
  const EncodePlan plan = codec.plan(request);
  if (plan.room == 0) return CodecStatus::kKeepRaw;
  const EncodeResult result = codec.encode(request, plan, what.target, plan.room);
  *form = result.form;
  return result.status;
}

// Fills `target`, of `bytes`, from a payload of write().
[[nodiscard]] inline CodecStatus read(BlockCodec& codec, const void* payload,
                                      std::size_t payload_bytes, const PayloadForm& form,
                                      void* target, std::size_t bytes, StreamId stream) noexcept {
  const ByteRange all{0, bytes};
  return codec.decode({.payload = {payload, payload_bytes, form, &all, 1},
                       .target = target,
                       .target_bytes = bytes,
                       .stream = stream});
}

}  // namespace pleat::allocator

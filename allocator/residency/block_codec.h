// The seam between residency and compression: residency knows when a saved block is released and
// where its payload goes, a BlockCodec knows how bytes become fewer bytes. torch_bridge/ adapts
// compress/ to it; tests use a copying one. Opaque to residency: `choice`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/ids.h"
#include "allocator/residency/byte_ranges.h"

namespace pleat::allocator {

struct EncodeRequest {
  void* source = nullptr;             // first byte of the block
  std::size_t source_bytes = 0;       // of the storage
  const ByteRange* ranges = nullptr;  // disjoint, ascending; bytes outside restore as zero
  std::size_t range_count = 0;
  std::uint64_t choice = 0;  // codec, bits, element type: the adapter's own encoding
  std::uint64_t nonce = 0;   // unlike that of any other payload of the run
  TensorKey key{};
  StreamId stream{};
};

// What the encoder has seen, summed over the block. A width's squared error follows from the
// squared ranges, and with it bits can be assigned.
struct CodecStatistics {
  std::uint64_t elements = 0;  // lossy elements
  std::uint64_t groups = 0;
  std::uint64_t two_valued_groups = 0;
  std::uint64_t escaped_groups = 0;
  std::uint64_t elements_at_minimum = 0;
  double sum_squared_range = 0;
  double energy = 0;
};

enum class CodecStatus : std::uint8_t {
  kOk,
  kKeepRaw,  // not worth it or not possible: residency holds the block as it is
  kFailed,   // decode only: the payload is damaged
};

class BlockCodec {
 public:
  virtual ~BlockCodec() = default;

  // Upper bound of the payload, in bytes; 0: do not encode, hold the block raw.
  [[nodiscard]] virtual std::size_t payload_bytes(const EncodeRequest& request) noexcept = 0;

  // Writes the payload (64-byte aligned, `capacity` bytes) and says how many bytes it took.
  // On asynchronous devices the work is queued on request.stream.
  [[nodiscard]] virtual CodecStatus encode(const EncodeRequest& request, void* payload,
                                           std::size_t capacity, std::size_t* payload_bytes,
                                           CodecStatistics* statistics) noexcept = 0;

  // As encode(), over the head of the source itself.
  [[nodiscard]] virtual CodecStatus encode_in_place(const EncodeRequest& request,
                                                    std::size_t* payload_bytes,
                                                    CodecStatistics* statistics) noexcept = 0;

  // Fills `target` (the whole storage, `target_bytes`) from a payload of this codec.
  [[nodiscard]] virtual CodecStatus decode(const void* payload, std::size_t payload_bytes,
                                           void* target, std::size_t target_bytes,
                                           StreamId stream) noexcept = 0;

  // As decode(), and then an elementwise function of each element in its place. `function` is the
  // adapter's own encoding, as `choice` is; never 0.
  [[nodiscard]] virtual CodecStatus decode_function(const void* payload, std::size_t payload_bytes,
                                                    void* target, std::size_t target_bytes,
                                                    StreamId stream,
                                                    std::uint64_t function) noexcept {
    static_cast<void>(payload), static_cast<void>(payload_bytes), static_cast<void>(target),
        static_cast<void>(target_bytes), static_cast<void>(stream), static_cast<void>(function);
    return CodecStatus::kFailed;
  }

  // Whether `result` looks like that function of what the payload was made of, and is as well
  // restored that way.
  [[nodiscard]] virtual bool may_be_result(const void* payload, std::size_t payload_bytes,
                                           std::uint64_t function, const void* result,
                                           std::size_t result_bytes) noexcept {
    static_cast<void>(payload), static_cast<void>(payload_bytes), static_cast<void>(function),
        static_cast<void>(result), static_cast<void>(result_bytes);
    return false;
  }
};

}  // namespace pleat::allocator

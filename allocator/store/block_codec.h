// BlockCodec is the interface between the store and compression. The store knows where a payload
// goes; a BlockCodec turns the bytes into fewer bytes. torch_bridge/ adapts compress/ to it; tests
// use codecs of their own. The store never interprets the words of choice, function, form and
// details.
//
// The store makes two calls: plan() examines the block, encode() writes the planned payload. The
// work can be queued on a stream. Its result is then either certain, and counts as done in the
// stream's order, or the device decides, and verdict() returns the result later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "allocator/ids.h"
#include "allocator/store/byte_ranges.h"

namespace pleat::allocator {

// The layout of a payload, for decode(). The record keeps it on the host: reading it needs no copy.
struct PayloadForm {
  std::array<std::uint64_t, 4> words{};
  // A decode writes to memory within the payload, so that only one may run at a time.
  bool has_scratch = false;
  [[nodiscard]] bool operator==(const PayloadForm&) const = default;
};

// The adapter's own encoding of codec and parameters. Equal words request the same encoding.
struct CodecWords {
  std::array<std::uint64_t, 2> words{};
  constexpr CodecWords() = default;
  constexpr CodecWords(std::uint64_t first, std::uint64_t second = 0) : words{first, second} {}
  constexpr CodecWords(const std::array<std::uint64_t, 2>& all) : words(all) {}
  [[nodiscard]] bool operator==(const CodecWords&) const = default;
};

// Noise that a restore adds for a pass that measures its effect: the adapter's own encoding.
struct DisturbanceWords {
  std::array<std::uint64_t, 4> words{};
};

// A payload that is complete in the order of its stream.
struct PayloadView {
  const void* data = nullptr;
  std::size_t bytes = 0;
  PayloadForm form{};
  const ByteRange* ranges = nullptr;  // ranges of the block, as in EncodeRequest
  std::size_t range_count = 0;
};

struct EncodeRequest {
  void* source = nullptr;             // first byte of the block
  std::size_t source_bytes = 0;       // bytes of the storage
  const ByteRange* ranges = nullptr;  // disjoint, ascending; bytes outside restore as zero
  std::size_t range_count = 0;
  CodecWords choice{};      // codec, bits, element type
  std::uint64_t nonce = 0;  // unique among the payloads of the run
  TensorKey key{};
  StreamId stream{};
  // The bytes of the block can equal `function` of the bytes that this payload was made of, element
  // by element. function 0: they do not.
  PayloadView argument{};
  std::uint64_t function = 0;
  // encode(): plan.scratch bytes, 64-byte aligned, for the work that the codec queues in the call.
  void* scratch = nullptr;
  // plan() examines all relevant values, not samples. Set for encoding in place and after
  // kPlanAgain.
  bool thorough = false;
  // plan() goes by `choice` alone, and `source` can be null. EncodePlan::room is then the size of
  // the payload for any values, or 0 if there is no such form. encode() returns kOk for any values.
  bool closed = false;
};

struct EncodePlan {
  // The codec's own findings about the block.
  struct Details {
    virtual ~Details() = default;
  };
  std::size_t room = 0;     // upper bound of the payload, in bytes; 0: hold the block raw
  std::size_t scratch = 0;  // bytes that encode() needs in addition, EncodeRequest::scratch
  bool recomputed = false;  // the argument gives the bytes: no payload is written
  bool in_place = false;    // the payload can be written over the head of the source
  std::unique_ptr<Details> details;
};

enum class CodecStatus : std::uint8_t {
  kOk,
  kKeepRaw,    // not possible or of no use: residency holds the block raw
  kQueued,     // encode only: verdict() decides later between kOk and kKeepRaw
  kPlanAgain,  // encode only: like kKeepRaw, but a thorough plan can succeed
  kFailed,     // decode only: the payload is damaged
};

// Identifies a queued encode. 0: none.
struct EncodeTicket {
  std::uint64_t value = 0;
  // The payload would restore to other bytes than the source. A restore must then wait for the
  // verdict, so that its bytes do not depend on timing.
  bool lossy = false;
};

struct EncodeResult {
  CodecStatus status = CodecStatus::kKeepRaw;
  std::size_t payload_bytes = 0;
  PayloadForm form{};
  EncodeTicket ticket{};  // set with kQueued
};

// A restore into `target`, in this order: decode the payload; add noise; apply the function.
struct DecodeRequest {
  // Without data the target has the bytes already, and the view has their ranges.
  PayloadView payload{};
  void* target = nullptr;  // the whole storage
  std::size_t target_bytes = 0;
  StreamId stream{};
  const DisturbanceWords* noise = nullptr;
  // Elementwise, the adapter's own encoding, like `choice`. 0: none.
  std::uint64_t function = 0;
  void* scratch = nullptr;  // decode_scratch() bytes, 64-byte aligned
};

// Threads: any, concurrently.
class BlockCodec {
 public:
  virtual ~BlockCodec() = default;

  // Examines the block once. EncodePlan::recomputed: the bytes of `request.argument` suffice.
  [[nodiscard]] virtual EncodePlan plan(const EncodeRequest& request) noexcept = 0;

  // Estimate of the bytes that encode() would write, for a plan that is not carried out.
  [[nodiscard]] virtual std::size_t expected_bytes(const EncodeRequest& /*request*/,
                                                   const EncodePlan& plan) noexcept {
    return plan.room;
  }

  // Writes the payload (64-byte aligned, `capacity` >= plan.room bytes) and returns its size in
  // bytes. On a device the work is queued on request.stream. After kQueued, both must stay until
  // the verdict. With EncodePlan::in_place, `payload` can be the source itself: then never kQueued,
  // and after kKeepRaw and kPlanAgain the source is unchanged.
  [[nodiscard]] virtual EncodeResult encode(const EncodeRequest& request, const EncodePlan& plan,
                                            void* payload, std::size_t capacity) noexcept = 0;

  // Whether verdict() would return without waiting. Must be quick and take no lock but the codec's
  // own: residency calls it under its locks.
  [[nodiscard]] virtual bool is_decided(EncodeTicket /*ticket*/) noexcept { return true; }
  // The result of a queued encode. The status is kQueued while the result is unknown. With `wait`
  // the call blocks until the result is known or a time limit passes, because earlier work can
  // depend on the caller. A ticket stays valid until another status is returned or forget().
  [[nodiscard]] virtual EncodeResult verdict(EncodeTicket /*ticket*/, bool /*wait*/) noexcept {
    return {};
  }
  // Discards a ticket. Source and payload can be reused, in the order of the stream.
  virtual void forget(EncodeTicket /*ticket*/) noexcept {}

  // Queues the work of a restore. kFailed: the payload is damaged, or the codec does not support
  // the request.
  [[nodiscard]] virtual CodecStatus decode(const DecodeRequest& request) noexcept = 0;
  // Bytes that decode() needs in addition, DecodeRequest::scratch.
  [[nodiscard]] virtual std::size_t decode_scratch(const DecodeRequest& /*request*/) noexcept {
    return 0;
  }
};

}  // namespace pleat::allocator

// The seam between residency and compression: residency knows when a saved block is released and
// where its payload goes, a BlockCodec knows how bytes become fewer bytes. torch_bridge/ adapts
// compress/ to it; tests use codecs of their own. Opaque to residency: choice, function, form,
// details.
//
// A codec is asked twice: plan() looks at the block, encode() writes what was planned. The work may
// be queued on a stream. Then its result is either sure, and counts as done in the stream's order,
// or the device has the last word, which verdict() tells later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "allocator/ids.h"
#include "allocator/residency/byte_ranges.h"

namespace pleat::allocator {

// How the bytes of a payload are to be read. The record keeps it on the host: what lies on a device
// is never looked into to find that out.
struct PayloadForm {
  std::array<std::uint64_t, 4> words{};
  [[nodiscard]] bool operator==(const PayloadForm&) const = default;
};

// What a codec is asked for: the adapter's own encoding. Two of equal words ask for the same.
struct CodecWords {
  std::array<std::uint64_t, 2> words{};
  constexpr CodecWords() = default;
  constexpr CodecWords(std::uint64_t first, std::uint64_t second = 0) : words{first, second} {}
  constexpr CodecWords(const std::array<std::uint64_t, 2>& all) : words(all) {}
  [[nodiscard]] bool operator==(const CodecWords&) const = default;
};

// Noise that a restore adds, for whoever asks what it would do: the adapter's own encoding.
struct DisturbanceWords {
  std::array<std::uint64_t, 4> words{};
};

// A payload that is complete in the order of its stream.
struct PayloadView {
  const void* data = nullptr;
  std::size_t bytes = 0;
  PayloadForm form{};
  const ByteRange* ranges = nullptr;  // of the block, as EncodeRequest had them
  std::size_t range_count = 0;
};

struct EncodeRequest {
  void* source = nullptr;             // first byte of the block
  std::size_t source_bytes = 0;       // of the storage
  const ByteRange* ranges = nullptr;  // disjoint, ascending; bytes outside restore as zero
  std::size_t range_count = 0;
  CodecWords choice{};      // codec, bits, element type
  std::uint64_t nonce = 0;  // unlike that of any other payload of the run
  TensorKey key{};
  StreamId stream{};
  // Where the bytes may be `function`, element by element, of what this payload was made of.
  // function 0: they are not.
  PayloadView argument{};
  std::uint64_t function = 0;
  // encode(): plan.scratch bytes, 64-byte aligned, the codec's for what it queues in the call.
  void* scratch = nullptr;
  // plan() looks at all values that matter, not at samples. Set where encoding in place could not
  // be undone, and after kPlanAgain.
  bool thorough = false;
};

struct EncodePlan {
  // The codec's own: what it has found by looking at the block.
  struct Details {
    virtual ~Details() = default;
  };
  std::size_t room = 0;     // upper bound of the payload, in bytes; 0: hold the block raw
  std::size_t scratch = 0;  // bytes that encode() needs beside it, EncodeRequest::scratch
  bool recomputed = false;  // the argument gives the bytes: there is nothing to write
  bool in_place = false;    // encode_in_place() can do it
  std::unique_ptr<Details> details;
};

enum class CodecStatus : std::uint8_t {
  kOk,
  kKeepRaw,    // not worth it or not possible: residency holds the block as it is
  kQueued,     // encode only: verdict() knows later whether it is kOk or kKeepRaw
  kPlanAgain,  // encode only: as kKeepRaw, but a thorough plan may find a way
  kFailed,     // decode only: the payload is damaged
};

// Names an encode that was queued. 0: none.
struct EncodeTicket {
  std::uint64_t value = 0;
};

struct EncodeResult {
  CodecStatus status = CodecStatus::kKeepRaw;
  std::size_t payload_bytes = 0;
  PayloadForm form{};
  EncodeTicket ticket{};  // of kQueued
};

// Threads: any, side by side.
class BlockCodec {
 public:
  virtual ~BlockCodec() = default;

  // Looks at the block once. Recomputed: the bytes of `request.argument` do as well.
  [[nodiscard]] virtual EncodePlan plan(const EncodeRequest& request) noexcept = 0;

  // About how many bytes encode() would take, for a plan that is not carried out.
  [[nodiscard]] virtual std::size_t expected_bytes(const EncodeRequest& /*request*/,
                                                   const EncodePlan& plan) noexcept {
    return plan.room;
  }

  // Writes the payload (64-byte aligned, `capacity` >= plan.room bytes) and says how many bytes it
  // takes. On a device the work is queued on request.stream. kQueued: source and payload must stay
  // until the verdict.
  [[nodiscard]] virtual EncodeResult encode(const EncodeRequest& request, const EncodePlan& plan,
                                            void* payload, std::size_t capacity) noexcept = 0;

  // As encode(), over the head of the source itself. Never kQueued. After kKeepRaw and kPlanAgain
  // the source is as it was.
  [[nodiscard]] virtual EncodeResult encode_in_place(const EncodeRequest& request,
                                                     const EncodePlan& plan) noexcept = 0;

  // Whether verdict() would answer without waiting. Must be quick and take no lock but the codec's
  // own: residency asks under its locks.
  [[nodiscard]] virtual bool is_decided(EncodeTicket /*ticket*/) noexcept { return true; }
  // What became of an encode that was queued. The status is kQueued while that is not known; with
  // `wait` the call blocks until it is, or has taken too long: what the device waits for may wait
  // for the caller. A ticket is good until another status was returned, or forget().
  [[nodiscard]] virtual EncodeResult verdict(EncodeTicket /*ticket*/, bool /*wait*/) noexcept {
    return {};
  }
  // Whether what is read must not depend on when the verdict comes: the payload would give other
  // bytes than the source. Whoever restores the block then waits for the verdict.
  [[nodiscard]] virtual bool is_lossy(EncodeTicket /*ticket*/) noexcept { return false; }
  // Nobody will ask for the verdict. Source and payload may be used again, in the order of the
  // stream.
  virtual void forget(EncodeTicket /*ticket*/) noexcept {}

  // Fills `target` (the whole storage, `target_bytes`) from a payload of this codec, queued on
  // `stream`.
  [[nodiscard]] virtual CodecStatus decode(const PayloadView& payload, void* target,
                                           std::size_t target_bytes, StreamId stream) noexcept = 0;

  // As decode(), and then an elementwise function of each element in its place. `function` is the
  // adapter's own encoding, as `choice` is; never 0.
  [[nodiscard]] virtual CodecStatus decode_function(const PayloadView& payload, void* target,
                                                    std::size_t target_bytes, StreamId stream,
                                                    std::uint64_t function) noexcept {
    static_cast<void>(payload), static_cast<void>(target), static_cast<void>(target_bytes),
        static_cast<void>(stream), static_cast<void>(function);
    return CodecStatus::kFailed;
  }

  // Adds noise to a block that was restored from a payload, or from raw bytes (a view without data
  // then, but with ranges). After that, unless `function` is 0, does what decode_function() does to
  // values that it has decoded. Queued on `stream`. kFailed: it cannot.
  //   scratch  disturb_scratch() bytes, 64-byte aligned, the codec's for what it queues in the call
  [[nodiscard]] virtual CodecStatus disturb(const PayloadView& restored_from, void* block,
                                            std::size_t bytes, const DisturbanceWords& how,
                                            StreamId stream, std::uint64_t function,
                                            void* scratch) noexcept {
    static_cast<void>(restored_from), static_cast<void>(block), static_cast<void>(bytes),
        static_cast<void>(how), static_cast<void>(stream), static_cast<void>(function),
        static_cast<void>(scratch);
    return CodecStatus::kFailed;
  }
  [[nodiscard]] virtual std::size_t disturb_scratch(std::size_t /*bytes*/,
                                                    const DisturbanceWords& /*how*/) noexcept {
    return 0;
  }
};

}  // namespace pleat::allocator

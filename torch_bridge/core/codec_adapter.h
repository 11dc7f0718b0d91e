// Makes compress/block/ look like the BlockCodec that residency wants, and counts what went
// through. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "allocator/residency/block_codec.h"
#include "compress/block/block_payload.h"

namespace pleat::bridge {

// What a record carries as its opaque `choice` and `function`.
using CodecChoice = compress::block::BlockSpec;
using Recomputed = compress::block::Recomputed;

// What went through the codec, by class, for the report. Relaxed atomics.
struct CodecTotals {
  struct Class {
    std::atomic<std::uint64_t> payloads{0}, source_bytes{0}, payload_bytes{0}, elements{0};
  };
  Class lossy_fp32, lossy_16bit, lossless_float, boolean, integer, raw;
  Class sides;    // of whose values only the sides are kept
  Class nothing;  // of which nothing but the size is
  std::atomic<std::uint64_t> two_valued_groups{0}, escaped_groups{0}, groups{0};
  std::atomic<std::uint64_t> kept_raw{0}, kept_raw_bytes{0};
  std::atomic<std::uint64_t> bits_weighted_elements{0};  // sum of width * elements over lossy spans
};

class CodecAdapter final : public allocator::BlockCodec {
 public:
  // copy_raw: what has no shorter form is stored as a raw payload instead of being held.
  CodecAdapter(compress::Executor executor, bool copy_raw)
      : executor_(std::move(executor)), copy_raw_(copy_raw) {}

  allocator::EncodePlan plan(const allocator::EncodeRequest& request) noexcept override;
  allocator::EncodeResult encode(const allocator::EncodeRequest& request,
                                 const allocator::EncodePlan& plan, void* payload,
                                 std::size_t capacity) noexcept override;
  allocator::EncodeResult encode_in_place(const allocator::EncodeRequest& request,
                                          const allocator::EncodePlan& plan) noexcept override;
  allocator::CodecStatus decode(const allocator::PayloadView& payload, void* target,
                                std::size_t target_bytes,
                                allocator::StreamId stream) noexcept override;
  allocator::CodecStatus decode_function(const allocator::PayloadView& payload, void* target,
                                         std::size_t target_bytes, allocator::StreamId stream,
                                         std::uint64_t function) noexcept override;

  void set_copy_raw(bool copy_raw) noexcept { copy_raw_ = copy_raw; }
  [[nodiscard]] const CodecTotals& totals() const noexcept { return totals_; }

 private:
  allocator::EncodeResult finish(const allocator::EncodeRequest& request,
                                 const compress::block::BlockPlan& plan,
                                 const compress::block::BlockEncodeResult& result) noexcept;
  [[nodiscard]] bool copy_raw() const noexcept { return copy_raw_.load(std::memory_order_relaxed); }
  void count_kept_raw(const allocator::EncodeRequest& request) noexcept;
  void account(const compress::block::BlockSpec& spec,
               const compress::block::BlockEncodeResult& result) noexcept;

  compress::Executor executor_;
  std::atomic<bool> copy_raw_;
  CodecTotals totals_;
};

}  // namespace pleat::bridge

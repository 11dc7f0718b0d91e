// Makes compress/block/ look like the BlockCodec that residency wants, and counts what went
// through. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/store/block_codec.h"
#include "compress/block/block_payload.h"
#include "compress/block/disturb.h"
#include "torch_bridge/core/codec_totals.h"
#include "torch_bridge/core/key_scales.h"

namespace pleat::bridge {

// The contents of the opaque `choice` and `function` of a record.
using CodecChoice = compress::block::BlockSpec;
using Recomputed = compress::block::Recomputed;

// The ranges of a record as compress/block/ has them. Throws std::bad_alloc.
[[nodiscard]] std::vector<compress::block::ByteRange> block_ranges(
    const allocator::ByteRange* ranges, std::size_t count);

// The opaque disturbance of a record: `how` to a block that was asked for as `choice`.
[[nodiscard]] allocator::DisturbanceWords pack_disturbance(
    const CodecChoice& choice, const compress::block::Disturbance& how) noexcept;
struct UnpackedDisturbance {
  CodecChoice choice;
  compress::block::Disturbance how;
};
[[nodiscard]] UnpackedDisturbance unpack_disturbance(
    const allocator::DisturbanceWords& packed) noexcept;

class CodecAdapter final : public allocator::BlockCodec {
 public:
  // copy_raw: a block without a shorter form is stored as a raw payload instead of being held.
  CodecAdapter(compress::Executor executor, bool copy_raw)
      : executor_(std::move(executor)), copy_raw_(copy_raw) {}

  allocator::EncodePlan plan(const allocator::EncodeRequest& request) noexcept override;
  // From a sample of the block's values, encoded for that.
  std::size_t expected_bytes(const allocator::EncodeRequest& request,
                             const allocator::EncodePlan& plan) noexcept override;
  allocator::EncodeResult encode(const allocator::EncodeRequest& request,
                                 const allocator::EncodePlan& plan, void* payload,
                                 std::size_t capacity) noexcept override;
  allocator::CodecStatus decode(const allocator::DecodeRequest& request) noexcept override;

  [[nodiscard]] const compress::Executor& executor() const noexcept { return executor_; }

  void set_copy_raw(bool copy_raw) noexcept { copy_raw_ = copy_raw; }
  [[nodiscard]] const CodecTotals& totals() const noexcept { return totals_; }

 private:
  allocator::EncodeResult finish(const allocator::EncodeRequest& request,
                                 const compress::block::BlockPlan& plan,
                                 const compress::block::BlockEncodeResult& result) noexcept;
  [[nodiscard]] compress::block::Scales scales_of(const allocator::EncodeRequest& request) noexcept;
  [[nodiscard]] bool copy_raw() const noexcept { return copy_raw_.load(std::memory_order_relaxed); }

  compress::Executor executor_;
  std::atomic<bool> copy_raw_;
  CodecTotals totals_;
  KeyScales scales_;
};

}  // namespace pleat::bridge

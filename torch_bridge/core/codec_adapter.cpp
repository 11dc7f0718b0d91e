#include "torch_bridge/core/codec_adapter.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace pleat::bridge {
namespace {

using allocator::CodecStatus;
using allocator::DecodeRequest;
using allocator::EncodeRequest;
using allocator::PayloadView;
using compress::ElementType;
using compress::Status;
using namespace compress::block;

// A request in the words of compress/block/, and the findings about its values. Throws
// std::bad_alloc.
struct Details final : allocator::EncodePlan::Details {
  Details(const EncodeRequest& request, const Scales& scales, bool copy_raw,
          const compress::Executor& executor)
      : ranges(block_ranges(request.ranges, request.range_count)),
        source{request.source, request.source_bytes, ranges.data(), ranges.size()},
        plan(plan_block(source, BlockSpec::unpack(request.choice.words), copy_raw,
                        request.closed     ? Effort::kNone
                        : request.thorough ? Effort::kThorough
                                           : Effort::kQuick,
                        executor, scales)) {}

  std::vector<compress::block::ByteRange> ranges;
  BlockSource source;
  BlockPlan plan;
};

const Details& details(const allocator::EncodePlan& plan) noexcept {
  return static_cast<const Details&>(*plan.details);
}

BlockForm form_of(const PayloadView& payload) noexcept {
  return BlockForm::unpack(payload.form.words);
}

// The payload bytes for each byte of the largest range, estimated from a sample of its middle.
// Empty if it has no payload, or there is no memory. The places of lines in a sample are unknown.
std::optional<double> payload_share(const EncodeRequest& request,
                                    const compress::Executor& executor) {
  constexpr std::size_t kMostSample = 256u << 10;
  constexpr std::size_t kPayloadAlign = 64, kPage = 4096;
  const auto* const largest = std::max_element(
      request.ranges, request.ranges + request.range_count,
      [](const auto& a, const auto& b) { return a.end - a.begin < b.end - b.begin; });
  const std::size_t all = largest->end - largest->begin;
  compress::block::ByteRange sample{0, std::min(all, kMostSample)};
  const std::size_t begin =
      largest->begin + (all == sample.end ? 0 : (all - sample.end) / 2 / kPage * kPage);
  const BlockSource source{static_cast<const std::byte*>(request.source) + begin, sample.end,
                           &sample, 1};
  BlockSpec spec = BlockSpec::unpack(request.choice.words);
  spec.lines = {};
  const BlockPlan plan = plan_block(source, spec, false, Effort::kQuick, executor);
  const std::size_t capacity = (plan.room + kPayloadAlign - 1) / kPayloadAlign * kPayloadAlign;
  const std::unique_ptr<void, decltype(&std::free)> payload(
      capacity != 0 ? std::aligned_alloc(kPayloadAlign, capacity) : nullptr, &std::free);
  if (payload == nullptr) return std::nullopt;
  const BlockEncodeResult result =
      encode_block(source, plan, request.nonce, payload.get(), capacity, executor);
  if (result.status != Status::kOk) return std::nullopt;
  return static_cast<double>(result.payload_bytes) / static_cast<double>(sample.end);
}

CodecStatus status_of(Status status) noexcept {
  return status == Status::kOk ? CodecStatus::kOk : CodecStatus::kFailed;
}

}  // namespace

allocator::EncodePlan CodecAdapter::plan(const EncodeRequest& request) noexcept {
  allocator::EncodePlan plan;
  if (request.function != 0 && !request.closed &&
      may_be_result(form_of(request.argument), request.argument.data, request.argument.bytes,
                    Recomputed::unpack(request.function), request.source, request.source_bytes)) {
    plan.recomputed = true;
    return plan;
  }
  try {
    auto found = std::make_unique<Details>(request, scales_of(request), copy_raw(), executor_);
    plan.room = found->plan.room;
    plan.in_place = found->plan.in_place;
    plan.details = std::move(found);
  } catch (...) {  // no memory: as if there were no hope
  }
  if (plan.room == 0) {
    totals_.add_kept_raw(request.source_bytes);
  }
  return plan;
}

// A closed request has no values yet, and must not depend on others.
Scales CodecAdapter::scales_of(const EncodeRequest& request) noexcept {
  const BlockSpec spec = BlockSpec::unpack(request.choice.words);
  if (request.closed || request.range_count != 1 || !may_have_scales(spec)) return {};
  const allocator::ByteRange& range = request.ranges[0];
  const std::size_t size = element_size(spec.type);
  if (range.begin % size != 0 || (range.end - range.begin) % size != 0) return {};
  return scales_.of(request.key, request.choice, [&](const Scales& before) {
    return measure_scales({static_cast<const std::byte*>(request.source) + range.begin,
                           (range.end - range.begin) / size, spec.type},
                          spec, before);
  });
}

std::size_t CodecAdapter::expected_bytes(const EncodeRequest& request,
                                         const allocator::EncodePlan& plan) noexcept {
  try {
    if (const auto share = request.range_count != 0 && !request.closed
                               ? payload_share(request, executor_)
                               : std::nullopt) {
      double bytes = static_cast<double>(details(plan).plan.patch_bytes);
      for (std::size_t i = 0; i < request.range_count; ++i) {
        bytes += *share * static_cast<double>(request.ranges[i].end - request.ranges[i].begin);
      }
      return std::min(plan.room, static_cast<std::size_t>(bytes));
    }
  } catch (...) {  // no memory for a sample
  }
  return plan.room;
}

allocator::EncodeResult CodecAdapter::encode(const EncodeRequest& request,
                                             const allocator::EncodePlan& plan, void* payload,
                                             std::size_t capacity) noexcept {
  const Details& d = details(plan);
  if (payload == request.source) {
    return finish(
        request, d.plan,
        encode_block_in_place(payload, request.source_bytes, d.plan, request.nonce, executor_));
  }
  BlockSource source = d.source;
  source.data = request.source;  // a closed plan has none
  return finish(request, d.plan,
                encode_block(source, d.plan, request.nonce, payload, capacity, executor_));
}

CodecStatus CodecAdapter::decode(const DecodeRequest& request) noexcept {
  const PayloadView& payload = request.payload;
  const BlockForm form = form_of(payload);
  const auto function = Recomputed::unpack(request.function);
  const auto apply = [&](auto* how) {
    return status_of(how(form, payload.data, payload.bytes, request.target, request.target_bytes,
                         function, executor_));
  };
  if (payload.data != nullptr) {
    if (request.function != 0 && request.noise == nullptr) return apply(&decode_block_function);
    const CodecStatus decoded = status_of(decode_block(
        form, payload.data, payload.bytes, request.target, request.target_bytes, executor_));
    if (decoded != CodecStatus::kOk || request.noise == nullptr) return decoded;
  }
  try {
    const UnpackedDisturbance noise = unpack_disturbance(*request.noise);
    const std::vector<compress::block::ByteRange> ranges =
        block_ranges(payload.ranges, payload.range_count);
    const BlockSource source{request.target, request.target_bytes, ranges.data(), ranges.size()};
    compress::CodecSpec codec = noise.choice.codec();
    if (payload.data != nullptr) codec = codec_of_payload(form, payload.data, payload.bytes, codec);
    if (!disturb_block(request.target, source, noise.choice, codec, noise.how, executor_)) {
      return CodecStatus::kFailed;
    }
  } catch (...) {
    return CodecStatus::kFailed;
  }
  return request.function == 0 ? CodecStatus::kOk : apply(&apply_block_function);
}

std::vector<compress::block::ByteRange> block_ranges(const allocator::ByteRange* ranges,
                                                     std::size_t count) {
  std::vector<compress::block::ByteRange> found;
  found.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    found.push_back({ranges[i].begin, ranges[i].end});
  }
  return found;
}

allocator::DisturbanceWords pack_disturbance(const CodecChoice& choice,
                                             const Disturbance& how) noexcept {
  const CodecChoice::Words words = choice.pack();
  return {{words[0], words[1], how.nonce,
           std::uint64_t{how.bits} << 32 | std::bit_cast<std::uint32_t>(how.amplitude)}};
}

UnpackedDisturbance unpack_disturbance(const allocator::DisturbanceWords& packed) noexcept {
  const auto& [first, second, nonce, rest] = packed.words;
  return {.choice = CodecChoice::unpack({first, second}),
          .how = {.bits = static_cast<std::uint8_t>(rest >> 32),
                  .amplitude = std::bit_cast<float>(static_cast<std::uint32_t>(rest)),
                  .nonce = nonce}};
}

allocator::EncodeResult CodecAdapter::finish(const EncodeRequest& request, const BlockPlan& plan,
                                             const BlockEncodeResult& result) noexcept {
  if (result.status != Status::kOk) {
    if (plan.guesses) {
      return {CodecStatus::kPlanAgain, 0, {}, {}};
    }
    totals_.add_kept_raw(request.source_bytes);
    return {};
  }
  totals_.add(plan.spec, result.form.elements, result.payload_bytes, result.statistics);
  return {CodecStatus::kOk, result.payload_bytes, {result.form.pack()}, {}};
}

}  // namespace pleat::bridge

#include "torch_bridge/core/codec_adapter.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "compress/block/block_layout.h"
#include "compress/block/line_patch.h"
#include "compress/codec.h"

namespace pleat::bridge {
namespace {

using allocator::CodecStatus;
using allocator::EncodeRequest;
using compress::ElementType;
using compress::Status;
using namespace compress::block;

// A request in the words of compress/block/. Without memory for its ranges it has none at all.
class Source {
 public:
  explicit Source(const EncodeRequest& request) noexcept
      : block_{request.source, request.source_bytes, &one_, request.range_count} {
    if (request.range_count == 1) {
      one_ = {request.ranges[0].begin, request.ranges[0].end};
      return;
    }
    try {
      many_.reserve(request.range_count);
      for (std::size_t i = 0; i < request.range_count; ++i) {
        many_.push_back({request.ranges[i].begin, request.ranges[i].end});
      }
      block_.ranges = many_.data();
    } catch (...) {
      valid_ = false;
    }
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  [[nodiscard]] BlockPlan plan(std::uint64_t choice, bool copy_raw) const noexcept {
    return valid_ ? plan_block(block_, BlockSpec::unpack(choice), copy_raw) : BlockPlan();
  }
  [[nodiscard]] const BlockSource& block() const noexcept { return block_; }

 private:
  compress::block::ByteRange one_{};
  std::vector<compress::block::ByteRange> many_;
  BlockSource block_;
  bool valid_ = true;
};

// To be deleted: reads off a payload what the record will keep beside it. decode_block() checks all
// of it. Of a damaged payload: a form that it has not.
BlockForm form_of(const void* payload, std::size_t payload_bytes,
                  std::size_t target_bytes) noexcept {
  const auto* const in = static_cast<const std::byte*>(payload);
  TableHeader header{};
  if (payload_bytes >= sizeof header) {
    std::memcpy(&header, in, sizeof header);
  }
  const bool table = header.magic == kTableMagic;
  if (table && (header.count > kMostSpans || table_bytes(header.count) > payload_bytes)) {
    return {};
  }
  BlockForm form;
  form.shape = table ? BlockShape::kTable : BlockShape::kSingle;
  form.spans = table ? static_cast<std::uint32_t>(header.count) : 1;
  for (std::size_t i = 0; i < form.spans; ++i) {
    TableEntry entry{0, target_bytes, 0, payload_bytes};
    if (table) {
      std::memcpy(&entry, in + sizeof header + i * sizeof entry, sizeof entry);
    }
    if (entry.offset > payload_bytes || entry.payload_bytes > payload_bytes - entry.offset) {
      return {};
    }
    const std::byte* const part = in + entry.offset;
    if (is_patch(part, entry.payload_bytes)) {
      form.patch_bytes = check_patch(part, entry.payload_bytes, entry.end - entry.begin);
    }
    const std::size_t patch = align_up(form.patch_bytes);
    compress::PayloadInfo info;
    if (patch > entry.payload_bytes ||
        compress::inspect(part + patch, entry.payload_bytes - patch, &info) != Status::kOk) {
      return {};
    }
    const std::size_t elements = (entry.end - entry.begin) / compress::element_size(info.type);
    form.type = info.type;
    form.bits = info.spec.bits;
    form.transform = std::max(form.transform, info.spec.transform);
    form.elements += elements;
    form.nonce = info.nonce - i;
    form.tiles |= elements != info.elements ? 1 : 0;
  }
  return form;
}

void report(const compress::SpanStatistics& from, allocator::CodecStatistics* to) noexcept {
  if (to == nullptr) {
    return;
  }
  to->elements = from.elements;
  to->groups = from.groups;
  to->two_valued_groups = from.two_valued_groups;
  to->escaped_groups = from.escaped_groups;
  to->elements_at_minimum = from.elements_at_minimum;
  to->sum_squared_range = from.sum_squared_range;
  to->energy = from.energy;
}

CodecStatus status_of(Status status) noexcept {
  return status == Status::kOk ? CodecStatus::kOk : CodecStatus::kFailed;
}

}  // namespace

std::size_t CodecAdapter::payload_bytes(const EncodeRequest& request) noexcept {
  const std::size_t room = Source(request).plan(request.choice, copy_raw()).room;
  if (room == 0) {
    count_kept_raw(request);
  }
  return room;
}

CodecStatus CodecAdapter::encode(const EncodeRequest& request, void* payload, std::size_t capacity,
                                 std::size_t* payload_bytes,
                                 allocator::CodecStatistics* statistics) noexcept {
  const Source source(request);
  const BlockPlan plan = source.plan(request.choice, copy_raw());
  return finish(request, plan.spec,
                encode_block(source.block(), plan, request.nonce, payload, capacity, executor_),
                payload_bytes, statistics);
}

CodecStatus CodecAdapter::encode_in_place(const EncodeRequest& request, std::size_t* payload_bytes,
                                          allocator::CodecStatistics* statistics) noexcept {
  const BlockPlan plan = Source(request).plan(request.choice, copy_raw());
  if (!plan.in_place) {
    return CodecStatus::kKeepRaw;
  }
  return finish(
      request, plan.spec,
      encode_block_in_place(request.source, request.source_bytes, plan, request.nonce, executor_),
      payload_bytes, statistics);
}

CodecStatus CodecAdapter::decode(const void* payload, std::size_t payload_bytes, void* target,
                                 std::size_t target_bytes, allocator::StreamId) noexcept {
  return status_of(decode_block(form_of(payload, payload_bytes, target_bytes), payload,
                                payload_bytes, target, target_bytes, executor_));
}

CodecStatus CodecAdapter::decode_function(const void* payload, std::size_t payload_bytes,
                                          void* target, std::size_t target_bytes,
                                          allocator::StreamId, std::uint64_t function) noexcept {
  return status_of(decode_block_function(form_of(payload, payload_bytes, target_bytes), payload,
                                         payload_bytes, target, target_bytes,
                                         Recipe::unpack(function), executor_));
}

bool CodecAdapter::may_be_result(const void* payload, std::size_t payload_bytes,
                                 std::uint64_t function, const void* result,
                                 std::size_t result_bytes) noexcept {
  return compress::block::may_be_result(form_of(payload, payload_bytes, result_bytes), payload,
                                        payload_bytes, Recipe::unpack(function), result,
                                        result_bytes);
}

CodecStatus CodecAdapter::finish(const EncodeRequest& request, const BlockSpec& spec,
                                 const BlockEncodeResult& result, std::size_t* payload_bytes,
                                 allocator::CodecStatistics* statistics) noexcept {
  if (result.status != Status::kOk) {
    count_kept_raw(request);
    return CodecStatus::kKeepRaw;
  }
  *payload_bytes = result.payload_bytes;
  report(result.statistics, statistics);
  account(spec, result);
  return CodecStatus::kOk;
}

void CodecAdapter::count_kept_raw(const EncodeRequest& request) noexcept {
  totals_.kept_raw.fetch_add(1, std::memory_order_relaxed);
  totals_.kept_raw_bytes.fetch_add(request.source_bytes, std::memory_order_relaxed);
}

void CodecAdapter::account(const BlockSpec& spec, const BlockEncodeResult& result) noexcept {
  const auto relaxed = std::memory_order_relaxed;
  const std::uint64_t elements = result.form.elements;
  CodecTotals::Class* into = &totals_.raw;
  if (spec.bits != 0) {
    into = spec.type == ElementType::kFloat32 ? &totals_.lossy_fp32 : &totals_.lossy_16bit;
    totals_.bits_weighted_elements.fetch_add(elements * spec.bits, relaxed);
  } else if (compress::is_floating(spec.type)) {
    into = &totals_.lossless_float;
  } else if (spec.type == ElementType::kBool) {
    into = &totals_.boolean;
  } else if (spec.type != ElementType::kBytes) {
    into = &totals_.integer;
  }
  into->payloads.fetch_add(1, relaxed);
  into->source_bytes.fetch_add(elements * compress::element_size(spec.type), relaxed);
  into->payload_bytes.fetch_add(result.payload_bytes, relaxed);
  into->elements.fetch_add(elements, relaxed);
  totals_.groups.fetch_add(result.statistics.groups, relaxed);
  totals_.two_valued_groups.fetch_add(result.statistics.two_valued_groups, relaxed);
  totals_.escaped_groups.fetch_add(result.statistics.escaped_groups, relaxed);
}

}  // namespace pleat::bridge

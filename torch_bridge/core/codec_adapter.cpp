#include "torch_bridge/core/codec_adapter.h"

#include <algorithm>
#include <cstring>

#include "compress/block/line_patch.h"

namespace pleat::bridge {
namespace {

using allocator::ByteRange;
using allocator::CodecStatus;
using allocator::EncodeRequest;
using compress::CodecSpec;
using compress::ElementType;
using compress::Span;
using compress::Status;
using namespace compress::block;

// Front of a payload that holds several spans. One span that covers the whole block has none.
struct TableHeader {
  std::uint64_t magic;
  std::uint64_t count;
};
struct TableEntry {
  std::uint64_t begin, end;             // bytes of the block
  std::uint64_t offset, payload_bytes;  // within the payload
};
constexpr std::uint64_t kTableMagic = 0x3153'4e41'5053'4c50ULL;  // not a span payload's magic
constexpr std::size_t kAlign = 64;
constexpr std::uint64_t kMostSpans = 1u << 20;

constexpr std::size_t align_up(std::size_t n) noexcept { return (n + kAlign - 1) & ~(kAlign - 1); }

constexpr std::size_t table_bytes(std::size_t count) noexcept {
  return align_up(sizeof(TableHeader) + count * sizeof(TableEntry));
}

bool covers_all(const EncodeRequest& r) noexcept {
  return r.range_count == 1 && r.ranges[0].begin == 0 && r.ranges[0].end == r.source_bytes;
}

Span span_of(const EncodeRequest& r, const ByteRange& range, ElementType type) noexcept {
  return {static_cast<const std::byte*>(r.source) + range.begin,
          (range.end - range.begin) / compress::element_size(type), type};
}

// True if a handful of groups spread over the span hold at most two bit patterns each: worth trying
// the exact one-bit form. Wrong guesses cost time or memory, never exactness.
template <class Word>
bool looks_two_valued(const Word* data, std::size_t elements) noexcept {
  constexpr std::size_t kProbes = 8;
  constexpr std::size_t kProbeElements = 64;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    const std::size_t begin = elements / kProbes * probe;
    const std::size_t end = std::min(elements, begin + kProbeElements);
    Word a = data[begin];
    Word b = a;
    for (std::size_t i = begin; i < end; ++i) {
      if (data[i] == a || data[i] == b) {
        continue;
      }
      if (a != b) {
        return false;
      }
      b = data[i];
    }
  }
  return true;
}

bool looks_two_valued(const Span& span) noexcept {
  if (span.elements == 0) {
    return false;
  }
  if (span.type == ElementType::kFloat32) {
    return looks_two_valued(static_cast<const std::uint32_t*>(span.data), span.elements);
  }
  return looks_two_valued(static_cast<const std::uint16_t*>(span.data), span.elements);
}

// Room for the exact form of a span if it has a short one; 0 if there is no hope.
std::size_t exact_room(const Span& span) noexcept {
  switch (span.type) {
    case ElementType::kBool:
      return align_up(span.elements / 8 + 2 * kAlign);
    case ElementType::kInt64:
    case ElementType::kInt32:
      return align_up(span.bytes() / 2 + 2 * kAlign);
    case ElementType::kFloat32:
    case ElementType::kBFloat16:
    case ElementType::kFloat16:
      // 1 bit per element, 4 to 8 bytes per 256, and the offsets: 1.6 bits of 16 in the worst case.
      return looks_two_valued(span) ? align_up(span.elements / 4 + 4 * kAlign) : 0;
    case ElementType::kBytes:
      return 0;
  }
  return 0;
}

// With copy_raw (a debug option) tensors too small to gain from it go through the lossy codec all
// the same: repeated until they fill a few groups, and cut again at decode. It lets PyTorch's
// operator table, whose samples have a handful of elements, see real quantisation.
constexpr std::size_t kTiledBelow = 1024;
constexpr std::size_t kTiledElements = 2048;

bool tiled(const Span& span, CodecChoice choice, bool copy_raw) noexcept {
  return copy_raw && choice.bits != 0 && span.elements != 0 && span.elements < kTiledBelow;
}

class Tile {
 public:
  explicit Tile(const Span& span) noexcept : type_(span.type) {
    const std::size_t bytes = span.bytes();
    for (std::size_t at = 0; at < kTiledElements * compress::element_size(type_); at += bytes) {
      std::memcpy(data_ + at, span.data,
                  std::min(bytes, kTiledElements * compress::element_size(type_) - at));
    }
  }
  [[nodiscard]] Span span() const noexcept { return {data_, kTiledElements, type_}; }

 private:
  ElementType type_;
  alignas(64) std::byte data_[kTiledElements * sizeof(float)];
};

// exp(x) with an error of a quarter in x is off by a quarter: no more than that, root mean square.
bool too_coarse(CodecChoice choice, const compress::SpanStatistics& s) noexcept {
  constexpr double kLargestStep = 0.25;
  if (!choice.exponent || s.elements == 0) {
    return false;
  }
  const double levels = static_cast<double>((1u << choice.bits) - 1);
  const double squared_step =
      s.sum_squared_range / static_cast<double>(s.elements) / (levels * levels);
  return squared_step > kLargestStep * kLargestStep;
}

std::size_t span_room(const Span& span, CodecChoice choice, bool copy_raw) noexcept {
  const CodecSpec spec{choice.bits, false};
  if (tiled(span, choice, copy_raw)) {
    return align_up(compress::payload_bound(spec, span.type, kTiledElements));
  }
  if (choice.bits != 0 || copy_raw) {
    return align_up(compress::payload_bound(spec, span.type, span.elements));
  }
  return exact_room(span);
}

// A request's choice once its values have been looked at.
struct Plan final : allocator::EncodePlan::Details {
  Plan(CodecChoice the_choice, LinePlan the_lines)
      : choice(the_choice), lines(std::move(the_lines)) {}
  CodecChoice choice;
  LinePlan lines;  // of a single span; exact lines go in front of its payload

  [[nodiscard]] std::size_t patch_bytes(const EncodeRequest& request) const noexcept {
    return lines.exact.empty() ? 0
                               : align_up(compress::block::patch_bytes(
                                     lines, choice.lines, span(request).elements, choice.type));
  }
  [[nodiscard]] Span span(const EncodeRequest& request) const noexcept {
    return span_of(request, request.ranges[0], choice.type);
  }
};

Plan make_plan(const EncodeRequest& request, bool copy_raw) noexcept {
  Plan plan(CodecChoice::unpack(request.choice), {});
  if (plan.choice.bits == 0 || plan.choice.lines.look == Look::kNone || request.range_count != 1 ||
      tiled(plan.span(request), plan.choice, copy_raw)) {
    return plan;
  }
  try {
    const Span span = plan.span(request);
    plan.lines =
        plan_lines(span.data, span.elements, span.type, plan.choice.lines, plan.choice.bits);
    plan.choice.bits = plan.lines.bits;
  } catch (...) {
    plan.choice.bits = 0;
  }
  return plan;
}

const Plan& details(const allocator::EncodePlan& plan) noexcept {
  return static_cast<const Plan&>(*plan.details);
}

void add(compress::SpanStatistics& into, const compress::SpanStatistics& from) noexcept {
  into.elements += from.elements;
  into.groups += from.groups;
  into.constant_groups += from.constant_groups;
  into.two_valued_groups += from.two_valued_groups;
  into.escaped_groups += from.escaped_groups;
  into.elements_at_minimum += from.elements_at_minimum;
  into.sum_squared_range += from.sum_squared_range;
  into.energy += from.energy;
}

allocator::CodecStatistics report(const compress::SpanStatistics& from) noexcept {
  return {from.elements,
          from.groups,
          from.two_valued_groups,
          from.escaped_groups,
          from.elements_at_minimum,
          from.sum_squared_range,
          from.energy};
}

// Whether the request's block looks like its function of what the origin's payload was made of, and
// is as well restored that way.
bool may_be_result(const EncodeRequest& request) noexcept {
  const auto* codes = static_cast<const std::byte*>(request.origin.data);
  std::size_t bytes = request.origin.bytes;
  if (is_patch(codes, bytes)) {  // in front of the codes of all
    const std::size_t patch = align_up(check_patch(codes, bytes, request.source_bytes));
    if (patch == 0 || patch > bytes) {
      return false;
    }
    codes += patch;
    bytes -= patch;
  }
  compress::PayloadInfo info;
  return compress::inspect(codes, bytes, &info) == Status::kOk &&
         info.elements * compress::element_size(info.type) == request.source_bytes &&
         compress::may_be_result(codes, bytes, Recipe::unpack(request.function).function,
                                 request.source);
}

}  // namespace

void CodecAdapter::count_kept_raw(const EncodeRequest& request) noexcept {
  totals_.kept_raw.fetch_add(1, std::memory_order_relaxed);
  totals_.kept_raw_bytes.fetch_add(request.source_bytes, std::memory_order_relaxed);
}

allocator::EncodePlan CodecAdapter::plan(const EncodeRequest& request) noexcept {
  allocator::EncodePlan result;
  if (request.function != 0 && may_be_result(request)) {
    result.recomputed = true;
    return result;
  }
  const bool copy_raw = copy_raw_.load(std::memory_order_relaxed);
  Plan plan = make_plan(request, copy_raw);
  const bool single = covers_all(request);
  std::size_t total = plan.patch_bytes(request) + (single ? 0 : table_bytes(request.range_count));
  for (std::size_t i = 0; i < request.range_count; ++i) {
    const std::size_t room =
        span_room(span_of(request, request.ranges[i], plan.choice.type), plan.choice, copy_raw);
    if (room == 0) {
      count_kept_raw(request);
      return result;
    }
    total += room;
  }
  if (total == 0 || (!copy_raw && total > request.source_bytes - request.source_bytes / 16)) {
    count_kept_raw(request);
    return result;
  }
  // A table in front would overwrite what is still to be read, and a payload that turns out too
  // coarse could not be taken back.
  result.in_place = single && plan.lines.exact.empty() && !plan.choice.exponent;
  try {
    result.details = std::make_unique<Plan>(std::move(plan));
    result.room = total;
  } catch (...) {
    count_kept_raw(request);
  }
  return result;
}

allocator::EncodeResult CodecAdapter::encode(const EncodeRequest& request,
                                             const allocator::EncodePlan& planned, void* payload,
                                             std::size_t capacity) noexcept {
  const bool copy_raw = copy_raw_.load(std::memory_order_relaxed);
  const Plan& plan = details(planned);
  const CodecChoice choice = plan.choice;
  const CodecSpec spec = choice.codec();
  const bool single = covers_all(request);
  auto* const out = static_cast<std::byte*>(payload);
  std::size_t used = single ? 0 : table_bytes(request.range_count);
  const std::size_t patch = plan.patch_bytes(request);
  if (used + patch > capacity) {
    count_kept_raw(request);
    return {};
  }
  if (patch != 0) {
    const Span span = plan.span(request);
    write_patch(plan.lines, choice.lines, span.data, span.elements, span.type, out + used);
  }
  compress::SpanStatistics sum;
  if (!single) {
    const TableHeader header{kTableMagic, request.range_count};
    std::memcpy(out, &header, sizeof header);
  }
  for (std::size_t i = 0; i < request.range_count; ++i) {
    const ByteRange& range = request.ranges[i];
    compress::SpanStatistics seen;
    const Span span = span_of(request, range, choice.type);
    const auto encode_span = [&](const Span& source) {
      return compress::encode(source, spec, request.nonce + i, out + used + patch,
                              capacity - used - patch, executor_, &seen);
    };
    const compress::EncodeResult result =
        tiled(span, choice, copy_raw) ? encode_span(Tile(span).span()) : encode_span(span);
    if (result.status != Status::kOk || too_coarse(choice, seen)) {
      count_kept_raw(request);
      return {};
    }
    if (!single) {
      const TableEntry entry{range.begin, range.end, used, patch + result.payload_bytes};
      std::memcpy(out + sizeof(TableHeader) + i * sizeof entry, &entry, sizeof entry);
    }
    add(sum, seen);
    const std::size_t took = patch + result.payload_bytes;
    used += i + 1 < request.range_count ? align_up(took) : took;
  }
  account(request, choice, used, sum);
  return {CodecStatus::kOk, used, {}, report(sum), {}};
}

allocator::EncodeResult CodecAdapter::encode_in_place(
    const EncodeRequest& request, const allocator::EncodePlan& planned) noexcept {
  const CodecChoice choice = details(planned).choice;
  compress::SpanStatistics seen;
  const compress::EncodeResult result =
      compress::encode_in_place(request.source, request.source_bytes,
                                request.source_bytes / compress::element_size(choice.type),
                                choice.type, choice.codec(), request.nonce, executor_, &seen);
  if (result.status != Status::kOk) {
    count_kept_raw(request);
    return {};
  }
  account(request, choice, result.payload_bytes, seen);
  return {CodecStatus::kOk, result.payload_bytes, {}, report(seen), {}};
}

CodecStatus CodecAdapter::decode(const allocator::PayloadView& payload, void* target,
                                 std::size_t target_bytes, allocator::StreamId) noexcept {
  const auto* const in = static_cast<const std::byte*>(payload.data);
  const std::size_t payload_bytes = payload.bytes;
  auto* const out = static_cast<std::byte*>(target);
  std::uint64_t magic = 0;
  if (payload_bytes >= sizeof magic) {
    std::memcpy(&magic, in, sizeof magic);
  }
  const auto decode_codes = [&](const void* from, std::size_t from_bytes, void* to,
                                std::size_t to_bytes) {
    compress::PayloadInfo info;
    if (compress::inspect(from, from_bytes, &info) != Status::kOk) {
      return false;
    }
    const std::size_t whole = info.elements * compress::element_size(info.type);
    if (whole == to_bytes || info.elements != kTiledElements || to_bytes > whole) {
      return compress::decode(from, from_bytes, to, to_bytes, executor_) == Status::kOk;
    }
    alignas(64) std::byte tile[kTiledElements * sizeof(float)];
    if (compress::decode(from, from_bytes, tile, whole, executor_) != Status::kOk) {
      return false;
    }
    std::memcpy(to, tile, to_bytes);
    return true;
  };
  const auto decode_span = [&](const std::byte* from, std::size_t from_bytes, std::byte* to,
                               std::size_t to_bytes) {
    if (!is_patch(from, from_bytes)) {
      return decode_codes(from, from_bytes, to, to_bytes);
    }
    const std::size_t patch = align_up(check_patch(from, from_bytes, to_bytes));
    if (patch == 0 || patch > from_bytes ||
        !decode_codes(from + patch, from_bytes - patch, to, to_bytes)) {
      return false;
    }
    apply_patch(from, to, to_bytes);
    return true;
  };
  if (magic != kTableMagic) {
    return decode_span(in, payload_bytes, out, target_bytes) ? CodecStatus::kOk
                                                             : CodecStatus::kFailed;
  }
  TableHeader header{};
  if (payload_bytes < sizeof header) {
    return CodecStatus::kFailed;
  }
  std::memcpy(&header, in, sizeof header);
  if (header.count > kMostSpans || table_bytes(header.count) > payload_bytes) {
    return CodecStatus::kFailed;
  }
  std::size_t filled = 0;
  for (std::size_t i = 0; i < header.count; ++i) {
    TableEntry e{};
    std::memcpy(&e, in + sizeof header + i * sizeof e, sizeof e);
    if (e.begin < filled || e.end < e.begin || e.end > target_bytes || e.offset > payload_bytes ||
        e.payload_bytes > payload_bytes - e.offset) {
      return CodecStatus::kFailed;
    }
    std::memset(out + filled, 0, e.begin - filled);
    if (!decode_span(in + e.offset, e.payload_bytes, out + e.begin, e.end - e.begin)) {
      return CodecStatus::kFailed;
    }
    filled = e.end;
  }
  std::memset(out + filled, 0, target_bytes - filled);
  return CodecStatus::kOk;
}

CodecStatus CodecAdapter::decode_function(const allocator::PayloadView& payload, void* target,
                                          std::size_t target_bytes, allocator::StreamId stream,
                                          std::uint64_t function) noexcept {
  const Recipe recipe = Recipe::unpack(function);
  const std::size_t elements = target_bytes / compress::element_size(recipe.type);
  compress::PayloadInfo info;
  if (compress::inspect(payload.data, payload.bytes, &info) == Status::kOk &&
      info.elements == elements && info.type == recipe.type) {
    return compress::decode_function(payload.data, payload.bytes, target, target_bytes,
                                     recipe.function, executor_) == Status::kOk
               ? CodecStatus::kOk
               : CodecStatus::kFailed;
  }
  // Lines kept exact, or elements repeated to fill a group: known when all is there.
  if (!compress::is_floating(recipe.type) ||
      decode(payload, target, target_bytes, stream) != CodecStatus::kOk) {
    return CodecStatus::kFailed;
  }
  compress::apply_function(target, elements, recipe.type, recipe.function, executor_);
  return CodecStatus::kOk;
}

void CodecAdapter::account(const EncodeRequest& request, CodecChoice choice,
                           std::size_t payload_bytes,
                           const compress::SpanStatistics& statistics) noexcept {
  const auto relaxed = std::memory_order_relaxed;
  std::size_t covered = 0;
  for (std::size_t i = 0; i < request.range_count; ++i) {
    covered += request.ranges[i].end - request.ranges[i].begin;
  }
  const std::uint64_t elements = covered / compress::element_size(choice.type);
  CodecTotals::Class* into = &totals_.raw;
  if (choice.bits != 0) {
    into = choice.type == ElementType::kFloat32 ? &totals_.lossy_fp32 : &totals_.lossy_16bit;
    totals_.bits_weighted_elements.fetch_add(elements * choice.bits, relaxed);
  } else if (compress::is_floating(choice.type)) {
    into = &totals_.lossless_float;
  } else if (choice.type == ElementType::kBool) {
    into = &totals_.boolean;
  } else if (choice.type != ElementType::kBytes) {
    into = &totals_.integer;
  }
  into->payloads.fetch_add(1, relaxed);
  into->source_bytes.fetch_add(covered, relaxed);
  into->payload_bytes.fetch_add(payload_bytes, relaxed);
  into->elements.fetch_add(elements, relaxed);
  totals_.groups.fetch_add(statistics.groups, relaxed);
  totals_.two_valued_groups.fetch_add(statistics.two_valued_groups, relaxed);
  totals_.escaped_groups.fetch_add(statistics.escaped_groups, relaxed);
}

}  // namespace pleat::bridge

#include <algorithm>
#include <cstring>

#include "compress/block/block_layout.h"
#include "compress/block/block_payload.h"
#include "compress/block/group_steps.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "compress/lines/line_patch.h"
#include "compress/sides/sides.h"

namespace pleat::compress::block {
namespace {

class Tile {
 public:
  explicit Tile(const Span& span) noexcept : type_(span.type) {
    const std::size_t bytes = span.bytes();
    const std::size_t whole = kTiledElements * element_size(type_);
    for (std::size_t at = 0; at < whole; at += bytes)
      std::memcpy(data_ + at, span.data, std::min(bytes, whole - at));
  }
  [[nodiscard]] Span span() const noexcept { return {data_, kTiledElements, type_}; }

 private:
  ElementType type_;
  alignas(kAlign) std::byte data_[kTiledElements * sizeof(float)];
};

// Whether the plan of an only span has all lines that must come back exact, now that its payload
// tells how wide the steps are. Without memory to find out, it has not.
bool lines_hold(const BlockPlan& plan, const Span& span, const void* payload,
                const Executor& executor) noexcept {
  try {
    const std::vector<float> steps = group_steps(payload);
    return steps.empty() || no_other_is_flat(plan.lines, span.data, span.elements, span.type,
                                             plan.spec.lines, steps, executor);
  } catch (...) {
    return false;
  }
}

void add(SpanStatistics& into, const SpanStatistics& from) noexcept {
  into.groups += from.groups;
  into.constant_groups += from.constant_groups;
  into.two_valued_groups += from.two_valued_groups;
  into.escaped_groups += from.escaped_groups;
}

// Writes padding into [from, to).
void pad(std::byte* payload, std::size_t from, std::size_t to) noexcept {
  std::memset(payload + from, 0, to - from);
}

BlockForm form_of(const BlockSpec& spec, std::uint64_t nonce) noexcept {
  BlockForm form;
  form.type = spec.type;
  form.nonce = nonce;
  if (spec.kept == Kept::kSides) {
    form.only_sides = 1;
    form.bits = spec.sides.bits();
  } else if (is_floating(spec.type) && spec.bits != 0) {
    form.bits = static_cast<std::uint8_t>(supported_bits(spec.bits));
    form.transform = spec.transform != Transform::kHadamardScaled || has_scaled_groups(form.bits)
                         ? spec.transform
                         : Transform::kHadamard;
  }
  return form;
}

BlockEncodeResult refused(Status status) noexcept {
  BlockEncodeResult result;
  result.status = status;
  return result;
}

// A header stands for a block of which nothing is kept, whatever its ranges are.
BlockEncodeResult encode_nothing(std::size_t bytes, std::uint64_t nonce, void* payload,
                                 std::size_t capacity) noexcept {
  const EncodeResult coded = encode_zeros(ElementType::kBytes, bytes, nonce, payload, capacity);
  if (coded.status != Status::kOk) return refused(coded.status);
  BlockEncodeResult result;
  result.payload_bytes = coded.payload_bytes;
  result.form = form_of(lossless(ElementType::kBytes), nonce);
  result.form.shape = BlockShape::kSingle;
  result.form.spans = 1;
  result.form.elements = bytes;
  return result;
}

// Puts the sides of a span's values behind its codes, if the plan is closed or decoding the codes
// may bring a value back on another side.
//   codes     where they begin
//   *used     bytes of the payload so far; grows
Status append_sides(const Span& span, const BlockPlan& plan, std::uint64_t nonce,
                    std::byte* payload, std::size_t codes, std::size_t capacity,
                    const Executor& executor, std::size_t* used) noexcept {
  if (!plan.closed && !may_leave_side(payload + codes, *used - codes, plan.beside))
    return Status::kOk;
  const std::size_t begin = align_up(*used);
  if (begin > capacity) return Status::kNoRoom;
  pad(payload, *used, begin);
  const EncodeResult coded = encode(span, {.sides = plan.beside}, nonce, payload + begin,
                                    capacity - begin, executor, nullptr);
  *used = begin + coded.payload_bytes;
  return coded.status;
}

}  // namespace

BlockEncodeResult encode_block(const BlockSource& source, const BlockPlan& plan,
                               std::uint64_t nonce, void* payload, std::size_t capacity,
                               const Executor& executor) noexcept {
  const BlockSpec& spec = plan.spec;
  if (plan.room != 0 && spec.kept == Kept::kNothing)
    return encode_nothing(source.bytes, nonce, payload, capacity);
  const bool single = source.is_one_span();
  auto* const out = static_cast<std::byte*>(payload);
  std::size_t used = single ? 0 : table_bytes(source.range_count);
  const std::size_t patch = align_up(plan.patch_bytes);
  if (plan.room == 0 || used > capacity || patch > capacity - used) return refused(Status::kNoRoom);
  BlockEncodeResult result;
  result.form = form_of(spec, nonce);
  result.form.shape = single ? BlockShape::kSingle : BlockShape::kTable;
  result.form.spans = static_cast<std::uint32_t>(source.range_count);
  result.form.tiles = plan.tiles ? 1 : 0;
  result.form.patch_bytes = plan.patch_bytes;
  if (!single) {
    const TableHeader header{kTableMagic, source.range_count};
    std::memcpy(out, &header, sizeof header);
    pad(out, sizeof header + source.range_count * sizeof(TableEntry), used);
  }
  for (std::size_t i = 0; i < source.range_count; ++i) {
    const ByteRange& range = source.ranges[i];
    const Span span = source.span(i, spec.type);
    const std::size_t begin = used;
    if (plan.patch_bytes != 0) {  // the only span
      write_patch(plan.lines, spec.lines, span.data, span.elements, span.type, out + begin);
      pad(out, begin + plan.patch_bytes, begin + patch);
    }
    used = begin + patch;
    SpanStatistics seen;
    const auto encode_span = [&](const Span& from) {
      return encode(from, plan.codec(), nonce + i, out + used, capacity - used, executor, &seen);
    };
    const EncodeResult coded = is_tiled(plan.tiles, span.type, spec.bits, span.elements)
                                   ? encode_span(Tile(span).span())
                                   : encode_span(span);
    if (coded.status != Status::kOk) return refused(coded.status);
    if (plan.checks_lines && !lines_hold(plan, span, out + used, executor))
      return refused(Status::kFlatLines);
    const std::size_t codes = used;
    used += coded.payload_bytes;
    if (plan.keeps_beside) {
      const std::size_t end = used;
      const Status status =
          append_sides(span, plan, nonce + i, out, codes, capacity, executor, &used);
      if (status != Status::kOk) return refused(status);
      if (used != end) result.form.side_part = 1;
    }
    if (!single) {
      const TableEntry entry{range.begin, range.end, begin, used - begin};
      std::memcpy(out + sizeof(TableHeader) + i * sizeof entry, &entry, sizeof entry);
    }
    if (i + 1 < source.range_count) {
      const std::size_t next = align_up(used);
      if (next > capacity) return refused(Status::kNoRoom);
      pad(out, used, next);
      used = next;
    }
    result.form.elements += span.elements;
    add(result.statistics, seen);
  }
  result.payload_bytes = used;
  return result;
}

BlockEncodeResult encode_block_in_place(void* data, std::size_t bytes, const BlockPlan& plan,
                                        std::uint64_t nonce, const Executor& executor) noexcept {
  const BlockSpec& spec = plan.spec;
  if (!plan.in_place) return refused(Status::kNoRoom);
  if (spec.kept == Kept::kNothing) return encode_nothing(bytes, nonce, data, bytes);
  BlockEncodeResult result;
  const std::size_t elements = bytes / element_size(spec.type);
  if (plan.keeps_beside &&
      !keeps_sides({data, elements, spec.type}, plan.codec(), spec.sides, executor))
    return refused(Status::kNoRoom);
  const EncodeResult coded = encode_in_place(data, bytes, elements, spec.type, plan.codec(), nonce,
                                             executor, &result.statistics);
  if (coded.status != Status::kOk) return refused(coded.status);
  result.payload_bytes = coded.payload_bytes;
  result.form = form_of(spec, nonce);
  result.form.shape = BlockShape::kSingle;
  result.form.spans = 1;
  result.form.elements = elements;
  return result;
}

}  // namespace pleat::compress::block

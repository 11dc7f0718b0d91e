// The parts of encoding that do not depend on where the payload is written: they choose the kind of
// payload, run blocks of groups, and finish a payload. Internal to compress/.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "compress/format.h"
#include "compress/kernels.h"
#include "compress/parts.h"
#include "compress/types.h"

namespace pleat::compress {

// The sums over a span: statistics, number of quantised groups, number of compacted blocks.
struct Totals {
  SpanStatistics statistics;
  std::uint64_t lossy_groups = 0;
  std::uint64_t compacted_blocks = 0;
  bool near_zero = false;  // there are elements near zero

  void add(const BlockResult& block) noexcept;
};

// A request after the checks that need no data.
struct Request {
  Span span;
  CodecSpec spec;
  unsigned bits = 0;  // the width used: 0 unless the type is floating
  bool transformed = false;
  bool scaled = false;
  bool sides_only = false;  // the sides of the elements are kept, not their values
  std::uint64_t nonce = 0;
  // A count of elements near zero for each group, written while encoding; null: none are kept.
  std::uint16_t* near_counts = nullptr;

  Request(const Span& span, const CodecSpec& spec, std::uint64_t nonce) noexcept;

  [[nodiscard]] GroupedLayout layout() const noexcept {
    return {span.type, bits, span.elements, transformed};
  }
  [[nodiscard]] ElementType metadata_type() const noexcept {
    return transformed ? ElementType::kFloat32 : span.type;
  }
  // False if any values can be coded: no group is escaped then.
  [[nodiscard]] bool may_escape() const noexcept {
    return !has_wide_groups(bits) || spec.widest_step <= std::numeric_limits<float>::max();
  }
  [[nodiscard]] std::size_t escape_limit(const GroupedLayout& layout) const noexcept {
    return may_escape() ? layout.escape_limit(bits, spec.escape_64ths) : 0;
  }
  // Bytes of a grouped payload with `escapes` escaped groups and no compacted block.
  [[nodiscard]] std::size_t grouped_bytes(const GroupedLayout& layout,
                                          std::size_t escapes) const noexcept;
  [[nodiscard]] std::size_t raw_bytes() const noexcept { return kHeaderBytes + span.bytes(); }
  // False if the raw payload is no larger: the span is then stored raw from the start.
  [[nodiscard]] bool grouped_pays(const GroupedLayout& layout) const noexcept;
  // As EncodeGroups::widest_step.
  [[nodiscard]] std::uint32_t widest_step_bits() const noexcept;
  [[nodiscard]] Header header(PayloadKind kind) const noexcept;
};

// True if the span repeats one bit pattern.
[[nodiscard]] bool is_constant(const Span& span) noexcept;
[[nodiscard]] std::uint64_t first_pattern(const Span& span) noexcept;

[[nodiscard]] constexpr std::size_t packed_bytes(std::size_t elements, unsigned width) noexcept {
  return elements / 8 * width + ceil_divide(elements % 8 * width, 8);
}

// Encodes groups [first, first + count) of the span; the last is short if the span ends in it.
// `metadata` and `codes` are those of group `first`. The slots of a block, compacted where that
// pays, begin where its regular slots would; their bytes go to `slot_bytes`. No slot is compacted
// if `slot_bytes` is null. Stops early once `escapes` exceeds `escape_limit`.
void encode_blocks(const Request& request, const Executor& executor, std::size_t first,
                   std::size_t count, void* metadata, std::uint8_t* codes, BlockResult* results,
                   std::uint64_t* slot_bytes, std::atomic<std::size_t>* escapes,
                   std::size_t escape_limit) noexcept;

// Turns the fixed layout into the final payload: fills the escape slots, moves the blocks together
// and appends their offsets if any is compacted, leaves room for the escape table and writes the
// header. The caller copies the table to `*escape_table`. Returns the payload's bytes.
//   slot_bytes  of each block, as encode_blocks() wrote them; may lie behind layout.end_of_codes().
//               Not read if no block is compacted
[[nodiscard]] std::size_t finish_grouped(const Request& request, const GroupedLayout& layout,
                                         const Totals& totals, const std::uint64_t* slot_bytes,
                                         std::uint8_t* payload,
                                         std::uint8_t** escape_table) noexcept;

}  // namespace pleat::compress

// Grouped payloads: floats in groups of 256, each with its own range. Internal to compress/.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "compress/grouped/grouped_sections.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"

namespace pleat::compress {

// Encodes into `payload` floats for which the form pays (Request::grouped_pays()). False if a
// lossless payload is not smaller than raw; its contents are then undefined.
[[nodiscard]] bool encode_grouped(Request request, const Executor& executor, std::uint8_t* payload,
                                  std::size_t capacity, SpanStatistics* statistics,
                                  EncodeResult* result) noexcept;

// Called with the job of each block once its elements are decoded, while they are in a cache.
using BlockDecoded = std::function<void(const GroupedSections&, const DecodeGroups&)>;

// Restores header.elements elements from `payload`, which holds header.payload_bytes bytes.
[[nodiscard]] Status decode_grouped(const Header& header, const std::uint8_t* payload, void* target,
                                    const Executor& executor,
                                    const BlockDecoded& decoded = {}) noexcept;

// ---- the parts of encoding that do not depend on where the payload is written ----

// The sums over a span: statistics, number of quantised groups, number of compacted blocks.
struct Totals {
  SpanStatistics statistics;
  std::uint64_t lossy_groups = 0;
  std::uint64_t compacted_blocks = 0;
  bool near_zero = false;  // there are elements near zero

  void add(const BlockResult& block) noexcept;
};

// The job of groups [from, to) of the span: all but where the result goes.
[[nodiscard]] EncodeGroups encode_job(const Request& request, const GroupedLayout& layout,
                                      std::size_t from, std::size_t to) noexcept;

// How many groups encode() would escape, counted until they are more than `limit`.
[[nodiscard]] std::size_t count_escapes(const Request& request, const GroupedLayout& layout,
                                        std::size_t limit, const Executor& executor) noexcept;

// Copies a group of the span to the escape table; a short group is padded with zeros.
void copy_escaped(const Request& request, std::size_t group, std::uint8_t* to) noexcept;

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

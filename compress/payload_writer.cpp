#include "compress/payload_writer.h"

#include <cstring>

#include "compress/element_math.h"
#include "compress/float_environment.h"
#include "compress/near_zero/near_zero.h"
#include "compress/sides/side_bounds.h"

namespace pleat::compress {
namespace {

template <class Word>
bool all_groups_equal(const GroupedLayout& layout, const std::uint8_t* metadata) noexcept {
  const Words<Word> first = metadata_at<Word>(metadata, 0);
  for (std::size_t g = 1; g < layout.groups; ++g)
    if (metadata_at<Word>(metadata, g).first != first.first) return false;
  return true;
}

template <class Word>
void number_escapes(const GroupedLayout& layout, std::uint8_t* payload) noexcept {
  std::uint64_t index = 0;
  for (std::size_t g = 0; g < layout.groups; ++g) {
    const Words<Word> words = metadata_at<Word>(payload + kHeaderBytes, g);
    if ((words.second & kSign<Word>) == 0 || words.first != words.second) continue;
    std::memcpy(payload + layout.codes_offset + g * layout.slot_bytes, &index, sizeof index);
    ++index;
  }
}

// Moves the blocks together, towards lower addresses, and writes their offsets behind them. Returns
// the bytes of all blocks, offsets excluded.
std::size_t move_together(const GroupedLayout& layout, std::uint8_t* codes,
                          const std::uint64_t* slot_bytes) noexcept {
  std::size_t end = 0;
  for (std::size_t block = 0; block < layout.blocks; ++block) {
    const std::size_t from = block * kBlockGroups * layout.slot_bytes;
    if (from != end) std::memmove(codes + end, codes + from, slot_bytes[block]);
    end += slot_bytes[block];
  }
  // The table may overlap old places of moved blocks, so it is written last. It may overlap the
  // sizes that it is made of, so it is written upwards: entry k lies no higher than size k.
  std::uint64_t offset = 0;
  for (std::size_t block = 0; block < layout.blocks; ++block) {
    const std::uint64_t bytes = slot_bytes[block];
    std::memcpy(codes + end + block * sizeof offset, &offset, sizeof offset);
    offset += bytes;
  }
  return end;
}

template <class Word>
std::size_t finish(const Request& request, const GroupedLayout& layout, const Totals& totals,
                   const std::uint64_t* slot_bytes, std::uint8_t* payload,
                   std::uint8_t** escape_table) noexcept {
  const SpanStatistics& seen = totals.statistics;
  Header header = request.header(PayloadKind::kGrouped);
  if (totals.lossy_groups != 0) header.flags |= kFlagLossy;
  if (request.transformed) header.flags |= kFlagTransformed;
  if (request.scaled) header.flags |= kFlagScaled;
  if (totals.near_zero) header.flags |= kFlagNearZero;
  if (request.spec.compact && seen.constant_groups == layout.groups && !totals.near_zero &&
      sizeof(Word) == element_size(request.span.type) &&
      all_groups_equal<Word>(layout, payload + kHeaderBytes)) {
    header.kind = static_cast<std::uint8_t>(PayloadKind::kConstant);
    header.flags &= static_cast<std::uint8_t>(~(kFlagTransformed | kFlagScaled));
    header.value = metadata_at<Word>(payload + kHeaderBytes, 0).first;
    header.payload_bytes = kHeaderBytes;
    std::memcpy(payload, &header, sizeof header);
    return header.payload_bytes;
  }
  const std::size_t metadata_end = kHeaderBytes + layout.groups * layout.metadata_bytes_per_group;
  std::memset(payload + metadata_end, 0, layout.codes_offset - metadata_end);
  if (seen.escaped_groups != 0) number_escapes<Word>(layout, payload);

  const std::size_t escape_bytes = seen.escaped_groups * layout.source_bytes_per_group;
  header.code_bytes = layout.code_bytes;
  std::size_t end = layout.end_of_codes();
  if (totals.compacted_blocks != 0) {
    header.flags |= kFlagCompacted;
    header.code_bytes = move_together(layout, payload + layout.codes_offset, slot_bytes);
    end = layout.codes_offset + header.code_bytes + layout.offset_table_bytes();
  }
  *escape_table = payload + end;
  header.escapes = static_cast<std::uint32_t>(seen.escaped_groups);
  header.payload_bytes = end + escape_bytes;
  std::memcpy(payload, &header, sizeof header);
  return header.payload_bytes;
}

}  // namespace

void Totals::add(const BlockResult& block) noexcept {
  statistics.constant_groups += block.constant_groups;
  statistics.two_valued_groups += block.two_valued_groups;
  statistics.escaped_groups += block.escaped_groups;
  lossy_groups += block.lossy_groups;
  compacted_blocks += block.compacted;
}

Request::Request(const Span& span_of, const CodecSpec& spec_of, std::uint64_t nonce_of) noexcept
    : span(span_of),
      spec(spec_of),
      bits(is_floating(span_of.type) && !spec_of.sides.any() ? supported_bits(spec_of.bits) : 0),
      transformed(bits != 0 && spec_of.transform != Transform::kNone),
      scaled(has_scaled_groups(bits) && spec_of.transform == Transform::kHadamardScaled),
      sides_only(!spec_of.force_raw && sides_hold(spec_of.sides, span_of.type)),
      nonce(nonce_of) {}

std::size_t Request::grouped_bytes(const GroupedLayout& layout,
                                   std::size_t escapes) const noexcept {
  return layout.end_of_codes() + escapes * layout.source_bytes_per_group;
}

bool Request::grouped_pays(const GroupedLayout& layout) const noexcept {
  return layout.end_of_codes() < raw_bytes();
}

std::uint32_t Request::widest_step_bits() const noexcept {
  return spec.widest_step < float_of(kLargestFinite) ? bits_of(spec.widest_step) : kLargestFinite;
}

Header Request::header(PayloadKind kind) const noexcept {
  Header header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.type = static_cast<std::uint8_t>(span.type);
  header.bits = static_cast<std::uint8_t>(bits);
  if (spec.force_raw) header.flags |= kFlagForceRaw;
  header.elements = span.elements;
  header.nonce = nonce;
  return header;
}

bool is_constant(const Span& span) noexcept {
  const std::size_t size = element_size(span.type);
  const auto* const bytes = static_cast<const std::uint8_t*>(span.data);
  return span.elements != 0 && std::memcmp(bytes, bytes + size, span.bytes() - size) == 0;
}

std::uint64_t first_pattern(const Span& span) noexcept {
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, span.data, element_size(span.type));
  return pattern;
}

void encode_blocks(const Request& request, const Executor& executor, std::size_t first,
                   std::size_t count, void* metadata, std::uint8_t* codes, BlockResult* results,
                   std::uint64_t* slot_bytes, std::atomic<std::size_t>* escapes,
                   std::size_t escape_limit) noexcept {
  const unsigned type = static_cast<unsigned>(request.span.type);
  const unsigned metadata_type = static_cast<unsigned>(request.metadata_type());
  const GroupedLayout layout = request.layout();
  const std::size_t whole = request.span.elements / kGroupElements;
  const std::uint32_t widest_step = request.widest_step_bits();
  run_parts(executor, ceil_divide(count, kBlockGroups), kGrainBlocks,
            [&](std::size_t begin, std::size_t end) {
              for (std::size_t block = begin; block < end; ++block) {
                if (escapes->load(std::memory_order_relaxed) > escape_limit) return;
                const std::size_t from = block * kBlockGroups;  // relative to `first`
                const std::size_t to = from + kBlockGroups < count ? from + kBlockGroups : count;
                const bool has_tail = first + to > whole;
                results[block] = BlockResult{};
                EncodeGroups job;
                job.source = static_cast<const std::uint8_t*>(request.span.data) +
                             (first + from) * layout.source_bytes_per_group;
                job.first_group = first + from;
                job.groups = to - from - (has_tail ? 1 : 0);
                job.tail_elements = has_tail ? request.span.elements % kGroupElements : 0;
                job.bits = request.bits;
                job.transformed = request.transformed;
                job.scaled = request.scaled;
                job.nonce = request.nonce;
                job.metadata =
                    static_cast<std::uint8_t*>(metadata) + from * layout.metadata_bytes_per_group;
                job.codes = codes + from * layout.slot_bytes;
                job.result = &results[block];
                job.widest_step = widest_step;
                if (request.near_counts == nullptr)
                  kernels().encode[type](job);
                else
                  encode_beside_zero(request.span.type, job, request.near_counts + first + from);
                if (slot_bytes != nullptr) {
                  slot_bytes[block] = kernels().compact[metadata_type](job);
                  results[block].compacted = slot_bytes[block] != (to - from) * layout.slot_bytes;
                }
                if (results[block].escaped_groups != 0)
                  escapes->fetch_add(results[block].escaped_groups, std::memory_order_relaxed);
              }
            });
}

std::size_t finish_grouped(const Request& request, const GroupedLayout& layout,
                           const Totals& totals, const std::uint64_t* slot_bytes,
                           std::uint8_t* payload, std::uint8_t** escape_table) noexcept {
  return request.metadata_type() == ElementType::kFloat32
             ? finish<std::uint32_t>(request, layout, totals, slot_bytes, payload, escape_table)
             : finish<std::uint16_t>(request, layout, totals, slot_bytes, payload, escape_table);
}

}  // namespace pleat::compress

#include "compress/grouped/grouped.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "compress/float_types.h"
#include "compress/grouped/group_math.h"
#include "compress/near_zero/near_zero.h"

namespace pleat::compress {
namespace {

constexpr std::size_t kFewBlocks = 256;  // results on the stack: 16 KiB

template <class T>
Metadata<T> metadata_at(const std::uint8_t* metadata, std::size_t g) noexcept {
  Metadata<T> words;
  std::memcpy(&words, metadata + g * sizeof words, sizeof words);
  return words;
}

template <class T>
bool all_groups_equal(const GroupedLayout& layout, const std::uint8_t* payload) noexcept {
  const auto* const metadata = payload + kHeaderBytes;
  for (std::size_t g = 1; g < layout.groups; ++g)
    if (metadata_at<T>(metadata, g).first != metadata_at<T>(metadata, 0).first) return false;
  return true;
}

// Whether groups were coded as they are.
bool is_unmoved(const Request& request) noexcept {
  const std::size_t parts = all_parts(request.exponents, request.span.elements);
  return std::all_of(request.parts, request.parts + parts, [](std::int8_t e) { return e == 0; });
}

// Writes the section of exponents. A compact payload has none where all are 0. Returns its bytes.
std::size_t finish_exponents(const Request& request, const GroupedLayout& layout, Header* header,
                             std::uint8_t* section) noexcept {
  const Exponents& exponents = request.exponents;
  const std::size_t parts = all_parts(exponents, request.span.elements);
  if (request.spec.compact && exponents.channels == 0 && is_unmoved(request)) return 0;
  write_exponents(exponents, header);
  std::memmove(section, request.parts, parts);  // its place before may overlap
  std::memset(section + parts, 0, layout.exponent_bytes - parts);
  if (exponents.channels != 0)
    std::memcpy(section + table_offset(exponents, request.span.elements), exponents.table,
                exponents.channels);
  return layout.exponent_bytes;
}

void number_escapes(const Request& request, const GroupedLayout& layout,
                    std::uint8_t* payload) noexcept {
  std::uint64_t index = 0;
  for (std::size_t g = 0; g < layout.groups; ++g) {
    if (!is_escaped(request.metadata_type(), payload + kHeaderBytes, g)) continue;
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

template <class T>
std::size_t finish(const Request& request, const GroupedLayout& layout, const Totals& totals,
                   const std::uint64_t* slot_bytes, std::uint8_t* payload,
                   std::uint8_t** escape_table) noexcept {
  const SpanStatistics& seen = totals.statistics;
  Header header = request.header(PayloadKind::kGrouped);
  if (totals.lossy_groups != 0) header.flags |= kFlagLossy;
  if (request.transformed) header.flags |= kFlagTransformed;
  if (request.scaled) header.flags |= kFlagScaled;
  if (totals.near_zero) header.flags |= kFlagNearZero;
  if (request.zeros) header.flags |= kFlagZeros;
  if (request.spec.compact && seen.constant_groups == layout.groups && !totals.near_zero &&
      sizeof(typename T::Word) == element_size(request.span.type) &&
      all_groups_equal<T>(layout, payload) && (!request.exponents.any() || is_unmoved(request))) {
    header.kind = static_cast<std::uint8_t>(PayloadKind::kConstant);
    header.flags &= static_cast<std::uint8_t>(~(kFlagTransformed | kFlagScaled | kFlagZeros));
    header.value = metadata_at<T>(payload + kHeaderBytes, 0).first;
    return finish_header(header, kHeaderBytes, payload).payload_bytes;
  }
  const std::size_t metadata_end = kHeaderBytes + layout.groups * layout.metadata_bytes_per_group;
  std::memset(payload + metadata_end, 0, layout.codes_offset - metadata_end);
  if (seen.escaped_groups != 0) number_escapes(request, layout, payload);

  const std::size_t escape_bytes = seen.escaped_groups * layout.source_bytes_per_group;
  header.code_bytes = layout.code_bytes;
  std::size_t end = layout.end_of_codes();
  if (totals.compacted_blocks != 0) {
    header.flags |= kFlagCompacted;
    header.code_bytes = move_together(layout, payload + layout.codes_offset, slot_bytes);
    end = layout.codes_offset + header.code_bytes + layout.offset_table_bytes();
  }
  if (request.exponents.any()) end += finish_exponents(request, layout, &header, payload + end);
  *escape_table = payload + end;
  header.escapes = static_cast<std::uint32_t>(seen.escaped_groups);
  return finish_header(header, end + escape_bytes, payload).payload_bytes;
}

// Appends the elements near zero to a payload of `bytes` bytes.
EncodeResult append_near_zero(const Request& request, const GroupedLayout& layout,
                              std::uint8_t* payload, std::size_t capacity, std::size_t bytes,
                              const Executor& executor) noexcept {
  const std::size_t section = write_near_zero(request.span, layout, request.near_counts,
                                              payload + bytes, capacity - bytes, executor);
  if (section > capacity - bytes) return kDoesNotFit;
  Header header;
  std::memcpy(&header, payload, sizeof header);
  return finish_header(header, bytes + section, payload);
}

}  // namespace

EncodeGroups encode_job(const Request& request, const GroupedLayout& layout, std::size_t from,
                        std::size_t to) noexcept {
  const std::size_t whole = request.span.elements / kGroupElements;
  EncodeGroups job{};
  job.source =
      static_cast<const std::uint8_t*>(request.span.data) + from * layout.source_bytes_per_group;
  job.first_group = from;
  job.groups = (to > whole ? whole : to) - from;
  job.tail_elements = to > whole ? request.span.elements % kGroupElements : 0;
  job.bits = request.bits;
  job.transformed = request.transformed;
  job.scaled = request.scaled;
  job.nonce = request.nonce;
  job.widest_step = request.widest_step_bits();
  job.zeros = request.zeros;
  job.exponents = request.exponents;
  if (job.exponents.any() && request.parts != nullptr)
    job.parts = request.parts + parts_before(job.exponents, from);
  return job;
}

void Totals::add(const BlockResult& block) noexcept {
  statistics.constant_groups += block.constant_groups;
  statistics.two_valued_groups += block.two_valued_groups;
  statistics.escaped_groups += block.escaped_groups;
  lossy_groups += block.lossy_groups;
  compacted_blocks += block.compacted;
}

std::size_t count_escapes(const Request& request, const GroupedLayout& layout, std::size_t limit,
                          const Executor& executor) noexcept {
  std::atomic<std::size_t> escapes{0};
  run_parts(executor, layout.blocks, 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      if (escapes.load(std::memory_order_relaxed) > limit) return;
      const std::size_t from = block * kBlockGroups;
      const std::size_t to =
          from + kBlockGroups < layout.groups ? from + kBlockGroups : layout.groups;
      const EncodeGroups job = encode_job(request, layout, from, to);
      const std::size_t found =
          kernels().count_escapes[static_cast<unsigned>(request.span.type)](job);
      if (found != 0) escapes.fetch_add(found, std::memory_order_relaxed);
    }
  });
  return escapes.load();
}

void copy_escaped(const Request& request, std::size_t group, std::uint8_t* to) noexcept {
  const std::size_t size = kGroupElements * element_size(request.span.type), from = group * size;
  const std::size_t left = request.span.bytes() - from, length = left < size ? left : size;
  std::memcpy(to, static_cast<const std::uint8_t*>(request.span.data) + from, length);
  std::memset(to + length, 0, size - length);
}

void encode_blocks(const Request& request, const Executor& executor, std::size_t first,
                   std::size_t count, void* metadata, std::uint8_t* codes, BlockResult* results,
                   std::uint64_t* slot_bytes, std::atomic<std::size_t>* escapes,
                   std::size_t escape_limit) noexcept {
  const unsigned type = static_cast<unsigned>(request.span.type);
  const unsigned metadata_type = static_cast<unsigned>(request.metadata_type());
  const GroupedLayout layout = request.layout();
  run_parts(executor, ceil_divide(count, kBlockGroups), kGrainBlocks,
            [&](std::size_t begin, std::size_t end) {
              for (std::size_t block = begin; block < end; ++block) {
                if (escapes->load(std::memory_order_relaxed) > escape_limit) return;
                const std::size_t from = block * kBlockGroups;  // relative to `first`
                const std::size_t to = from + kBlockGroups < count ? from + kBlockGroups : count;
                results[block] = BlockResult{};
                EncodeGroups job = encode_job(request, layout, first + from, first + to);
                job.metadata =
                    static_cast<std::uint8_t*>(metadata) + from * layout.metadata_bytes_per_group;
                job.codes = codes + from * layout.slot_bytes;
                job.result = &results[block];
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
  return with_type(request.metadata_type(), [&]<class T>() {
    return finish<T>(request, layout, totals, slot_bytes, payload, escape_table);
  });
}

bool encode_grouped(Request request, const Executor& executor, std::uint8_t* payload,
                    std::size_t capacity, SpanStatistics* statistics,
                    EncodeResult* result) noexcept {
  const GroupedLayout layout = request.layout();
  *result = kDoesNotFit;
  std::unique_ptr<std::uint16_t[]> near_counts;
  if (request.spec.near_zero && request.bits != 0) {
    near_counts.reset(new (std::nothrow) std::uint16_t[layout.groups]);
    if (near_counts == nullptr) return true;
    request.near_counts = near_counts.get();
  }
  // The sizes of the blocks lie behind the regular slots. A payload of one block may have no room
  // there; its size lies here.
  const bool only = layout.blocks == 1 || !request.spec.compact;
  const std::size_t parts = layout.end_of_codes() + (only ? 0 : layout.offset_table_bytes());
  const std::size_t sized = parts + layout.exponent_bytes;
  if (sized > capacity) return true;  // so raw does not fit either
  request.parts = reinterpret_cast<std::int8_t*>(payload + parts);
  std::uint64_t only_bytes = 0;
  std::uint64_t* const slot_bytes =
      !request.spec.compact ? nullptr
      : only                ? &only_bytes
                            : reinterpret_cast<std::uint64_t*>(payload + layout.end_of_codes());
  // The bytes of parts follow, and the results of the blocks, where the escape table or the rest of
  // a raw copy would be. Without room for them, a few blocks are encoded at a time.
  BlockResult few[kFewBlocks];
  BlockResult* results = few;
  std::size_t most = kFewBlocks;
  const std::size_t behind = ceil_divide(sized, alignof(BlockResult)) * alignof(BlockResult);
  if (behind + layout.blocks * sizeof(BlockResult) <= capacity) {
    results = reinterpret_cast<BlockResult*>(payload + behind);
    most = layout.blocks;
  }
  Totals totals;
  const std::size_t limit = request.escape_limit(layout);
  std::atomic<std::size_t> escapes{0};
  for (std::size_t from = 0; from < layout.blocks && escapes.load() <= limit; from += most) {
    const std::size_t group = from * kBlockGroups, left = layout.groups - group;
    encode_blocks(request, executor, group, left < most * kBlockGroups ? left : most * kBlockGroups,
                  payload + kHeaderBytes + group * layout.metadata_bytes_per_group,
                  payload + layout.codes_offset + group * layout.slot_bytes, results,
                  slot_bytes == nullptr ? nullptr : slot_bytes + from, &escapes, limit);
    if (escapes.load() > limit) break;  // not all results have been written
    for (std::size_t block = from; block < layout.blocks && block < from + most; ++block)
      totals.add(results[block - from]);
  }
  if (request.bits == 0 && (escapes.load() > limit ||
                            request.grouped_bytes(layout, escapes.load()) >= request.raw_bytes()))
    return false;
  *statistics = totals.statistics;
  if (escapes.load() > limit) {
    *result = {Status::kTooManyEscapes, 0};
    return true;
  }
  totals.near_zero =
      near_counts != nullptr && std::any_of(near_counts.get(), near_counts.get() + layout.groups,
                                            [](std::uint16_t count) { return count != 0; });
  std::uint8_t* table = nullptr;  // written only once it is known to fit
  const std::size_t bytes = finish_grouped(request, layout, totals, slot_bytes, payload, &table);
  if (bytes > capacity) return true;
  for (std::size_t g = 0; escapes.load() != 0 && g < layout.groups; ++g) {
    if (!is_escaped(request.metadata_type(), payload + kHeaderBytes, g)) continue;
    copy_escaped(request, g, table);
    table += layout.source_bytes_per_group;
  }
  *result = totals.near_zero ? append_near_zero(request, layout, payload, capacity, bytes, executor)
                             : EncodeResult{Status::kOk, bytes};
  return true;
}

Status decode_grouped(const Header& header, const std::uint8_t* payload, void* target,
                      const Executor& executor, const BlockDecoded& decoded) noexcept {
  const std::optional<GroupedSections> sections = read_sections(header, payload);
  if (!sections) return Status::kCorrupt;
  const GroupedLayout& layout = sections->layout;
  const NearZeroSection& near_zero = sections->near_zero;
  const bool has_near = near_zero.counts != nullptr;
  const std::size_t size = element_size(static_cast<ElementType>(header.type));
  const bool stream = !decoded && !has_near && worth_streaming(target, header.elements * size);
  std::atomic<bool> intact{true};
  run_parts(executor, layout.blocks, kGrainBlocks, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      DecodeGroups job;
      if (!sections->block_job(block, &job)) {
        intact.store(false, std::memory_order_relaxed);
        return;
      }
      job.stream = stream;
      job.target =
          static_cast<std::uint8_t*>(target) + job.first_group * layout.source_bytes_per_group;
      if (!kernels().decode[header.type](job) ||
          (has_near && !near_zero.restore(block, job.groups * kGroupElements + job.tail_elements,
                                          size, job.target))) {
        intact.store(false, std::memory_order_relaxed);
        return;
      }
      if (decoded) decoded(*sections, job);
    }
  });
  return intact.load() ? Status::kOk : Status::kCorrupt;
}

}  // namespace pleat::compress

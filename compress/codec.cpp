#include "compress/codec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "compress/float_environment.h"
#include "compress/format.h"
#include "compress/framed/framed.h"
#include "compress/functions/functions.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/kernels.h"
#include "compress/near_zero/near_zero.h"
#include "compress/payload_writer.h"
#include "compress/sides/side_payload.h"

namespace pleat::compress {
namespace {

constexpr std::size_t kGrainBytes = 512 * 1024;
constexpr std::size_t kCopyBytes = 1024 * 1024;  // unit of a parallel copy
constexpr std::size_t kFewBlocks = 256;          // results on the stack: 16 KiB

bool worth_streaming(const void* target, std::size_t bytes) noexcept {
  return bytes >= stream_threshold() && reinterpret_cast<std::uintptr_t>(target) % 64 == 0;
}

void copy(const Executor& executor, void* target, const void* source, std::size_t bytes) noexcept {
  run_parts(executor, ceil_divide(bytes, kCopyBytes), 1, [&](std::size_t begin, std::size_t end) {
    const std::size_t first = begin * kCopyBytes;
    const std::size_t last = end * kCopyBytes < bytes ? end * kCopyBytes : bytes;
    std::memcpy(static_cast<std::uint8_t*>(target) + first,
                static_cast<const std::uint8_t*>(source) + first, last - first);
  });
}

// Where a payload goes.
struct Room {
  std::uint8_t* bytes;
  std::size_t capacity;
};
constexpr EncodeResult kDoesNotFit{Status::kNoRoom, 0};

EncodeResult finish_header(Header header, std::size_t bytes, std::uint8_t* payload) noexcept {
  header.payload_bytes = bytes;
  std::memcpy(payload, &header, sizeof header);
  return {Status::kOk, bytes};
}

EncodeResult encode_raw(const Request& request, const Executor& executor, Room room) noexcept {
  if (request.raw_bytes() > room.capacity) return kDoesNotFit;
  copy(executor, room.bytes + kHeaderBytes, request.span.data, request.span.bytes());
  return finish_header(request.header(PayloadKind::kRaw), request.raw_bytes(), room.bytes);
}

EncodeResult encode_constant(const Request& request, std::uint8_t* payload) noexcept {
  Header header = request.header(PayloadKind::kConstant);
  header.value = first_pattern(request.span);
  return finish_header(header, kHeaderBytes, payload);
}

EncodeResult encode_booleans(const Request& request, const Executor& executor, Room room) noexcept {
  const auto* const source = static_cast<const std::uint8_t*>(request.span.data);
  const std::size_t elements = request.span.elements;
  const std::size_t bytes = kHeaderBytes + packed_bytes(elements, 1);
  if (bytes > room.capacity) return kDoesNotFit;  // raw is no smaller
  std::uint8_t* const bits = room.bytes + kHeaderBytes;
  std::atomic<bool> boolean{true};
  run_parts(executor, ceil_divide(elements, kBlockElements), kGrainBytes / kBlockElements,
            [&](std::size_t begin, std::size_t end) {
              for (std::size_t block = begin; block < end; ++block) {
                if (!boolean.load(std::memory_order_relaxed)) return;
                const std::size_t first = block * kBlockElements;
                const std::size_t count =
                    elements - first < kBlockElements ? elements - first : kBlockElements;
                if (!kernels().pack_booleans(source + first, count, bits + first / 8))
                  boolean.store(false, std::memory_order_relaxed);
              }
            });
  if (!boolean.load()) return encode_raw(request, executor, room);
  return finish_header(request.header(PayloadKind::kBoolean), bytes, room.bytes);
}

// Encodes integers, and floats that the grouped form does not make smaller.
EncodeResult encode_frames(const Request& request, const Executor& executor, Room room) noexcept {
  EncodeResult result;
  if (encode_framed(request, executor, room.bytes, room.capacity, &result)) return result;
  return encode_raw(request, executor, room);
}

// Appends the elements near zero to a payload of `bytes` bytes.
EncodeResult append_near_zero(const Request& request, const GroupedLayout& layout, Room room,
                              std::size_t bytes, const Executor& executor) noexcept {
  const std::size_t section = write_near_zero(request.span, layout, request.near_counts,
                                              room.bytes + bytes, room.capacity - bytes, executor);
  if (section > room.capacity - bytes) return kDoesNotFit;
  Header header;
  std::memcpy(&header, room.bytes, sizeof header);
  return finish_header(header, bytes + section, room.bytes);
}

EncodeResult encode_grouped(Request request, const Executor& executor, Room room,
                            Totals* totals) noexcept {
  const GroupedLayout layout = request.layout();
  if (!request.grouped_pays(layout)) return encode_raw(request, executor, room);
  std::unique_ptr<std::uint16_t[]> near_counts;
  if (request.spec.near_zero && request.bits != 0) {
    near_counts.reset(new (std::nothrow) std::uint16_t[layout.groups]);
    if (near_counts == nullptr) return kDoesNotFit;
    request.near_counts = near_counts.get();
  }
  // The sizes of the blocks lie behind the regular slots. A payload of one block may have no room
  // there; its size lies here.
  const bool only = layout.blocks == 1 || !request.spec.compact;
  const std::size_t sized = layout.end_of_codes() + (only ? 0 : layout.offset_table_bytes());
  if (sized > room.capacity) return kDoesNotFit;  // so raw does not fit either
  std::uint8_t* const payload = room.bytes;
  std::uint64_t only_bytes = 0;
  std::uint64_t* const slot_bytes =
      !request.spec.compact ? nullptr
      : only                ? &only_bytes
                            : reinterpret_cast<std::uint64_t*>(payload + layout.end_of_codes());
  // The results of the blocks follow, where the escape table or the rest of a raw copy would be.
  // Without room for them, a few blocks are encoded at a time.
  BlockResult few[kFewBlocks];
  BlockResult* results = few;
  std::size_t most = kFewBlocks;
  const std::size_t behind = ceil_divide(sized, alignof(BlockResult)) * alignof(BlockResult);
  if (behind + layout.blocks * sizeof(BlockResult) <= room.capacity) {
    results = reinterpret_cast<BlockResult*>(payload + behind);
    most = layout.blocks;
  }
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
      totals->add(results[block - from]);
  }
  if (request.bits == 0 && (escapes.load() > limit ||
                            request.grouped_bytes(layout, escapes.load()) >= request.raw_bytes())) {
    *totals = Totals{};
    return encode_frames(request, executor, room);
  }
  if (escapes.load() > limit) return {Status::kTooManyEscapes, 0};

  totals->near_zero =
      near_counts != nullptr && std::any_of(near_counts.get(), near_counts.get() + layout.groups,
                                            [](std::uint16_t count) { return count != 0; });
  std::uint8_t* table = nullptr;  // written only once it is known to fit
  const std::size_t bytes = finish_grouped(request, layout, *totals, slot_bytes, payload, &table);
  if (bytes > room.capacity) return kDoesNotFit;
  if (escapes.load() != 0) {
    const std::size_t size = layout.source_bytes_per_group;
    for (std::size_t g = 0; g < layout.groups; ++g) {
      if (!is_escaped(request.metadata_type(), payload + kHeaderBytes, g)) continue;
      const std::size_t from = g * size;
      const std::size_t length =
          request.span.bytes() - from < size ? request.span.bytes() - from : size;
      std::memcpy(table, static_cast<const std::uint8_t*>(request.span.data) + from, length);
      std::memset(table + length, 0, size - length);
      table += size;
    }
  }
  if (totals->near_zero) return append_near_zero(request, layout, room, bytes, executor);
  return {Status::kOk, bytes};
}

// Reads and checks the header: lengths must agree before a target is touched.
Status read_header(const void* payload, std::size_t payload_bytes, Header* header) noexcept {
  if (payload == nullptr || payload_bytes < kHeaderBytes) return Status::kCorrupt;
  std::memcpy(header, payload, sizeof *header);
  constexpr auto kSides = static_cast<std::uint8_t>(PayloadKind::kSides);
  if (header->magic != kMagic || header->version != kFormatVersion || header->reserved != 0 ||
      (header->third_value != 0 && header->kind != kSides) || (header->flags & ~kKnownFlags) != 0 ||
      header->kind > kSides || header->type > static_cast<std::uint8_t>(ElementType::kBytes) ||
      header->bits != supported_bits(header->bits) || header->payload_bytes < kHeaderBytes ||
      header->payload_bytes > payload_bytes)
    return Status::kCorrupt;
  const auto type = static_cast<ElementType>(header->type);
  if (header->elements > SIZE_MAX / 2 / element_size(type)) return Status::kCorrupt;
  return Status::kOk;
}

struct Target {
  void* data;
  std::size_t bytes;
};

// Applies a function to the decoded elements of a block, which lie in the job's target.
void apply_to_block(const GroupedSections& sections, const DecodeGroups& job, std::uint8_t type,
                    Function function) noexcept {
  ApplyFunction apply = application(function);
  apply.metadata =
      sections.transformed || sections.near_zero.counts != nullptr ? nullptr : job.metadata;
  apply.bits = job.bits;
  apply.groups = job.groups;
  apply.tail_elements = job.tail_elements;
  apply.data = job.target;
  kernels().apply[type](apply);
}

Status decode_grouped(const Header& header, const std::uint8_t* payload, Target target,
                      Function function, const Executor& executor) noexcept {
  const std::optional<GroupedSections> sections = read_sections(header, payload);
  if (!sections) return Status::kCorrupt;
  const GroupedLayout& layout = sections->layout;
  const NearZeroSection& near_zero = sections->near_zero;
  const bool has_near = near_zero.counts != nullptr;
  const bool stream =
      function == Function::kNone && !has_near && worth_streaming(target.data, target.bytes);
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
          static_cast<std::uint8_t*>(target.data) + job.first_group * layout.source_bytes_per_group;
      if (!kernels().decode[header.type](job) ||
          (has_near &&
           !near_zero.restore(block, job.groups * kGroupElements + job.tail_elements,
                              element_size(static_cast<ElementType>(header.type)), job.target))) {
        intact.store(false, std::memory_order_relaxed);
        return;
      }
      if (function != Function::kNone) {  // while the elements are in a cache
        apply_to_block(*sections, job, header.type, function);
      }
    }
  });
  return intact.load() ? Status::kOk : Status::kCorrupt;
}

Status decode_booleans(const Header& header, const std::uint8_t* payload, Target target,
                       const Executor& executor) noexcept {
  if (static_cast<ElementType>(header.type) != ElementType::kBool ||
      header.payload_bytes - kHeaderBytes != packed_bytes(header.elements, 1))
    return Status::kCorrupt;
  const bool stream = worth_streaming(target.data, target.bytes);
  run_parts(executor, ceil_divide(target.bytes, kBlockElements), kGrainBytes / kBlockElements,
            [&](std::size_t begin, std::size_t end) {
              const std::size_t first = begin * kBlockElements;
              const std::size_t last =
                  end * kBlockElements < target.bytes ? end * kBlockElements : target.bytes;
              kernels().unpack_booleans(payload + kHeaderBytes + first / 8, last - first,
                                        static_cast<std::uint8_t*>(target.data) + first, stream);
            });
  return Status::kOk;
}

Status decode_constant(const Header& header, Target target, const Executor& executor) noexcept {
  const std::size_t size = element_size(static_cast<ElementType>(header.type));
  if (header.elements == 0 || header.payload_bytes != kHeaderBytes) return Status::kCorrupt;
  run_parts(executor, ceil_divide(target.bytes, kCopyBytes), 1,
            [&](std::size_t begin, std::size_t end) {
              auto* const bytes = static_cast<std::uint8_t*>(target.data) + begin * kCopyBytes;
              const std::size_t length =
                  (end * kCopyBytes < target.bytes ? end * kCopyBytes : target.bytes) -
                  begin * kCopyBytes;
              bool one_byte = true;  // one byte repeats: memset
              for (std::size_t i = 1; i < size; ++i)
                one_byte = one_byte && (header.value >> (8 * i) & 0xFF) == (header.value & 0xFF);
              if (one_byte) {
                std::memset(bytes, static_cast<int>(header.value & 0xFF), length);
                return;
              }
              std::size_t done = length < size ? length : size;
              std::memcpy(bytes, &header.value, done);
              while (done < length) {  // doubles up to a page, then copies that page
                const std::size_t seed = done < 4096 ? done : 4096;
                const std::size_t more = length - done < seed ? length - done : seed;
                std::memcpy(bytes + done, bytes, more);
                done += more;
              }
            });
  return Status::kOk;
}

}  // namespace

std::size_t payload_bound(const CodecSpec& spec, ElementType type, std::size_t elements) noexcept {
  const Request request({nullptr, elements, type}, spec, 0);
  if (request.sides_only) return SidePlan(request).header.payload_bytes;
  if (spec.force_raw || request.bits == 0) return request.raw_bytes();
  const GroupedLayout layout = request.layout();
  if (!request.grouped_pays(layout)) return request.raw_bytes();
  return request.grouped_bytes(layout, request.escape_limit(layout)) +
         (spec.compact ? layout.offset_table_bytes() : 0);
}

std::optional<std::size_t> exact_payload_bytes(const CodecSpec& spec, ElementType type,
                                               std::size_t elements) noexcept {
  const Request request({nullptr, elements, type}, spec, 0);
  if (request.sides_only || spec.force_raw || elements == 0 ||
      (request.bits != 0 && !request.grouped_pays(request.layout())))
    return payload_bound(spec, type, elements);
  if (request.bits == 0 || request.may_escape() || spec.compact || spec.near_zero)
    return std::nullopt;
  return payload_bound(spec, type, elements);
}

EncodeResult encode(const Span& source, const CodecSpec& spec, std::uint64_t nonce, void* payload,
                    std::size_t capacity, const Executor& executor,
                    SpanStatistics* statistics) noexcept {
  const FloatEnvironment environment;
  const Request request(source, spec, nonce);
  const Room room{static_cast<std::uint8_t*>(payload), capacity};
  const bool lossless = request.bits == 0 && !spec.force_raw;
  if (payload == nullptr || capacity < kHeaderBytes ||
      (!lossless && capacity < payload_bound(spec, source.type, source.elements)))
    return kDoesNotFit;
  Totals totals;
  EncodeResult result;
  if (request.sides_only) {
    result = encode_sides(request, executor, room.bytes, room.capacity);
  } else if (spec.force_raw || source.elements == 0) {
    result = encode_raw(request, executor, room);
  } else if (lossless && is_constant(source)) {
    result = encode_constant(request, room.bytes);
  } else if (is_floating(source.type)) {
    result = encode_grouped(request, executor, room, &totals);
  } else if (source.type == ElementType::kBool) {
    result = encode_booleans(request, executor, room);
  } else if (has_frames(source.type)) {
    result = encode_frames(request, executor, room);
  } else {
    result = encode_raw(request, executor, room);
  }
  if (statistics != nullptr) {
    *statistics = totals.statistics;
    statistics->groups = ceil_divide(source.elements, kGroupElements);
  }
  return result;
}

EncodeResult encode_zeros(ElementType type, std::size_t elements, std::uint64_t nonce,
                          void* payload, std::size_t capacity) noexcept {
  if (capacity < kHeaderBytes) return kDoesNotFit;
  const Request request({nullptr, elements, type}, {}, nonce);
  return finish_header(request.header(elements == 0 ? PayloadKind::kRaw : PayloadKind::kConstant),
                       kHeaderBytes, static_cast<std::uint8_t*>(payload));
}

Status decode(const void* payload, std::size_t payload_bytes, void* target,
              std::size_t target_bytes, const Executor& executor) noexcept {
  Header header;
  if (const Status status = read_header(payload, payload_bytes, &header); status != Status::kOk)
    return status;
  if (header.elements * element_size(static_cast<ElementType>(header.type)) != target_bytes ||
      (target == nullptr && target_bytes != 0))
    return Status::kCorrupt;
  const auto* const bytes = static_cast<const std::uint8_t*>(payload);
  const Target whole{target, target_bytes};
  switch (static_cast<PayloadKind>(header.kind)) {
    case PayloadKind::kRaw:
      if (header.payload_bytes - kHeaderBytes != target_bytes) return Status::kCorrupt;
      copy(executor, target, bytes + kHeaderBytes, target_bytes);
      return Status::kOk;
    case PayloadKind::kGrouped:
      return decode_grouped(header, bytes, whole, Function::kNone, executor);
    case PayloadKind::kBoolean:
      return decode_booleans(header, bytes, whole, executor);
    case PayloadKind::kFramed:
      return decode_framed(header, bytes, target, executor);
    case PayloadKind::kConstant:
      return decode_constant(header, whole, executor);
    case PayloadKind::kSides:
      return decode_sides(header, bytes, target, worth_streaming(target, target_bytes), executor);
  }
  return Status::kCorrupt;
}

namespace {

// The header of a payload whose floats fill the target.
Status read_header_of_floats(const void* payload, std::size_t payload_bytes,
                             std::size_t target_bytes, Header* header) noexcept {
  if (const Status status = read_header(payload, payload_bytes, header); status != Status::kOk)
    return status;
  const auto type = static_cast<ElementType>(header->type);
  return is_floating(type) && header->elements * element_size(type) == target_bytes
             ? Status::kOk
             : Status::kCorrupt;
}

}  // namespace

Status decode_function(const void* payload, std::size_t payload_bytes, void* target,
                       std::size_t target_bytes, Function function,
                       const Executor& executor) noexcept {
  Header header;
  if (const Status status = read_header_of_floats(payload, payload_bytes, target_bytes, &header);
      status != Status::kOk)
    return status;
  const auto type = static_cast<ElementType>(header.type);
  if (target == nullptr || static_cast<PayloadKind>(header.kind) == PayloadKind::kSides)
    return Status::kCorrupt;
  if (static_cast<PayloadKind>(header.kind) == PayloadKind::kGrouped)
    return decode_grouped(header, static_cast<const std::uint8_t*>(payload), {target, target_bytes},
                          function, executor);
  const Status status = decode(payload, payload_bytes, target, target_bytes, executor);
  if (status == Status::kOk) apply_function(target, header.elements, type, function, executor);
  return status;
}

Status apply_decoded_function(const void* payload, std::size_t payload_bytes, void* target,
                              std::size_t target_bytes, Function function,
                              const Executor& executor) noexcept {
  Header header;
  if (const Status status = read_header_of_floats(payload, payload_bytes, target_bytes, &header);
      status != Status::kOk)
    return status;
  const auto type = static_cast<ElementType>(header.type);
  if (static_cast<PayloadKind>(header.kind) != PayloadKind::kGrouped) {
    apply_function(target, header.elements, type, function, executor);
    return Status::kOk;
  }
  const std::optional<GroupedSections> sections =
      read_sections(header, static_cast<const std::uint8_t*>(payload));
  if (!sections) return Status::kCorrupt;
  std::atomic<bool> intact{true};
  run_parts(executor, sections->layout.blocks, kGrainBlocks,
            [&](std::size_t begin, std::size_t end) {
              for (std::size_t block = begin; block < end; ++block) {
                DecodeGroups job;
                if (!sections->block_job(block, &job)) {
                  intact.store(false, std::memory_order_relaxed);
                  return;
                }
                job.target = static_cast<std::uint8_t*>(target) +
                             job.first_group * sections->layout.source_bytes_per_group;
                apply_to_block(*sections, job, header.type, function);
              }
            });
  return intact.load() ? Status::kOk : Status::kCorrupt;
}

bool may_be_result(const void* payload, std::size_t payload_bytes, Function function,
                   const void* results) noexcept {
  Header header;
  return read_header(payload, payload_bytes, &header) == Status::kOk &&
         static_cast<PayloadKind>(header.kind) == PayloadKind::kGrouped && header.bits != 0 &&
         (header.flags & (kFlagTransformed | kFlagNearZero)) == 0 &&
         GroupedLayout(static_cast<ElementType>(header.type), header.bits, header.elements, false)
                 .codes_offset <= header.payload_bytes &&
         groups_may_be_result(header, static_cast<const std::uint8_t*>(payload), function, results);
}

Status inspect(const void* payload, std::size_t payload_bytes, PayloadInfo* info) noexcept {
  Header header;
  if (const Status status = read_header(payload, payload_bytes, &header); status != Status::kOk)
    return status;
  info->type = static_cast<ElementType>(header.type);
  info->spec = CodecSpec{};
  info->spec.bits = header.bits;
  info->spec.force_raw = (header.flags & kFlagForceRaw) != 0;
  if ((header.flags & kFlagTransformed) != 0)
    info->spec.transform =
        (header.flags & kFlagScaled) != 0 ? Transform::kHadamardScaled : Transform::kHadamard;
  info->spec.sides = sides_of(header);
  info->elements = header.elements;
  info->nonce = header.nonce;
  info->payload_bytes = header.payload_bytes;
  info->lossy = (header.flags & kFlagLossy) != 0;
  return Status::kOk;
}

}  // namespace pleat::compress

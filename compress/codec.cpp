#include "compress/codec.h"

#include <cstring>
#include <optional>

#include "compress/booleans/booleans.h"
#include "compress/float_environment.h"
#include "compress/format.h"
#include "compress/framed/framed.h"
#include "compress/functions/functions.h"
#include "compress/grouped/grouped.h"
#include "compress/payload_writer.h"
#include "compress/sides/side_payload.h"

namespace pleat::compress {
namespace {

constexpr std::size_t kCopyBytes = 1024 * 1024;  // unit of a parallel copy

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

EncodeResult encode_bits(const Request& request, const Executor& executor, Room room) noexcept {
  EncodeResult result;
  if (encode_booleans(request, executor, room.bytes, room.capacity, &result)) return result;
  return encode_raw(request, executor, room);
}

// Encodes integers, and floats that the grouped form does not make smaller.
EncodeResult encode_frames(const Request& request, const Executor& executor, Room room) noexcept {
  EncodeResult result;
  if (encode_framed(request, executor, room.bytes, room.capacity, &result)) return result;
  return encode_raw(request, executor, room);
}

EncodeResult encode_floats(const Request& request, const Executor& executor, Room room,
                           SpanStatistics* statistics) noexcept {
  if (!request.grouped_pays(request.layout())) return encode_raw(request, executor, room);
  EncodeResult result;
  if (encode_grouped(request, executor, room.bytes, room.capacity, statistics, &result))
    return result;
  return encode_frames(request, executor, room);
}

// Reads and checks the header: lengths must agree before a target is touched.
Status read_header(const void* payload, std::size_t payload_bytes, Header* header) noexcept {
  if (payload == nullptr || payload_bytes < kHeaderBytes) return Status::kCorrupt;
  std::memcpy(header, payload, sizeof *header);
  constexpr auto kSides = static_cast<std::uint8_t>(PayloadKind::kSides);
  if (header->magic != kMagic || header->version != kFormatVersion || header->reserved != 0 ||
      (header->third_value != 0 && header->kind != kSides &&
       (header->flags & kFlagExponents) == 0) ||
      header->kind > kSides || header->type > static_cast<std::uint8_t>(ElementType::kBytes) ||
      header->bits != supported_bits(header->bits) || header->payload_bytes < kHeaderBytes ||
      header->payload_bytes > payload_bytes)
    return Status::kCorrupt;
  const auto type = static_cast<ElementType>(header->type);
  if (header->elements > SIZE_MAX / 2 / element_size(type)) return Status::kCorrupt;
  return Status::kOk;
}

Status decode_constant(const Header& header, void* target, std::size_t target_bytes,
                       const Executor& executor) noexcept {
  const std::size_t size = element_size(static_cast<ElementType>(header.type));
  if (header.elements == 0 || header.payload_bytes != kHeaderBytes) return Status::kCorrupt;
  run_parts(executor, ceil_divide(target_bytes, kCopyBytes), 1,
            [&](std::size_t begin, std::size_t end) {
              auto* const bytes = static_cast<std::uint8_t*>(target) + begin * kCopyBytes;
              const std::size_t length =
                  (end * kCopyBytes < target_bytes ? end * kCopyBytes : target_bytes) -
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
  if (spec.any_byte && type == ElementType::kBool) return kHeaderBytes + packed_bytes(elements, 1);
  if (spec.force_raw || request.bits == 0) return request.raw_bytes();
  const GroupedLayout layout = request.layout();
  if (!request.grouped_pays(layout)) return request.raw_bytes();
  return request.grouped_bytes(layout, request.escape_limit(layout)) +
         (spec.compact ? layout.offset_table_bytes() : 0);
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
  SpanStatistics seen;
  EncodeResult result;
  if (request.sides_only) {
    result = encode_sides(request, executor, room.bytes, room.capacity);
  } else if (spec.force_raw || source.elements == 0) {
    result = encode_raw(request, executor, room);
  } else if (lossless && !spec.any_byte && is_constant(source)) {
    result = encode_constant(request, room.bytes);
  } else if (is_floating(source.type)) {
    result = encode_floats(request, executor, room, &seen);
  } else if (source.type == ElementType::kBool) {
    result = encode_bits(request, executor, room);
  } else if (has_frames(source.type)) {
    result = encode_frames(request, executor, room);
  } else {
    result = encode_raw(request, executor, room);
  }
  if (statistics != nullptr) {
    *statistics = seen;
    statistics->groups = ceil_divide(source.elements, kGroupElements);
  }
  return result;
}

std::size_t count_escapes(const Span& source, const CodecSpec& spec, std::uint64_t nonce,
                          const Executor& executor) noexcept {
  const Request request(source, spec, nonce);
  const GroupedLayout layout = request.layout();
  if (source.elements == 0 || request.bits == 0) return 0;
  return count_escapes(request, layout, layout.groups, executor);
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
  switch (static_cast<PayloadKind>(header.kind)) {
    case PayloadKind::kRaw:
      if (header.payload_bytes - kHeaderBytes != target_bytes) return Status::kCorrupt;
      copy(executor, target, bytes + kHeaderBytes, target_bytes);
      return Status::kOk;
    case PayloadKind::kGrouped:
      return decode_grouped(header, bytes, target, executor);
    case PayloadKind::kBoolean:
      return decode_booleans(header, bytes, target, executor);
    case PayloadKind::kFramed:
      return decode_framed(header, bytes, target, executor);
    case PayloadKind::kConstant:
      return decode_constant(header, target, target_bytes, executor);
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
    return decode_grouped(header, static_cast<const std::uint8_t*>(payload), target, executor,
                          [&](const GroupedSections& sections, const DecodeGroups& job) {
                            apply_to_block(sections, job, function);
                          });
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
  return apply_to_groups(header, static_cast<const std::uint8_t*>(payload), target, function,
                         executor);
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

#include "compress/block/block_payload.h"

#include <algorithm>
#include <cstring>

#include "compress/block/block_layout.h"
#include "compress/block/span_costs.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "compress/functions/functions.h"
#include "compress/lines/line_patch.h"
#include "compress/sides/sides.h"

namespace pleat::compress::block {
namespace {

// A span of the block, and the part of the payload that holds it.
struct SpanPart {
  const std::byte* from;
  std::size_t from_bytes;
  std::byte* to;
  std::size_t to_bytes;
  std::uint64_t nonce;
};

// Whether the codes of a part (what is left behind the patch) are what the form says.
bool has_form(const BlockForm& form, const SpanPart& part, std::size_t elements) noexcept {
  PayloadInfo info;
  return inspect(part.from, part.from_bytes, &info) == Status::kOk &&
         info.payload_bytes == part.from_bytes && info.elements == elements &&
         info.type == form.type && info.spec.bits == form.bits && info.nonce == part.nonce &&
         info.spec.sides.any() == (form.only_sides != 0) &&
         (info.spec.transform == Transform::kNone || info.spec.transform == form.transform);
}

bool decode_codes(const BlockForm& form, const SpanPart& part, const Executor& executor) noexcept {
  const std::size_t elements = part.to_bytes / element_size(form.type);
  if (!is_tiled(form.tiles != 0, form.type, form.bits, elements)) {
    return has_form(form, part, elements) &&
           decode(part.from, part.from_bytes, part.to, part.to_bytes, executor) == Status::kOk;
  }
  alignas(kAlign) std::byte tile[kTiledElements * sizeof(float)];
  if (!has_form(form, part, kTiledElements) ||
      decode(part.from, part.from_bytes, tile, kTiledElements * element_size(form.type),
             executor) != Status::kOk)
    return false;
  std::memcpy(part.to, tile, part.to_bytes);
  return true;
}

// Takes the patch off the front of a part. False: it is not there, or damaged.
bool skip_patch(const BlockForm& form, SpanPart& part) noexcept {
  if (form.patch_bytes == 0) return true;
  const std::size_t patch = check_patch(part.from, part.from_bytes, part.to_bytes);
  if (patch != form.patch_bytes || align_up(patch) > part.from_bytes) return false;
  part.from += align_up(patch);
  part.from_bytes -= align_up(patch);
  return true;
}

// Takes the sides off the end of what is left behind the patch. False: they are not there, or
// damaged. A span of a table may have none; *sides then has no bytes.
bool split_sides(const BlockForm& form, SpanPart& codes, SpanPart* sides) noexcept {
  *sides = codes;
  sides->from_bytes = 0;
  PayloadInfo info;
  if (form.side_part == 0) return true;
  if (inspect(codes.from, codes.from_bytes, &info) != Status::kOk) return false;
  const std::size_t bytes = info.payload_bytes, begin = align_up(bytes);
  if (bytes == codes.from_bytes) return form.shape == BlockShape::kTable;
  if (begin >= codes.from_bytes) return false;
  sides->from += begin;
  sides->from_bytes = codes.from_bytes - begin;
  codes.from_bytes = bytes;
  return inspect(sides->from, sides->from_bytes, &info) == Status::kOk && info.type == form.type &&
         info.nonce == codes.nonce;
}

bool decode_span(const BlockForm& form, const SpanPart& part, const Executor& executor) noexcept {
  SpanPart codes = part;
  SpanPart sides{};
  if (!skip_patch(form, codes) || !split_sides(form, codes, &sides) ||
      !decode_codes(form, codes, executor))
    return false;
  if (sides.from_bytes != 0 && restore_sides(sides.from, sides.from_bytes, sides.to, sides.to_bytes,
                                             executor) != Status::kOk)
    return false;
  if (form.patch_bytes != 0) apply_patch(part.from, part.to, part.to_bytes);
  return true;
}

bool decode_table(const BlockForm& form, const std::byte* in, std::size_t payload_bytes,
                  std::byte* out, std::size_t target_bytes, const Executor& executor) noexcept {
  TableHeader header{};
  if (form.spans > kMostSpans || table_bytes(form.spans) > payload_bytes ||
      (form.patch_bytes != 0 && form.spans != 1))
    return false;
  std::memcpy(&header, in, sizeof header);
  if (header.magic != kTableMagic || header.count != form.spans) return false;
  std::size_t filled = 0;                      // of the target
  std::size_t read = table_bytes(form.spans);  // of the payload
  std::uint64_t bytes = 0;                     // of the spans
  for (std::size_t i = 0; i < form.spans; ++i) {
    TableEntry e{};
    std::memcpy(&e, in + sizeof header + i * sizeof e, sizeof e);
    read = align_up(read);
    if (e.begin < filled || e.end < e.begin || e.end > target_bytes || read > payload_bytes ||
        (e.end - e.begin) % element_size(form.type) != 0 || e.offset != read ||
        e.payload_bytes > payload_bytes - read)
      return false;
    std::memset(out + filled, 0, e.begin - filled);
    if (!decode_span(form,
                     {in + read, e.payload_bytes, out + e.begin, e.end - e.begin, form.nonce + i},
                     executor))
      return false;
    filled = e.end;
    read += e.payload_bytes;
    bytes += e.end - e.begin;
  }
  std::memset(out + filled, 0, target_bytes - filled);
  return read == payload_bytes && bytes / element_size(form.type) == form.elements;
}

bool is_single(const BlockForm& form, std::size_t target_bytes) noexcept {
  return form.shape == BlockShape::kSingle && form.spans == 1 &&
         target_bytes % element_size(form.type) == 0 &&
         target_bytes / element_size(form.type) == form.elements;
}

}  // namespace

Status decode_block(const BlockForm& form, const void* payload, std::size_t payload_bytes,
                    void* target, std::size_t target_bytes, const Executor& executor) noexcept {
  const auto* const in = static_cast<const std::byte*>(payload);
  auto* const out = static_cast<std::byte*>(target);
  bool done = false;
  if (form.shape == BlockShape::kTable)
    done = decode_table(form, in, payload_bytes, out, target_bytes, executor);
  else if (is_single(form, target_bytes))
    done = decode_span(form, {in, payload_bytes, out, target_bytes, form.nonce}, executor);
  return done ? Status::kOk : Status::kCorrupt;
}

namespace {

// With exact lines, sides or repeated elements, values are final only after the whole block is
// decoded. Else the function is applied group by group.
bool applies_by_group(const BlockForm& form, const void* payload, std::size_t payload_bytes,
                      std::size_t target_bytes) noexcept {
  const SpanPart whole{static_cast<const std::byte*>(payload), payload_bytes, nullptr, target_bytes,
                       form.nonce};
  return is_single(form, target_bytes) && form.patch_bytes == 0 && form.side_part == 0 &&
         has_form(form, whole, target_bytes / element_size(form.type));
}

bool may_apply(const BlockForm& form, Recomputed how) noexcept {
  return how.type == form.type && is_floating(form.type) && how.function != Function::kNone &&
         form.only_sides == 0;
}

}  // namespace

CodecSpec codec_of_payload(const BlockForm& form, const void* payload, std::size_t payload_bytes,
                           const CodecSpec& asked) noexcept {
  SpanPart part{static_cast<const std::byte*>(payload), payload_bytes, nullptr,
                form.elements * element_size(form.type), form.nonce};
  SpanPart sides{};
  Header header;
  if (form.shape != BlockShape::kSingle || !skip_patch(form, part) ||
      !split_sides(form, part, &sides) || !has_form(form, part, form.elements))
    return asked;
  std::memcpy(&header, part.from, sizeof header);
  if (static_cast<PayloadKind>(header.kind) != PayloadKind::kGrouped) return asked;
  const std::optional<GroupedSections> sections =
      read_sections(header, reinterpret_cast<const std::uint8_t*>(part.from));
  return sections ? spec_of_payload(*sections, asked) : asked;
}

Status apply_block_function(const BlockForm& form, const void* payload, std::size_t payload_bytes,
                            void* target, std::size_t target_bytes, Recomputed how,
                            const Executor& executor) noexcept {
  if (!may_apply(form, how)) return Status::kCorrupt;
  if (applies_by_group(form, payload, payload_bytes, target_bytes)) {
    return apply_decoded_function(payload, payload_bytes, target, target_bytes, how.function,
                                  executor);
  }
  apply_function(target, target_bytes / element_size(form.type), form.type, how.function, executor);
  return Status::kOk;
}

Status decode_block_function(const BlockForm& form, const void* payload, std::size_t payload_bytes,
                             void* target, std::size_t target_bytes, Recomputed how,
                             const Executor& executor) noexcept {
  if (!may_apply(form, how)) return Status::kCorrupt;
  if (applies_by_group(form, payload, payload_bytes, target_bytes))
    return decode_function(payload, payload_bytes, target, target_bytes, how.function, executor);
  const Status status = decode_block(form, payload, payload_bytes, target, target_bytes, executor);
  if (status == Status::kOk) {
    apply_function(target, target_bytes / element_size(form.type), form.type, how.function,
                   executor);
  }
  return status;
}

bool may_be_result(const BlockForm& form, const void* payload, std::size_t payload_bytes,
                   Recomputed how, const void* result, std::size_t result_bytes) noexcept {
  SpanPart part{static_cast<const std::byte*>(payload), payload_bytes, nullptr, result_bytes,
                form.nonce};
  SpanPart sides{};
  return how.type == form.type && how.function != Function::kNone && form.only_sides == 0 &&
         is_single(form, result_bytes) && skip_patch(form, part) &&
         split_sides(form, part, &sides) && has_form(form, part, form.elements) &&
         compress::may_be_result(part.from, part.from_bytes, how.function, result);
}

}  // namespace pleat::compress::block

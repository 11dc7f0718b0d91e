// Encodes over the head of the source. A payload is smaller than its source, so once reading has
// passed the header and the metadata, which come first, writing never catches up with it. The first
// tile goes through a bounce buffer, later tiles mostly straight to their place.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "compress/booleans/booleans.h"
#include "compress/codec.h"
#include "compress/float_environment.h"
#include "compress/format.h"
#include "compress/framed/framed.h"
#include "compress/grouped/grouped.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"
#include "compress/sides/side_payload.h"

namespace pleat::compress {
namespace {

constexpr std::size_t kLeastBounceBytes = 256 * 1024;
constexpr std::size_t kMostTileBlocks = 4096;  // bounds the results kept per tile

// 64-byte aligned memory from malloc, freed on every way out.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes) noexcept
      : data_(static_cast<std::uint8_t*>(std::aligned_alloc(64, ceil_divide(bytes, 64) * 64))) {}
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::uint8_t* data() const noexcept { return data_; }

 private:
  std::uint8_t* data_;
};

struct Buffer {
  std::uint8_t* bytes;
  std::size_t capacity;
};

EncodeResult keep_raw(const Request& request, Buffer buffer) noexcept {
  if (request.raw_bytes() > buffer.capacity) return kDoesNotFit;
  std::memmove(buffer.bytes + kHeaderBytes, buffer.bytes, request.span.bytes());
  return finish_header(request.header(PayloadKind::kRaw), request.raw_bytes(), buffer.bytes);
}

// Booleans and sides: `pack(first, count, codes)` packs elements [first, first + count) at
// `width` bits. The caller has checked that the packed form is smaller than the source.
template <class Pack>
EncodeResult pack_tiles(const Request& request, Header header, unsigned width, Buffer buffer,
                        const Executor& executor, const Pack& pack) noexcept {
  const std::size_t elements = request.span.elements;
  const std::size_t total = kHeaderBytes + packed_bytes(elements, width);
  if (total > buffer.capacity) return kDoesNotFit;
  // Whole blocks, so that every tile's codes begin on a byte. After the first tile, reading has
  // passed the header.
  const std::size_t tile =
      ceil_divide(kLeastBounceBytes * 8 / width, kBlockElements) * kBlockElements;
  const Scratch bounce(packed_bytes(tile < elements ? tile : elements, width) + 64);
  if (bounce.data() == nullptr) return kDoesNotFit;
  for (std::size_t first = 0; first < elements; first += tile) {
    const std::size_t count = elements - first < tile ? elements - first : tile;
    by_blocks(executor, count, 8, [&](std::size_t from, std::size_t part) {
      pack(first + from, part, bounce.data() + from / 8 * width);
    });
    std::memcpy(buffer.bytes + kHeaderBytes + first / 8 * width, bounce.data(),
                packed_bytes(count, width));
  }
  return finish_header(header, total, buffer.bytes);
}

EncodeResult booleans_in_place(const Request& request, Buffer buffer,
                               const Executor& executor) noexcept {
  if (!are_booleans(request.span, executor)) return keep_raw(request, buffer);
  return pack_tiles(request, request.header(PayloadKind::kBoolean), 1, buffer, executor,
                    [&](std::size_t first, std::size_t count, std::uint8_t* codes) {
                      (void)kernels().pack_booleans(buffer.bytes + first, count, codes);
                    });
}

EncodeResult sides_in_place(const Request& request, Buffer buffer,
                            const Executor& executor) noexcept {
  const SidePlan plan(request);
  return pack_tiles(request, plan.header, plan.width(), buffer, executor,
                    [&](std::size_t first, std::size_t count, std::uint8_t* codes) {
                      pack_sides(request, plan.test, first, count, codes);
                    });
}

EncodeResult frames_in_place(const Request& request, Buffer buffer,
                             const Executor& executor) noexcept {
  EncodeResult result;
  if (encode_framed_in_place(request, executor, buffer.bytes, buffer.capacity, &result))
    return result;
  return keep_raw(request, buffer);
}

EncodeResult grouped_in_place(Request request, Buffer buffer, const Executor& executor,
                              Totals* totals) noexcept {
  const GroupedLayout layout = request.layout();
  if (!request.grouped_pays(layout)) return keep_raw(request, buffer);
  const std::size_t limit = request.escape_limit(layout);
  const std::size_t escapes =
      request.may_escape() ? count_escapes(request, layout, limit, executor) : 0;
  const std::size_t bytes = request.grouped_bytes(layout, escapes);
  if (request.bits == 0 && (escapes > limit || bytes >= request.raw_bytes()))
    return frames_in_place(request, buffer, executor);
  if (escapes > limit) return {Status::kTooManyEscapes, 0};
  if (bytes > buffer.capacity) return kDoesNotFit;

  const std::size_t size = layout.source_bytes_per_group;
  const std::size_t slot = layout.slot_bytes;
  // After this many groups, reading has passed header, metadata and the codes of these groups.
  std::size_t tile = ceil_divide(layout.codes_offset, size - slot);
  if (tile < kLeastBounceBytes / slot) tile = kLeastBounceBytes / slot;
  tile = ceil_divide(tile, kBlockGroups) * kBlockGroups;
  const std::size_t bounced = tile < layout.groups ? tile : layout.groups;
  const std::size_t metadata_bytes = bounced * layout.metadata_bytes_per_group;
  const std::size_t most_blocks = layout.blocks < kMostTileBlocks ? layout.blocks : kMostTileBlocks;
  const std::size_t result_blocks =
      most_blocks > tile / kBlockGroups ? most_blocks : tile / kBlockGroups;
  const std::size_t results_bytes = result_blocks * sizeof(BlockResult);
  const std::size_t sizes_bytes = ceil_divide(layout.blocks, 8) * 8 * sizeof(std::uint64_t);
  const Scratch scratch(results_bytes + sizes_bytes + bounced * slot + metadata_bytes +
                        layout.exponent_bytes + escapes * size);
  if (scratch.data() == nullptr) return kDoesNotFit;
  auto* const results = reinterpret_cast<BlockResult*>(scratch.data());
  auto* const slot_bytes = reinterpret_cast<std::uint64_t*>(scratch.data() + results_bytes);
  std::uint8_t* const bounce_codes = scratch.data() + results_bytes + sizes_bytes;
  std::uint8_t* const bounce_metadata = bounce_codes + bounced * slot;
  request.parts = reinterpret_cast<std::int8_t*>(bounce_metadata + metadata_bytes);
  std::uint8_t* const kept = bounce_metadata + metadata_bytes + layout.exponent_bytes;

  std::size_t kept_groups = 0;
  for (std::size_t first = 0; first < layout.groups;) {
    std::uint8_t* const final_metadata =
        buffer.bytes + kHeaderBytes + first * layout.metadata_bytes_per_group;
    std::uint8_t* const final_codes = buffer.bytes + layout.codes_offset + first * slot;
    const std::size_t left = layout.groups - first;
    // How many groups have codes that end before the first byte not yet read.
    const std::size_t read = first * size;
    const std::size_t begin_codes = layout.codes_offset + first * slot;
    std::size_t direct = read > begin_codes ? (read - begin_codes) / slot : 0;
    direct = direct / kBlockGroups * kBlockGroups;
    if (direct > result_blocks * kBlockGroups) direct = result_blocks * kBlockGroups;
    const bool bounce = direct < tile && direct < left;
    std::size_t count = bounce ? tile : direct;
    if (count > left) count = left;
    std::uint8_t* const metadata = bounce ? bounce_metadata : final_metadata;
    std::uint8_t* const codes = bounce ? bounce_codes : final_codes;
    std::atomic<std::size_t> ignored{0};
    encode_blocks(request, executor, first, count, metadata, codes, results,
                  request.spec.compact ? slot_bytes + first / kBlockGroups : nullptr, &ignored,
                  layout.groups);
    for (std::size_t block = 0; block * kBlockGroups < count; ++block) {
      totals->add(results[block]);
      if (results[block].escaped_groups == 0) continue;
      for (std::size_t g = block * kBlockGroups; g < count && g < (block + 1) * kBlockGroups; ++g) {
        if (!is_escaped(request.metadata_type(), metadata, g)) continue;
        copy_escaped(request, first + g, kept + kept_groups * size);
        ++kept_groups;
      }
    }
    if (bounce) {
      std::memcpy(final_metadata, metadata, count * layout.metadata_bytes_per_group);
      std::memcpy(final_codes, codes, count * slot);
    }
    first += count;
  }
  std::uint8_t* table = nullptr;
  const std::size_t used =
      finish_grouped(request, layout, *totals, slot_bytes, buffer.bytes, &table);
  if (kept_groups != 0) std::memcpy(table, kept, kept_groups * size);
  return {Status::kOk, used};
}

}  // namespace

EncodeResult encode_in_place(void* buffer, std::size_t capacity, std::size_t elements,
                             ElementType type, const CodecSpec& spec, std::uint64_t nonce,
                             const Executor& executor, SpanStatistics* statistics) noexcept {
  const FloatEnvironment environment;
  const Request request({buffer, elements, type}, spec, nonce);
  const Buffer whole{static_cast<std::uint8_t*>(buffer), capacity};
  if (buffer == nullptr || capacity < request.span.bytes() || capacity < kHeaderBytes ||
      (spec.near_zero && request.bits != 0))
    return kDoesNotFit;
  Totals totals;
  EncodeResult result;
  if (request.sides_only) {
    result = sides_in_place(request, whole, executor);
  } else if (spec.force_raw || elements == 0) {
    result = keep_raw(request, whole);
  } else if (request.bits == 0 && is_constant(request.span)) {
    Header header = request.header(PayloadKind::kConstant);
    header.value = first_pattern(request.span);
    result = finish_header(header, kHeaderBytes, whole.bytes);
  } else if (is_floating(type)) {
    result = grouped_in_place(request, whole, executor, &totals);
  } else if (type == ElementType::kBool) {
    result = booleans_in_place(request, whole, executor);
  } else if (has_frames(type)) {
    result = frames_in_place(request, whole, executor);
  } else {
    result = keep_raw(request, whole);
  }
  if (statistics != nullptr) {
    *statistics = totals.statistics;
    statistics->groups = ceil_divide(elements, kGroupElements);
  }
  return result;
}

}  // namespace pleat::compress

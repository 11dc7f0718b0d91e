// PLEAT_FUZZ_DEVICE: the CUDA decoders' own code, on the CPU, in place of the library's.
#include "tests/fuzz/decode_fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "compress/codec.h"
#include "compress/format.h"
#include "compress/near_zero/near_zero.h"
#include "compress/rotated/scaled_groups.h"
#include "compress/sides/sides.h"
#ifdef PLEAT_FUZZ_DEVICE
#include "tests/compress/emulated_kernels.h"
#endif

namespace pleat::fuzz {
namespace {

using namespace compress;

constexpr std::size_t kMostElements = 40000;

// Turns the header into one of sides.
void make_sides(Input& input, unsigned selector, Header& header) {
  header.kind = static_cast<std::uint8_t>(PayloadKind::kSides);
  header.type = static_cast<std::uint8_t>(selector % 3);
  header.bits = static_cast<std::uint8_t>(1 + selector % 2);
  header.code_bytes = input.take(8);
  header.third_value = header.bits == 2 ? input.take(4) : 0;
  if (header.type == 0) return;
  for (std::uint64_t* const words : {&header.value, &header.code_bytes, &header.third_value})
    *words &= 0x0000'FFFF'0000'FFFF;  // of 16 bits each
}

// Gives a grouped header exponents, and takes flags away that are refused with them. One in eight
// keeps those.
void make_exponents(Input& input, Header& header) {
  if ((header.flags & kFlagExponents) != 0) {
    const auto row = static_cast<std::uint32_t>(input.take(2));
    const auto channels = static_cast<std::uint32_t>(input.take(1) % 128 * 5);
    write_exponents({row, channels, static_cast<std::uint32_t>(input.take(1)), nullptr}, &header);
  }
  if (header.nonce % 8 == 7) return;
  if ((header.flags & kFlagExponents) != 0) {
    header.flags &= static_cast<std::uint8_t>(~kFlagNearZero);
    header.bits = std::max<std::uint8_t>(header.bits, 1);
    if (!exponents_of(header).any()) write_exponents({24, 0, 1, nullptr}, &header);
  }
  if ((header.flags & (kFlagTransformed | kFlagNearZero)) != 0 || header.bits < 2)
    header.flags &= static_cast<std::uint8_t>(~kFlagZeros);
}

// Bytes of parts and a table that are in range.
void put_into_range(const Exponents& exponents, std::uint64_t elements, std::uint8_t* section) {
  const std::uint64_t parts = all_parts(exponents, elements);
  const std::uint64_t end = exponent_bytes(exponents, elements);
  for (std::uint64_t i = 0; i < end; ++i) {
    const unsigned byte = section[i];
    const int value = i >= parts   ? -static_cast<int>(byte % 31)
                      : byte < 240 ? static_cast<int>(byte % 121)
                                   : kZeroPart;
    section[i] = static_cast<std::uint8_t>(value);
  }
}

// The payload lies at the end of a block of its own, so that the first byte beyond is caught.
std::vector<std::uint8_t> with_header(Shape shape, Input input) {
  Header header;
  header.elements = input.take(2) % kMostElements;
  const auto selector = static_cast<unsigned>(input.take(1));
  header.nonce = input.take(1);
  switch (shape) {
    case Shape::grouped:
      header.kind = static_cast<std::uint8_t>(PayloadKind::kGrouped);
      header.type = static_cast<std::uint8_t>(selector % 3);
      header.bits = static_cast<std::uint8_t>(supported_bits(selector / 3 % 9));
      header.flags = static_cast<std::uint8_t>(input.take(1));
      if ((header.flags & kFlagScaled) != 0) {  // means nothing without these
        header.flags |= kFlagTransformed;
        header.bits = static_cast<std::uint8_t>(1 + header.bits % 2);
      }
      header.escapes = static_cast<std::uint32_t>(input.take(1));
      make_exponents(input, header);
      break;
    case Shape::framed:
      header.kind = static_cast<std::uint8_t>(PayloadKind::kFramed);
      header.type = static_cast<std::uint8_t>(selector % 5 + (selector % 5 > 2 ? 1 : 0));
      break;
    default:
      header.kind = static_cast<std::uint8_t>(selector % 3 == 0   ? PayloadKind::kRaw
                                              : selector % 3 == 1 ? PayloadKind::kBoolean
                                                                  : PayloadKind::kConstant);
      header.type = static_cast<std::uint8_t>(selector / 3 % 7);
      header.value = input.take(8);
      if (selector >= 250) make_sides(input, selector, header);
      break;
  }
  const auto type = static_cast<ElementType>(header.type);
  const Exponents exponents = shape == Shape::grouped ? exponents_of(header) : Exponents{};
  std::size_t body = input.size, near_zero = 0, section = 0;
  if (shape == Shape::grouped) {
    const GroupedLayout layout(type, header.bits, header.elements,
                               (header.flags & kFlagTransformed) != 0, exponents);
    const bool compacted = (header.flags & kFlagCompacted) != 0;
    header.code_bytes = compacted ? input.take(2) % (layout.code_bytes + 1) : layout.code_bytes;
    section = layout.codes_offset - kHeaderBytes + header.code_bytes +
              (compacted ? layout.offset_table_bytes() : 0);
    body = section + layout.exponent_bytes + header.escapes * layout.source_bytes_per_group;
    if ((header.flags & kFlagNearZero) != 0) {
      near_zero = body;
      body += NearZeroLayout(layout).elements + header.nonce * layout.groups;
    }
  } else if (shape == Shape::packed) {
    body = header.kind == static_cast<std::uint8_t>(PayloadKind::kConstant) ? 0
           : header.kind == static_cast<std::uint8_t>(PayloadKind::kBoolean)
               ? (header.elements + 7) / 8
           : header.kind == static_cast<std::uint8_t>(PayloadKind::kSides)
               ? (header.elements * header.bits + 7) / 8
               : header.elements * element_size(type);
  } else {
    const std::size_t frame = is_floating(type) ? 256 : 1024;
    const std::size_t table =
        ceil_divide(ceil_divide(header.elements, frame) * 2 * element_size(type), 64) * 64;
    header.code_bytes = body < table ? 0 : body - table;
  }
  header.payload_bytes = kHeaderBytes + body;
  std::vector<std::uint8_t> payload(kHeaderBytes + body);
  std::memcpy(payload.data(), &header, sizeof header);
  // The input, over and over: short inputs reach every section.
  for (std::size_t i = 0; i < body && input.size != 0; ++i)
    payload[kHeaderBytes + i] = input.data[i % input.size];
  if (shape == Shape::grouped && (header.flags & kFlagCompacted) != 0) {
    // Random offsets would hardly ever ascend; the first block's is as it comes in one of two.
    const GroupedLayout layout(type, header.bits, header.elements,
                               (header.flags & kFlagTransformed) != 0);
    const std::uint64_t stride = header.nonce * layout.slot_bytes / 4;
    for (std::uint64_t block = header.nonce % 2; block < layout.blocks; ++block) {
      const std::uint64_t offset = std::min(block * stride, header.code_bytes);
      std::memcpy(&payload[layout.codes_offset + header.code_bytes + 8 * block], &offset, 8);
    }
  }
  if (exponents.any() && header.nonce % 4 != 0)
    put_into_range(exponents, header.elements, &payload[kHeaderBytes + section]);
  if (near_zero != 0) {  // counts and offsets that may fit
    const GroupedLayout layout(type, header.bits, header.elements,
                               (header.flags & kFlagTransformed) != 0);
    std::uint8_t* const section = &payload[kHeaderBytes + near_zero];
    std::uint64_t offset = 0;
    for (std::size_t g = 0; g < layout.groups; ++g) {
      if (g % kBlockGroups == 0)
        std::memcpy(section + NearZeroLayout(layout).offsets + g / kBlockGroups * 8, &offset, 8);
      const std::uint16_t count = section[2 * g] % (1 + header.nonce / 4);
      std::memcpy(section + 2 * g, &count, sizeof count);
      offset += near_zero_bytes(count, element_size(type));
    }
  }
  if (shape == Shape::grouped && (header.flags & kFlagScaled) != 0) {
    // 32 bits are too many to guess
    for (std::size_t at = kHeaderBytes;
         at + 8 <= payload.size() && at < kHeaderBytes + ceil_divide(header.elements, 256) * 8;
         at += 8)
      if (payload[at] % 2 != 0) std::memcpy(&payload[at], &kScaledMark, sizeof kScaledMark);
  }
  return payload;
}

#ifdef PLEAT_FUZZ_DEVICE
void decode_everywhere(const std::uint8_t* payload, std::size_t payload_bytes,
                       const PayloadInfo& info, std::uint8_t* target) {
  Header header;
  std::memcpy(&header, payload, sizeof header);
  const auto kind = static_cast<PayloadKind>(header.kind);
  const auto type = static_cast<unsigned>(info.type);
  cuda::Verdict verdict;
  cuda::Job job{};
  job.source = payload;
  job.target = target;
  job.verdict = &verdict;
  job.elements = info.elements;
  if (info.elements == 0) return;
  if (is_floating(info.type)) job.capacity = payload_bytes;
  if (kind == PayloadKind::kSides && is_floating(info.type)) {
    job.width = info.spec.bits;
    test::emulate_decode_sides(info.type, job);
  } else if (kind == PayloadKind::kGrouped && is_floating(info.type)) {
    test::emulate_decode({info.type, info.spec.bits, info.spec.transform}, job);
  } else if (kind == PayloadKind::kFramed && is_floating(info.type)) {
    (void)test::emulate_framed_job(info.type, false, job);
  } else if (kind == PayloadKind::kFramed) {
    const std::size_t width_at = kHeaderBytes + element_size(info.type);
    if (payload_bytes <= width_at) return;
    job.width = payload[width_at];  // what the caller predicts: the first frame's
    test::emulate_unpack(job, type);
  } else if (kind == PayloadKind::kBoolean && info.type == ElementType::kBool) {
    test::emulate_unpack(job, type);
  }
}
#else
void decode_everywhere(const std::uint8_t* payload, std::size_t payload_bytes,
                       const PayloadInfo& info, std::uint8_t* target) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    set_isa(isa);
    for (const std::size_t threshold : {SIZE_MAX, std::size_t{1}}) {
      set_stream_threshold(threshold);
      (void)decode(payload, payload_bytes, target, info.elements * element_size(info.type),
                   serial_executor());
      (void)restore_sides(payload, payload_bytes, target, info.elements * element_size(info.type),
                          serial_executor());
    }
  }
}
#endif

}  // namespace

std::vector<std::uint8_t> payload_of(Shape shape, Input input) {
  return shape == Shape::payload ? std::vector<std::uint8_t>(input.data, input.data + input.size)
                                 : with_header(shape, input);
}

std::uint8_t* exactly(std::size_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, 64, bytes == 0 ? 1 : bytes) != 0) std::abort();
  return static_cast<std::uint8_t*>(block);
}

void decode_hostile(Shape shape, const std::uint8_t* data, std::size_t size) {
  const std::vector<std::uint8_t> payload = payload_of(shape, {data, size});
  std::uint8_t* const exact = exactly(payload.size());
  if (!payload.empty()) std::memcpy(exact, payload.data(), payload.size());
  PayloadInfo info;
  if (inspect(exact, payload.size(), &info) == Status::kOk && info.elements <= 8 * kMostElements) {
    std::uint8_t* const target = exactly(info.elements * element_size(info.type));
    decode_everywhere(exact, payload.size(), info, target);
    std::free(target);
  }
  std::free(exact);
}

}  // namespace pleat::fuzz

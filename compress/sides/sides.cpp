#include "compress/sides/sides.h"

#include <atomic>
#include <cstring>

#include "compress/codec.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/sides/side_payload.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

SideValues values_of(const Sides& sides, ElementType type) noexcept {
  const FloatEnvironment environment;
  return with_type(type, [&]<class T>() { return side_values<T>(sides); });
}

// True if a decoder can follow the header, whatever the codes are.
bool is_sound(const Header& header) noexcept {
  const auto type = static_cast<ElementType>(header.type);
  if (!is_floating(type) || (header.bits != 1 && header.bits != 2) || header.flags != 0 ||
      header.escapes != 0 ||
      header.payload_bytes - kHeaderBytes != packed_bytes(header.elements, header.bits))
    return false;
  const SideWords words = SideWords::of(header);
  const std::uint32_t all =
      words.value[0] | words.value[1] | words.value[2] | words.first | words.last;
  return header.third_value >> 32 == 0 && (header.bits == 2 || words.value[2] == 0) &&
         (element_size(type) == 4 || all >> 16 == 0);
}

}  // namespace

Sides sides_beside_values(const Sides& sides, ElementType type) noexcept {
  if (!sides.any()) return {};
  const SideTest test = values_of(sides, type).test;
  const bool empty = test.first > test.last;  // all values are outside
  if (empty || (!is_low_bound(test.first) && !is_high_bound(test.last))) return {};
  return {has_two_bounds(sides) ? Sides::Kind::kThree : Sides::Kind::kClosed, false, test.first,
          test.last};
}

bool keeps_sides(const Span& source, const CodecSpec& codec, const Sides& sides,
                 const Executor& executor) noexcept {
  if (supported_bits(codec.bits) < 2 || codec.transform != Transform::kNone ||
      codec.exponents.any() || (is_low_bound(sides.low) && sides.low != 0) ||
      (is_high_bound(sides.high) && sides.high != 0))
    return false;
  // Zeros and positive values keep their sides of zero. NaN is exact.
  const SideTest test{0, float_of(0x7F80'0000u), true, false};
  std::atomic<bool> kept{true};
  by_blocks(executor, source.elements, packing_grain(source.type),
            [&](std::size_t first, std::size_t count) {
              if (!kept.load(std::memory_order_relaxed)) return;
              std::uint8_t codes[kBlockElements / 8];
              const auto* const from =
                  static_cast<const std::uint8_t*>(source.data) + first * element_size(source.type);
              kernels().pack_sides[static_cast<unsigned>(source.type)](from, count, test, codes);
              bool all = count % 8 == 0 || codes[count / 8] == (1u << (count % 8)) - 1;
              for (std::size_t i = 0; i < count / 8; ++i) all &= codes[i] == 0xFF;
              if (!all) kept.store(false, std::memory_order_relaxed);
            });
  return kept.load();
}

Status restore_sides(const void* payload, std::size_t payload_bytes, void* target,
                     std::size_t target_bytes, const Executor& executor) noexcept {
  PayloadInfo info;
  if (inspect(payload, payload_bytes, &info) != Status::kOk || !info.spec.sides.any() ||
      info.payload_bytes != payload_bytes ||
      (info.spec.sides.kind != Sides::Kind::kThree && has_two_bounds(info.spec.sides)) ||
      info.elements * element_size(info.type) != target_bytes)
    return Status::kCorrupt;
  Header header;
  std::memcpy(&header, payload, sizeof header);
  const std::uint8_t* const codes = static_cast<const std::uint8_t*>(payload) + kHeaderBytes;
  std::atomic<bool> good{true};
  with_type(info.type, [&]<class T>() {
    const SideMoves moves = side_moves<T>(SideWords::of(header), header.bits == 2);
    by_blocks(
        executor, info.elements, packing_grain(info.type),
        [&](std::size_t first, std::size_t count) {
          if (!kernels().move_to_sides[T::kType](codes + first / 8 * header.bits, count, moves,
                                                 static_cast<typename T::Word*>(target) + first))
            good.store(false, std::memory_order_relaxed);
        });
  });
  return good.load() ? Status::kOk : Status::kCorrupt;
}

// ---- payloads ----

SidePlan::SidePlan(const Request& request) noexcept : header(request.header(PayloadKind::kSides)) {
  const SideValues values = values_of(request.spec.sides, request.span.type);
  test = values.test;
  header.bits = test.three ? 2 : 1;
  header.payload_bytes = kHeaderBytes + packed_bytes(request.span.elements, header.bits);
  values.words.write(&header);
}

void pack_sides(const Request& request, const SideTest& test, std::size_t first, std::size_t count,
                std::uint8_t* codes) noexcept {
  const auto* const from =
      static_cast<const std::uint8_t*>(request.span.data) + first * element_size(request.span.type);
  kernels().pack_sides[static_cast<unsigned>(request.span.type)](from, count, test, codes);
}

EncodeResult encode_sides(const Request& request, const Executor& executor, std::uint8_t* payload,
                          std::size_t capacity) noexcept {
  const SidePlan plan(request);
  if (plan.header.payload_bytes > capacity) return kDoesNotFit;
  by_blocks(executor, request.span.elements, packing_grain(request.span.type),
            [&](std::size_t first, std::size_t count) {
              pack_sides(request, plan.test, first, count,
                         payload + kHeaderBytes + first / 8 * plan.width());
            });
  std::memcpy(payload, &plan.header, sizeof plan.header);
  return {Status::kOk, plan.header.payload_bytes};
}

Status decode_sides(const Header& header, const std::uint8_t* payload, void* target, bool stream,
                    const Executor& executor) noexcept {
  if (!is_sound(header)) return Status::kCorrupt;
  const auto type = static_cast<ElementType>(header.type);
  const SideWords words = SideWords::of(header);
  std::atomic<bool> good{true};
  by_blocks(executor, header.elements, packing_grain(type),
            [&](std::size_t first, std::size_t count) {
              if (!kernels().unpack_sides[header.type](
                      payload + kHeaderBytes + first / 8 * header.bits, count, header.bits == 2,
                      words.value, static_cast<std::uint8_t*>(target) + first * element_size(type),
                      stream))
                good.store(false, std::memory_order_relaxed);
            });
  return good.load() ? Status::kOk : Status::kCorrupt;
}

Sides sides_of(const Header& header) noexcept {
  if (static_cast<PayloadKind>(header.kind) != PayloadKind::kSides || !is_sound(header)) return {};
  return with_type(static_cast<ElementType>(header.type), [&]<class T>() {
    const SideTest test = side_test<T>(SideWords::of(header), header.bits == 2);
    return Sides{test.three ? Sides::Kind::kThree : Sides::Kind::kClosed, false, test.first,
                 test.last};
  });
}

}  // namespace pleat::compress

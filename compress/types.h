// The types that every codec shares: element types, codec choices, spans and results. The types do
// not depend on torch, on an allocator, or on the choice of bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "compress/exponents/exponents.h"

namespace pleat::compress {

// The type of the elements of a span. `kBytes` stands for all types without a codec (float64,
// complex, fp8, ...): they are stored raw, or as one value where every byte is the same.
enum class ElementType : std::uint8_t {
  kFloat32 = 0,
  kBFloat16 = 1,
  kFloat16 = 2,
  kBool = 3,
  kInt64 = 4,
  kInt32 = 5,
  kBytes = 6,
};

[[nodiscard]] constexpr std::size_t element_size(ElementType type) noexcept {
  switch (type) {
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kBFloat16:
    case ElementType::kFloat16:
      return 2;
    case ElementType::kInt64:
      return 8;
    case ElementType::kBool:
    case ElementType::kBytes:
      return 1;
  }
  return 1;
}

[[nodiscard]] constexpr bool is_floating(ElementType type) noexcept {
  return type == ElementType::kFloat32 || type == ElementType::kBFloat16 ||
         type == ElementType::kFloat16;
}

// Elements that share one range (minimum and step).
inline constexpr std::size_t kGroupElements = 256;

// The request of the caller to the encoder for one span.
//   bits   1, 2, 3, 4, 6 or 8: group-wise min-max quantisation (floating types only).
//          0: lossless; the encoder takes the smallest exact form that fits the type
//          (bool and two-valued groups -> 1 bit, integers -> the narrowest width per 1024, floats
//          -> their differences' width per 256, with or without zeros; else raw).
//   force_raw  store the bytes as they are, whatever they hold.
//   transform  of each group before it is quantised. For data whose range a few outliers set: the
//          error becomes that of Gaussian data of the same energy, still unbiased. But the error of
//          an element is no longer bounded by its group's step, signs may change, and zeros do not
//          stay zero.
//              kHadamardScaled, at 1 and 2 bits: groups that look Gaussian once rotated get the
//              levels that suit a Gaussian and a scale that makes them unbiased (EDEN; Vargaftik et
//              al., ICML 2022): about a quarter (1 bit) and half (2 bits) of the error. Nearly
//              unbiased: see docs/payload_format.md, "Scaled". Other groups and widths: as
//              kHadamard.
//   widest_step   a lossy group whose step is wider is escaped: kept as it is. Above 0.
//   escape_64ths  how many 64ths of the groups a lossy request may escape, 1 to 64.
//   compact       blocks of groups that need fewer bytes get fewer, and a span of one value is a
//                 header. Without it payload_bound() is the size of many payloads.
//   any_byte      of booleans, every byte other than 0 is true. The payload has a bit for each
//                 element then, whatever they are.
//   exponents     of a lossy request: see exponents.h. The table is copied into the payload. Not
//                 with near_zero.
//   zeros         from 2 bits on: zeros come back as zeros in groups of both signs, too, at one
//                 code less for the rest. Not where transformed, nor with near_zero.
//   near_zero     for logarithms of probabilities: elements above -1 come back exact, bit for bit,
//                 and do not count for the range of their group (near_zero.h). Lossy requests only.
//   sides  if there are any: only the sides of the elements are kept, in one or two bits each.
//          Decoding gives an element of the same side. Width and transform then have no meaning.
//          Sides that sides_hold() (sides.h) refuses, and types that are no floats, are encoded
//          without loss.
enum class Transform : std::uint8_t {
  kNone = 0,
  kHadamard = 1,  // randomised, 256 elements
  kHadamardScaled = 2,
};

// The bounds that a backward compares floats with. The comparison is all it does with them, or all
// that has to survive their noise.
struct Sides {
  enum class Kind : std::uint8_t {
    kNone,
    kOpen,    // two sides: low < x < high, and all else
    kClosed,  // two sides: low <= x <= high, and all else
    kThree,   // three sides: x < low, low <= x <= high, x > high. NaN is on the middle side
  };
  Kind kind = Kind::kNone;
  bool nan_inside = false;  // of two sides, NaN is on the first
  // No NaN; low <= high. Values of the element type. A low of -Inf and a high of +Inf are no
  // bounds: with high infinite +Inf is inside. Without bounds everything is inside.
  float low = 0, high = 0;

  [[nodiscard]] constexpr bool any() const noexcept { return kind != Kind::kNone; }
  // Of the side of an element.
  [[nodiscard]] constexpr std::uint8_t bits() const noexcept {
    return kind == Kind::kThree ? 2 : 1;
  }
  [[nodiscard]] bool operator==(const Sides&) const = default;
};

struct CodecSpec {
  std::uint8_t bits = 0;
  bool force_raw = false;
  Transform transform = Transform::kNone;
  float widest_step = std::numeric_limits<float>::infinity();
  std::uint8_t escape_64ths = 1;
  bool near_zero = false;
  bool compact = true;
  bool any_byte = false;
  bool zeros = false;
  Exponents exponents{};
  Sides sides{};
};

// Activations that a decoder can recompute from the restored argument: torch's gelu (exact and tanh
// form) and silu.
enum class Function : std::uint8_t { kNone, kGelu, kGeluTanh, kSilu };

// A contiguous run of elements in canonical (storage) order.
struct Span {
  const void* data = nullptr;
  std::size_t elements = 0;
  ElementType type = ElementType::kBytes;

  [[nodiscard]] std::size_t bytes() const noexcept { return elements * element_size(type); }
};

enum class Status : std::uint8_t {
  kOk = 0,
  kTooManyEscapes,  // more groups than the request allows have too wide a step; below 3 bits: or
                    // hold NaN or Inf, or their range overflows
  kNoRoom,          // the payload buffer is too small: see encode()
  kFlatLines,       // of a block: lines that its plan does not know must come back exact
  kCorrupt,         // decode: the bytes are not a payload of this format, or lengths disagree
};

struct EncodeResult {
  Status status = Status::kOk;
  std::size_t payload_bytes = 0;  // bytes used, <= payload_bound() and <= capacity
};

// Runs `body(begin, end)` over [0, items), split as it likes; returns when all parts are done.
// `grain` is the smallest part worth handing to another thread. The bridge passes ATen's intra-op
// pool; tests pass serial or std::thread executors. Results never depend on the split.
using Executor = std::function<void(std::size_t items, std::size_t grain,
                                    const std::function<void(std::size_t, std::size_t)>& body)>;

// Runs everything in the calling thread.
[[nodiscard]] const Executor& serial_executor() noexcept;

// The groups of a span, as the encoder saw them.
struct SpanStatistics {
  std::uint64_t groups = 0;
  std::uint64_t constant_groups = 0;
  std::uint64_t two_valued_groups = 0;
  std::uint64_t escaped_groups = 0;
};

}  // namespace pleat::compress

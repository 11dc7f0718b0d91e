// The layout of a payload as numbers: header, section sizes, offsets. Internal to compress/;
// docs/payload_format.md says what the bytes mean. Little endian; sizes are in bytes unless the
// name says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/host_device.h"
#include "compress/types.h"

namespace pleat::compress {

inline constexpr std::uint32_t kMagic = 0x3154'4C50;  // "PLT1"
inline constexpr std::uint16_t kFormatVersion = 4;

enum class PayloadKind : std::uint8_t {
  kRaw = 0,       // the bytes as they are
  kGrouped = 1,   // groups of 256 floats: min-max, two-valued, constant or escaped
  kBoolean = 2,   // one bit per element
  kFramed = 3,    // frames of reference: integers and lossless floats
  kConstant = 4,  // every element has the bits in `value`
  kSides = 5,     // one or two bits per float: on which side of its bounds it lies
};

inline constexpr std::uint8_t kFlagCompacted = 1;    // some blocks' slots have the size they need
inline constexpr std::uint8_t kFlagForceRaw = 2;     // the request asked for it
inline constexpr std::uint8_t kFlagLossy = 4;        // at least one group was quantised
inline constexpr std::uint8_t kFlagTransformed = 8;  // kGrouped: groups are rotated
inline constexpr std::uint8_t kFlagScaled = 16;  // with kFlagTransformed: some groups may be scaled
inline constexpr std::uint8_t kFlagNearZero = 32;   // kGrouped: a section of exact elements
inline constexpr std::uint8_t kFlagExponents = 64;  // kGrouped: a section of exponents
inline constexpr std::uint8_t kFlagZeros = 128;     // kGrouped: CodecSpec::zeros

struct Header {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kFormatVersion;
  std::uint8_t kind = 0;
  std::uint8_t type = 0;
  std::uint8_t bits = 0;  // of the request; 0: lossless. kSides: of a side, 1 or 2
  std::uint8_t flags = 0;
  std::uint16_t reserved = 0;
  std::uint32_t escapes = 0;
  std::uint64_t elements = 0;
  std::uint64_t nonce = 0;
  std::uint64_t payload_bytes = 0;
  // kConstant: the element's bits; kSides: see SideWords; kGrouped: see exponents_of()
  std::uint64_t value = 0;
  std::uint64_t code_bytes = 0;   // kGrouped, kFramed: of the code section; kSides: see SideWords
  std::uint64_t third_value = 0;  // kSides: see SideWords; kGrouped: see exponents_of()
};
static_assert(sizeof(Header) == 64);

// The exponents of a grouped payload, without the table.
[[nodiscard]] PLEAT_HD constexpr Exponents exponents_of(const Header& header) noexcept {
  if ((header.flags & kFlagExponents) == 0) return {};
  return {static_cast<std::uint32_t>(header.value), static_cast<std::uint32_t>(header.third_value),
          static_cast<std::uint32_t>(header.value >> 32), nullptr};
}
PLEAT_HD constexpr void write_exponents(const Exponents& exponents, Header* header) noexcept {
  header->flags |= kFlagExponents;
  header->value = std::uint64_t{exponents.inner} << 32 | exponents.row;
  header->third_value = exponents.channels;
}

// The additional contents of a header of kSides: words of the element type, in 32 bits each.
struct SideWords {
  std::uint32_t value[3] = {};  // restored for an element of side 0, 1 and 2
  std::uint32_t first = 0;      // the least and
  std::uint32_t last = 0;       // the largest value of side 1

  PLEAT_HD static constexpr SideWords of(const Header& header) noexcept {
    return {
        {static_cast<std::uint32_t>(header.value), static_cast<std::uint32_t>(header.value >> 32),
         static_cast<std::uint32_t>(header.third_value)},
        static_cast<std::uint32_t>(header.code_bytes),
        static_cast<std::uint32_t>(header.code_bytes >> 32)};
  }
  PLEAT_HD constexpr void write(Header* header) const noexcept {
    header->value = std::uint64_t{value[1]} << 32 | value[0];
    header->code_bytes = std::uint64_t{last} << 32 | first;
    header->third_value = value[2];
  }
};

inline constexpr std::size_t kHeaderBytes = sizeof(Header);
inline constexpr std::size_t kBlockGroups = 64;  // unit of work, of statistics and of offsets
inline constexpr std::size_t kBlockElements = kBlockGroups * kGroupElements;
inline constexpr std::size_t kBitmapBytes = kGroupElements / 8;  // slot of a two-valued group

[[nodiscard]] constexpr std::size_t ceil_divide(std::size_t value, std::size_t by) noexcept {
  return value / by + (value % by != 0 ? 1 : 0);
}

// The width used for `bits`: the next narrower one if the format lacks it.
[[nodiscard]] PLEAT_HD constexpr unsigned supported_bits(unsigned bits) noexcept {
  return bits >= 8 ? 8 : bits >= 6 ? 6 : bits >= 4 ? 4 : bits;
}

// Whether scaled groups exist at this width.
[[nodiscard]] constexpr bool has_scaled_groups(unsigned bits) noexcept {
  return bits == 1 || bits == 2;
}

// Whether groups with NaN or Inf have codes for them at this width. No lossy group need be kept as
// it is then.
[[nodiscard]] PLEAT_HD constexpr bool has_wide_groups(unsigned bits) noexcept { return bits >= 3; }

// Closed-form sizes of a grouped payload without compacted blocks.
struct GroupedLayout {
  std::size_t groups;
  std::size_t blocks;
  std::size_t source_bytes_per_group;
  std::size_t metadata_bytes_per_group;
  std::size_t slot_bytes;
  std::size_t codes_offset;
  std::size_t code_bytes;
  std::size_t exponent_bytes;

  // Transformed groups have the metadata of float32 ones.
  GroupedLayout(ElementType type, unsigned bits, std::size_t elements, bool transformed,
                const Exponents& exponents = {}) noexcept
      : groups(ceil_divide(elements, kGroupElements)),
        blocks(ceil_divide(groups, kBlockGroups)),
        source_bytes_per_group(kGroupElements * element_size(type)),
        metadata_bytes_per_group(2 * element_size(transformed ? ElementType::kFloat32 : type)),
        slot_bytes(kBitmapBytes * (bits == 0 ? 1 : bits)),
        codes_offset(kHeaderBytes + ceil_divide(groups * metadata_bytes_per_group, 64) * 64),
        code_bytes(groups * slot_bytes),
        exponent_bytes(compress::exponent_bytes(exponents, elements)) {}

  [[nodiscard]] std::size_t end_of_codes() const noexcept { return codes_offset + code_bytes; }
  // Of a payload without escaped groups.
  [[nodiscard]] std::size_t end() const noexcept { return end_of_codes() + exponent_bytes; }
  [[nodiscard]] std::size_t offset_table_bytes() const noexcept {
    return blocks * sizeof(std::uint64_t);
  }
  // With more escaped groups than this, a lossy encode gives up and a lossless one stores raw.
  // `lossy_64ths`: CodecSpec::escape_64ths.
  [[nodiscard]] std::size_t escape_limit(unsigned bits, unsigned lossy_64ths = 1) const noexcept {
    const std::size_t share =
        bits == 0 ? groups / 8 : groups / 64 * lossy_64ths + groups % 64 * lossy_64ths / 64;
    return share == 0 ? 1 : share;
  }
};

}  // namespace pleat::compress

// The layout of a block payload as numbers: docs/payload_format.md, "Blocks". Internal to
// compress/block/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/types.h"

namespace pleat::compress::block {

struct TableHeader {
  std::uint64_t magic;
  std::uint64_t count;
};
struct TableEntry {
  std::uint64_t begin, end;             // bytes of the block
  std::uint64_t offset, payload_bytes;  // within the payload
};
inline constexpr std::uint64_t kTableMagic = 0x3153'4e41'5053'4c50ULL;  // "PLSPANS1"
inline constexpr std::size_t kAlign = 64;
inline constexpr std::uint64_t kMostSpans = 1u << 20;

[[nodiscard]] constexpr std::size_t align_up(std::size_t n) noexcept {
  return (n + kAlign - 1) & ~(kAlign - 1);
}

[[nodiscard]] constexpr std::size_t table_bytes(std::size_t count) noexcept {
  return align_up(sizeof(TableHeader) + count * sizeof(TableEntry));
}

// With BlockPlan::tiles, spans of fewer elements are repeated until they fill a few groups.
inline constexpr std::size_t kTiledBelow = 1024;
inline constexpr std::size_t kTiledElements = 2048;

[[nodiscard]] constexpr bool is_tiled(bool tiles, ElementType type, std::uint8_t bits,
                                      std::size_t elements) noexcept {
  return tiles && is_floating(type) && bits != 0 && elements != 0 && elements < kTiledBelow;
}

}  // namespace pleat::compress::block

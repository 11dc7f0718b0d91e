#include "compress/lines/line_patch.h"

#include <cstdint>
#include <cstring>

namespace pleat::compress::block {
namespace {

using compress::ElementType;

constexpr std::uint64_t kPatchMagic = 0x3148'4354'4150'4c50ULL;  // "PLPATCH1"

struct PatchHeader {
  std::uint64_t magic;
  std::uint64_t bytes;  // of the whole patch
  std::uint64_t runs;
  std::uint32_t length;
  Look look;
  std::uint8_t item;
  std::uint16_t reserved;
};

// The lines that the runs name, in bytes.
struct Geometry {
  std::size_t item, length, rows;
  bool columns;

  [[nodiscard]] std::size_t lines() const noexcept { return columns ? length : rows; }
  [[nodiscard]] std::size_t line_bytes() const noexcept { return (columns ? rows : length) * item; }

  // Calls visit(offset, bytes) for every contiguous piece of a run.
  template <class Visit>
  void for_each_piece(const LineRun& run, const Visit& visit) const {
    if (!columns) {
      visit(run.first * length * item, run.count * length * item);
      return;
    }
    for (std::size_t r = 0; r < rows; ++r) visit((r * length + run.first) * item, run.count * item);
  }
};

Geometry geometry_of(Lines lines, std::size_t elements, std::size_t item) noexcept {
  return {item, lines.length, elements / lines.length, lines.look == Look::kColumns};
}

constexpr std::size_t head_bytes(std::size_t runs) noexcept {
  return sizeof(PatchHeader) + runs * sizeof(LineRun);
}

LineRun run_at(const void* patch, std::size_t i) noexcept {
  LineRun run{};
  std::memcpy(&run, static_cast<const std::byte*>(patch) + head_bytes(i), sizeof run);
  return run;
}

}  // namespace

std::size_t patch_bytes(const LinePlan& plan, Lines lines, std::size_t elements,
                        ElementType type) noexcept {
  const Geometry geometry = geometry_of(lines, elements, compress::element_size(type));
  std::size_t bytes = head_bytes(plan.exact.size());
  for (const LineRun& run : plan.exact)
    bytes += run.zero != 0 ? 0 : run.count * geometry.line_bytes();
  return bytes;
}

void write_patch(const LinePlan& plan, Lines lines, const void* data, std::size_t elements,
                 ElementType type, void* patch) noexcept {
  const std::size_t item = compress::element_size(type);
  const PatchHeader header{kPatchMagic,
                           patch_bytes(plan, lines, elements, type),
                           plan.exact.size(),
                           lines.length,
                           lines.look,
                           static_cast<std::uint8_t>(item),
                           0};
  auto* out = static_cast<std::byte*>(patch);
  std::memcpy(out, &header, sizeof header);
  std::memcpy(out + sizeof header, plan.exact.data(), plan.exact.size() * sizeof(LineRun));
  out += head_bytes(plan.exact.size());
  const Geometry geometry = geometry_of(lines, elements, item);
  for (const LineRun& run : plan.exact) {
    if (run.zero == 0) {
      geometry.for_each_piece(run, [&](std::size_t offset, std::size_t bytes) {
        std::memcpy(out, static_cast<const std::byte*>(data) + offset, bytes);
        out += bytes;
      });
    }
  }
}

bool is_patch(const void* data, std::size_t bytes) noexcept {
  std::uint64_t magic = 0;
  if (bytes >= sizeof magic) std::memcpy(&magic, data, sizeof magic);
  return magic == kPatchMagic;
}

std::size_t check_patch(const void* patch, std::size_t bytes, std::size_t target_bytes) noexcept {
  PatchHeader header{};
  if (!is_patch(patch, bytes) || bytes < sizeof header) return 0;
  std::memcpy(&header, patch, sizeof header);
  const bool sound = (header.look == Look::kRows || header.look == Look::kColumns) &&
                     (header.item == 2 || header.item == 4) && header.reserved == 0 &&
                     header.length >= 2 && target_bytes != 0 &&
                     target_bytes % (std::size_t{header.item} * header.length) == 0 &&
                     header.runs <= (bytes - sizeof header) / sizeof(LineRun) &&
                     header.bytes <= bytes && header.bytes >= head_bytes(header.runs);
  if (!sound) return 0;
  const Geometry geometry =
      geometry_of({header.look, header.length}, target_bytes / header.item, header.item);
  std::size_t left = header.bytes - head_bytes(header.runs);
  std::size_t free_from = 0;
  for (std::size_t i = 0; i < header.runs; ++i) {
    const LineRun run = run_at(patch, i);
    if (run.first < free_from || run.first > geometry.lines() ||
        run.count > geometry.lines() - run.first)
      return 0;
    free_from = run.first + std::size_t{run.count};
    if (run.zero == 0) {
      if (run.count > left / geometry.line_bytes()) return 0;
      left -= run.count * geometry.line_bytes();
    }
  }
  return left == 0 ? header.bytes : 0;
}

void apply_patch(const void* patch, void* target, std::size_t target_bytes) noexcept {
  PatchHeader header{};
  std::memcpy(&header, patch, sizeof header);
  const Geometry geometry =
      geometry_of({header.look, header.length}, target_bytes / header.item, header.item);
  const auto* in = static_cast<const std::byte*>(patch) + head_bytes(header.runs);
  for (std::size_t i = 0; i < header.runs; ++i) {
    const LineRun run = run_at(patch, i);
    geometry.for_each_piece(run, [&](std::size_t offset, std::size_t bytes) {
      std::byte* const at = static_cast<std::byte*>(target) + offset;
      if (run.zero != 0) {
        std::memset(at, 0, bytes);
      } else {
        std::memcpy(at, in, bytes);
        in += bytes;
      }
    });
  }
}

}  // namespace pleat::compress::block

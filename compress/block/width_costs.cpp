#include "compress/block/width_costs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compress/block/block_layout.h"
#include "compress/block/block_plan.h"
#include "compress/block/span_costs.h"
#include "compress/codec.h"
#include "compress/format.h"
#include "compress/lines/line_patch.h"
#include "compress/near_zero/near_zero.h"
#include "compress/payload_writer.h"
#include "compress/sides/sides.h"

namespace pleat::compress::block {
namespace {

constexpr std::size_t kWidths = kCostWidths.size();
using SpanTallies = std::array<SpanTally, kWidths>;

bool can_have_costs(const BlockSpec& asked) noexcept {
  return is_floating(asked.type) && asked.kept == Kept::kValues;
}

template <class Spec>
Spec at_width(Spec spec, std::uint8_t bits) noexcept {
  spec.bits = bits;
  return spec;
}
Sides sides_beside(const BlockSpec& spec) noexcept {
  return sides_beside_values(spec.sides, spec.type);
}

// ---- bytes ----

// A span without its values, at the width of `spec`.
Request request_for(std::size_t elements, const CodecSpec& spec, ElementType type) noexcept {
  return {{nullptr, elements, type}, spec, 0};
}

// Bytes of the sides that may have to stand beside the values of a span.
std::size_t bytes_of_sides(std::size_t elements, const BlockSpec& spec) noexcept {
  const Sides sides = sides_beside(spec);
  return sides.any() ? payload_bound({.sides = sides}, spec.type, elements) : 0;
}

// The bytes of a block's payload while its spans are added.
class PayloadBytes {
 public:
  PayloadBytes(bool single, std::size_t spans, std::size_t patch) noexcept
      : bytes_(single ? 0 : table_bytes(spans)), patch_(align_up(patch)) {}

  void add(std::size_t elements, const BlockSpec& spec, const CodecSpec& codec,
           const SpanTally& tally) noexcept {
    bytes_ = align_up(bytes_) + patch_;
    bytes_ += bytes_of_span(request_for(elements, codec, spec.type), tally);
    if (tally.may_leave_side) bytes_ = align_up(bytes_) + bytes_of_sides(elements, spec);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_, patch_;
};

// ---- values ----

// Follows encode_block() for a plan: it refuses the plan, or makes a payload.
bool encodes(const BlockSource& source, const BlockPlan& plan, const Executor& executor,
             WidthCost* cost) {
  const BlockSpec& spec = plan.spec;
  const CodecSpec codec = plan.codec();
  PayloadBytes bytes(source.is_one_span(), source.range_count, plan.patch_bytes);
  const ExactElements exact(plan.lines.exact, spec.lines);
  double error = 0;
  for (std::size_t i = 0; i < source.range_count; ++i) {
    const Span span = source.span(i, spec.type);
    const Request request(span, codec, 0);
    SpanTally tally;
    std::vector<float> steps;
    if (request.grouped_pays(request.layout()))
      tally = tally_values(span, codec, sides_beside(spec), exact, executor,
                           plan.checks_lines ? &steps : nullptr);
    if (tally.escapes > request.escape_limit(request.layout()) ||
        (!steps.empty() && !no_other_is_flat(plan.lines, span.data, span.elements, span.type,
                                             spec.lines, steps, executor)))
      return false;
    bytes.add(span.elements, spec, codec, tally);
    error += tally.squared_error;
  }
  if (bytes.bytes() > plan.room) return false;
  *cost = {spec.bits, true, bytes.bytes(), error};
  return true;
}

WidthCost cost_of_values(const BlockSource& source, const BlockSpec& asked,
                         const Executor& executor) {
  WidthCost cost{.bits = asked.bits};
  for (const Effort effort : {Effort::kQuick, Effort::kThorough}) {
    const BlockPlan plan = plan_block(source, asked, false, effort, executor);
    if (plan.room == 0 || plan.spec.bits != asked.bits || encodes(source, plan, executor, &cost) ||
        !plan.guesses)
      break;
  }
  return cost;
}

// ---- payloads ----

// A span of a payload.
struct Part {
  const std::uint8_t* from;
  std::size_t bytes, elements;
  SpanTallies tallies;
  CodecSpec codec;  // it was coded with; the width does not matter
};

// The spans of a payload, patches and sides included. Empty if it is damaged.
std::vector<Part> parts_of(const BlockForm& form, const std::uint8_t* payload,
                           std::size_t payload_bytes, std::size_t block_bytes) {
  const std::size_t size = element_size(form.type);
  if (form.shape == BlockShape::kSingle) {
    if (form.spans != 1 || block_bytes % size != 0 || block_bytes / size != form.elements)
      return {};
    return {{payload, payload_bytes, block_bytes / size, {}, {}}};
  }
  TableHeader header{};
  if (form.shape != BlockShape::kTable || form.spans > kMostSpans ||
      table_bytes(form.spans) > payload_bytes)
    return {};
  std::memcpy(&header, payload, sizeof header);
  if (header.magic != kTableMagic || header.count != form.spans) return {};
  std::vector<Part> parts(form.spans);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TableEntry e{};
    std::memcpy(&e, payload + sizeof header + i * sizeof e, sizeof e);
    if (e.begin > e.end || e.end > block_bytes || (e.end - e.begin) % size != 0 ||
        e.offset % kAlign != 0 || e.offset > payload_bytes ||
        e.payload_bytes > payload_bytes - e.offset)
      return {};
    parts[i] = {payload + e.offset, e.payload_bytes, (e.end - e.begin) / size, {}, {}};
  }
  return parts;
}

// The patch in front of an only span: which lines are exact. docs/payload_format.md, "Blocks".
struct Patch {
  std::vector<LineRun> runs;
  Lines lines{};
};
bool take_patch(const BlockForm& form, Part& part, Patch* found) {
  if (form.patch_bytes == 0) return true;
  const std::size_t bytes =
      check_patch(part.from, part.bytes, part.elements * element_size(form.type));
  if (bytes != form.patch_bytes || align_up(bytes) > part.bytes) return false;
  std::uint64_t runs = 0;
  std::memcpy(&runs, part.from + 16, sizeof runs);
  std::memcpy(&found->lines.length, part.from + 24, sizeof found->lines.length);
  std::memcpy(&found->lines.look, part.from + 28, sizeof found->lines.look);
  found->runs.resize(runs);
  if (runs != 0) std::memcpy(found->runs.data(), part.from + 32, runs * sizeof(LineRun));
  part.from += align_up(bytes);
  part.bytes -= align_up(bytes);
  return true;
}

bool tally_part(const BlockForm& form, const BlockSpec& asked, const Patch& patch, Part& part) {
  PayloadInfo info;
  if (inspect(part.from, part.bytes, &info) != Status::kOk || info.elements != part.elements ||
      info.type != form.type || info.spec.bits != form.bits)
    return false;
  Header header;
  std::memcpy(&header, part.from, sizeof header);
  const ExactElements exact(patch.runs, patch.lines);
  part.codec = asked.codec();
  switch (static_cast<PayloadKind>(header.kind)) {
    case PayloadKind::kGrouped: {
      const std::optional<GroupedSections> sections = read_sections(header, part.from);
      if (!sections) return false;
      part.codec = spec_of_payload(*sections, part.codec);
      return tally_payload(*sections, part.codec, sides_beside(asked), exact, kCostWidths,
                           part.tallies);
    }
    case PayloadKind::kConstant:
      for (SpanTally& tally : part.tallies) tally.groups = tally.constant_groups = 1;
      return true;
    case PayloadKind::kRaw: {  // too short for groups, but perhaps not at every width
      const Span span{part.from + kHeaderBytes, part.elements, form.type};
      if (header.payload_bytes - kHeaderBytes != span.bytes()) return false;
      for (std::size_t w = 0; w < kWidths; ++w) {
        const CodecSpec codec = at_width(part.codec, kCostWidths[w]);
        const Request request(span, codec, 0);
        if (request.grouped_pays(request.layout())) {
          part.tallies[w] =
              tally_values(span, codec, sides_beside(asked), exact, serial_executor(), nullptr);
          part.tallies[w].counted_escapes = count_escapes(span, codec, 0, serial_executor());
        }
      }
      return true;
    }
    default:
      return false;
  }
}

// How many 64ths of the groups a thorough plan lets escape at width `w`: 0 if too many would. Adds
// what they take. As block_plan.cpp has it.
unsigned allowed_escapes(const std::vector<Part>& parts, std::size_t w, ElementType type,
                         std::size_t* bytes) noexcept {
  std::size_t allowed = 1;
  for (const Part& part : parts) {
    const std::size_t escapes = part.tallies[w].counted_escapes;
    *bytes += escapes * kGroupElements * element_size(type);
    if (escapes > 1) {
      allowed =
          std::max(allowed, ceil_divide(escapes * 64, ceil_divide(part.elements, kGroupElements)));
    }
  }
  return allowed > kMostEscape64ths ? 0 : static_cast<unsigned>(allowed);
}

// The same if a thorough plan keeps the width: it may take a wider one.
unsigned thorough_escapes(const std::vector<Part>& parts, std::size_t w, const BlockSpec& asked,
                          std::size_t elements) noexcept {
  unsigned allowed = 0;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (std::size_t other = w; other < kWidths; ++other) {
    const std::uint8_t bits = kCostWidths[other];
    if (other != w && bits != 4 && bits != 8) continue;
    std::size_t bytes = elements * bits / 8;
    const unsigned escapes = allowed_escapes(parts, other, asked.type, &bytes);
    if (escapes != 0 && bytes < least) {
      least = bytes;
      allowed = other == w ? escapes : 0;
    }
  }
  return allowed;
}

// True if the room that a plan sees for the payload is worth having.
bool is_worth_it(const BlockForm& form, const std::vector<Part>& parts, std::size_t w,
                 const BlockSpec& spec, unsigned escape_64ths, std::size_t block_bytes) noexcept {
  std::size_t room = align_up(form.patch_bytes) +
                     (form.shape == BlockShape::kSingle ? 0 : table_bytes(form.spans));
  for (const Part& part : parts) {
    CodecSpec codec = at_width(part.codec, spec.bits);
    codec.escape_64ths = static_cast<std::uint8_t>(escape_64ths);
    const GroupedLayout layout = request_for(part.elements, codec, spec.type).layout();
    room += align_up(payload_bound(codec, spec.type, part.elements) +
                     near_zero_section(layout, part.tallies[w])) +
            align_up(bytes_of_sides(part.elements, spec));
  }
  return is_worth_having(room, block_bytes);
}

bool is_possible(const BlockForm& form, const std::vector<Part>& parts, std::size_t w,
                 const BlockSpec& spec, std::size_t block_bytes) noexcept {
  if (spec.width() != spec.bits || !is_worth_it(form, parts, w, spec, 1, block_bytes)) return false;
  const bool few_escapes = std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
    const Request request = request_for(part.elements, at_width(part.codec, spec.bits), spec.type);
    return part.tallies[w].escapes <= request.escape_limit(request.layout());
  });
  if (few_escapes || spec.steps == Steps::kAny) return few_escapes;
  const unsigned escapes = thorough_escapes(parts, w, spec, form.elements);
  return escapes != 0 && is_worth_it(form, parts, w, spec, escapes, block_bytes);
}

}  // namespace

std::optional<WidthCosts> width_costs(const BlockForm& form, const void* payload,
                                      std::size_t payload_bytes, std::size_t block_bytes,
                                      const BlockSpec& asked) {
  if (!can_have_costs(asked) || asked.type != form.type || form.bits == 0 || form.only_sides != 0)
    return std::nullopt;
  std::vector<Part> parts =
      parts_of(form, static_cast<const std::uint8_t*>(payload), payload_bytes, block_bytes);
  Patch patch;
  if (parts.empty() || (form.patch_bytes != 0 && parts.size() != 1)) return std::nullopt;
  for (Part& part : parts)
    if (is_tiled(form.tiles != 0, form.type, form.bits, part.elements) ||
        !take_patch(form, part, &patch) || !tally_part(form, asked, patch, part))
      return std::nullopt;
  WidthCosts costs;
  for (std::size_t w = 0; w < kWidths; ++w) {
    const BlockSpec spec = at_width(asked, kCostWidths[w]);
    costs[w].bits = spec.bits;
    const bool own = spec.bits == form.bits;
    if (!own && !is_possible(form, parts, w, spec, block_bytes)) continue;
    costs[w].possible = true;
    PayloadBytes bytes(form.shape == BlockShape::kSingle, parts.size(), form.patch_bytes);
    for (const Part& part : parts) {
      bytes.add(part.elements, spec, at_width(part.codec, spec.bits), part.tallies[w]);
      costs[w].squared_error += part.tallies[w].squared_error;
    }
    costs[w].payload_bytes = own ? payload_bytes : bytes.bytes();
    if (!std::isfinite(costs[w].squared_error))  // from steps that no encoder writes
      return std::nullopt;
  }
  return costs;
}

std::optional<WidthCosts> width_costs(const BlockSource& source, const BlockSpec& asked,
                                      const Executor& executor) {
  if (!can_have_costs(asked)) return std::nullopt;
  WidthCosts costs;
  for (std::size_t w = 0; w < kWidths; ++w)
    costs[w] = cost_of_values(source, at_width(asked, kCostWidths[w]), executor);
  return costs;
}

}  // namespace pleat::compress::block

#include "compress/block/span_costs.h"

#include <algorithm>

#include "compress/block/group_tally.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/grouped/grouped.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"

namespace pleat::compress::block {
namespace {

// Tallies the block of groups that `encode` names. Its results go where `encode` has no room yet.
//   Coded  type of the metadata
template <class T, class Coded>
SpanTally tally_block(EncodeGroups encode, const Request& request, const Sides& beside,
                      const ExactElements& exact, float* steps) noexcept {
  const std::size_t groups = encode.groups + (encode.tail_elements != 0 ? 1 : 0);
  Metadata<Coded> metadata[kBlockGroups];
  alignas(64) std::uint8_t codes[kBlockElements];
  std::int8_t parts[kBlockElements];
  BlockResult result{};
  std::uint16_t near_counts[kBlockGroups];
  encode.metadata = metadata;
  encode.codes = codes;
  encode.parts = parts;
  encode.result = &result;
  if (request.spec.near_zero)
    encode_beside_zero(request.span.type, encode, near_counts);
  else
    kernels().encode[T::kType](encode);
  const SideCheck sides = SideCheck::of<T>(beside);
  GroupCounts counts[kBlockGroups];
  Pieces pieces;
  SpanTally tally;
  bool is_exact[kGroupElements] = {};
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t elements = g < encode.groups ? kGroupElements : encode.tail_elements;
    const std::size_t group = encode.first_group + g;
    exact.mark(group * kGroupElements, {is_exact, elements});
    const GroupExponents exponents(request.exponents,
                                   parts + parts_before(request.exponents, group) -
                                       parts_before(request.exponents, encode.first_group),
                                   group, elements);
    counts[g] =
        read_values<T>(static_cast<const typename T::Word*>(encode.source) + g * kGroupElements,
                       elements, exponents, request.spec.near_zero, is_exact, &pieces);
    add_group<T>(pieces, 1, metadata[g], exponents, request, sides, &tally);
    if (steps != nullptr)
      steps[g] = mean_step(step_of_any_group(metadata[g], request.bits, request.scaled),
                           request.exponents, exponents);
  }
  add_block(metadata, counts, groups, request, &tally);
  return tally;
}

}  // namespace

void ExactElements::mark(std::size_t first, std::span<bool> exact) const noexcept {
  if (!any()) return;
  const bool columns = lines_.look == Look::kColumns;
  for (std::size_t e = 0; e < exact.size(); ++e) {
    const std::size_t at = first + e;
    const std::size_t line = columns ? at % lines_.length : at / lines_.length;
    const auto after =
        std::upper_bound(runs_->begin(), runs_->end(), line,
                         [](std::size_t wanted, const LineRun& run) { return wanted < run.first; });
    exact[e] =
        after != runs_->begin() && line < (after - 1)->first + std::size_t{(after - 1)->count};
  }
}

SpanTally tally_values(const Span& span, const CodecSpec& codec, const Sides& beside,
                       const ExactElements& exact, const Executor& executor,
                       std::vector<float>* steps) {
  const Request request(span, codec, 0);
  const GroupedLayout layout = request.layout();
  std::vector<SpanTally> blocks(layout.blocks);
  if (steps != nullptr) steps->resize(layout.groups);
  run_parts(executor, layout.blocks, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t from = block * kBlockGroups;
      const EncodeGroups encode =
          encode_job(request, layout, from, std::min(from + kBlockGroups, layout.groups));
      float* const of_block = steps == nullptr ? nullptr : &(*steps)[from];
      blocks[block] = with_type(span.type, [&]<class T>() {
        return request.transformed
                   ? tally_block<T, Float32>(encode, request, beside, exact, of_block)
                   : tally_block<T, T>(encode, request, beside, exact, of_block);
      });
    }
  });
  SpanTally sum;
  for (const SpanTally& block : blocks) sum.add(block);
  return sum;
}

CodecSpec spec_of_payload(const GroupedSections& sections, CodecSpec asked) noexcept {
  if (!sections.transformed)
    asked.transform = Transform::kNone;
  else if (sections.scaled || asked.transform == Transform::kNone)
    asked.transform = sections.scaled ? Transform::kHadamardScaled : Transform::kHadamard;
  if (sections.header.bits >= 2) asked.zeros = (sections.header.flags & kFlagZeros) != 0;
  if (sections.exponents.any()) asked.exponents = sections.exponents;
  return asked;
}

std::size_t near_zero_section(const GroupedLayout& layout, const SpanTally& tally) noexcept {
  return tally.near_bytes == 0 ? 0 : NearZeroLayout(layout).elements + tally.near_bytes;
}

std::size_t bytes_of_span(const Request& request, const SpanTally& tally) noexcept {
  const GroupedLayout layout = request.layout();
  if (request.span.elements == 0 || !request.grouped_pays(layout)) return request.raw_bytes();
  if (tally.one_value() && element_size(request.metadata_type()) == element_size(request.span.type))
    return kHeaderBytes;
  return layout.codes_offset + tally.code_bytes +
         (tally.compacted ? layout.offset_table_bytes() : 0) +
         (request.exponents.channels != 0 || tally.has_exponents ? layout.exponent_bytes : 0) +
         tally.escapes * layout.source_bytes_per_group + near_zero_section(layout, tally);
}

}  // namespace pleat::compress::block

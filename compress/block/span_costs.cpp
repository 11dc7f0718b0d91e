#include "compress/block/span_costs.h"

#include <algorithm>

#include "compress/block/group_tally.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"

namespace pleat::compress::block {
namespace {

// Tallies the block of groups that `encode` names. Its results go where `encode` has no room yet.
template <class T>
SpanTally tally_block(EncodeGroups encode, const BlockSpec& spec, const ExactElements& exact,
                      float* steps) noexcept {
  const std::size_t groups = encode.groups + (encode.tail_elements != 0 ? 1 : 0);
  Metadata<T> metadata[kBlockGroups];
  alignas(64) std::uint8_t codes[kBlockElements];
  BlockResult result{};
  std::uint16_t near_counts[kBlockGroups];
  encode.metadata = metadata;
  encode.codes = codes;
  encode.result = &result;
  if (spec.near_zero)
    encode_beside_zero(spec.type, encode, near_counts);
  else
    kernels().encode[T::kType](encode);
  const SideCheck sides = SideCheck::of<T>(spec);
  GroupCounts counts[kBlockGroups];
  Pieces pieces;
  double error = 0;
  bool is_exact[kGroupElements] = {};
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t elements = g < encode.groups ? kGroupElements : encode.tail_elements;
    exact.mark((encode.first_group + g) * kGroupElements, {is_exact, elements});
    counts[g] =
        read_values<T>(static_cast<const typename T::Word*>(encode.source) + g * kGroupElements,
                       elements, spec.near_zero, is_exact, &pieces);
    error += squared_error<T>(pieces, metadata[g], encode.bits, sides.bounds);
    if (steps != nullptr) steps[g] = step_of_group<T>(metadata[g]);
  }
  SpanTally tally;
  add_block<T>(metadata, counts, groups, encode.bits, sides, &tally);
  tally.squared_error = error;
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

SpanTally tally_values(const Span& span, const BlockSpec& spec, const ExactElements& exact,
                       const Executor& executor, std::vector<float>* steps) {
  const Request request(span, spec.codec(), 0);
  const GroupedLayout layout = request.layout();
  std::vector<SpanTally> blocks(layout.blocks);
  if (steps != nullptr) steps->resize(layout.groups);
  run_parts(executor, layout.blocks, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t block = begin; block < end; ++block) {
      const std::size_t from = block * kBlockGroups, first = from * kGroupElements;
      const std::size_t elements = std::min(kBlockElements, span.elements - first);
      EncodeGroups encode{};
      encode.source = static_cast<const std::byte*>(span.data) + first * element_size(span.type);
      encode.first_group = from;
      encode.groups = elements / kGroupElements;
      encode.tail_elements = elements % kGroupElements;
      encode.bits = request.bits;
      encode.widest_step = request.widest_step_bits();
      blocks[block] = with_type(span.type, [&]<class T>() {
        return tally_block<T>(encode, spec, exact, steps == nullptr ? nullptr : &(*steps)[from]);
      });
    }
  });
  SpanTally sum;
  for (const SpanTally& block : blocks) sum.add(block);
  return sum;
}

}  // namespace pleat::compress::block

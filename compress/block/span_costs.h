// The cost of the groups of a span at a width: their slots, data kept next to the codes, and error.
// Computed from values, or from a payload of another width. Internal to compress/block/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/block/block_spec.h"
#include "compress/block/span_tally.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/lines/exact_lines.h"
#include "compress/types.h"

namespace pleat::compress::block {

// Which elements of a span are in exact lines.
class ExactElements {
 public:
  ExactElements() = default;  // none is
  // `runs` must stay as they are.
  ExactElements(const std::vector<LineRun>& runs, Lines lines) noexcept
      : runs_(&runs), lines_(lines) {}

  [[nodiscard]] bool any() const noexcept { return runs_ != nullptr && !runs_->empty(); }
  // Sets exact[e] for the elements from `first` on.
  void mark(std::size_t first, std::span<bool> exact) const noexcept;

 private:
  const std::vector<LineRun>* runs_ = nullptr;
  Lines lines_{};
};

// Of values, as the encoder codes them. `spec` has the width, which is not 0. Counted escapes are
// left out.
//   steps  filled with the step of each group, 0 where it comes back exact; may be nullptr
// Throws std::bad_alloc.
[[nodiscard]] SpanTally tally_values(const Span& span, const BlockSpec& spec,
                                     const ExactElements& exact, const Executor& executor,
                                     std::vector<float>* steps);

// At each of up to eight widths, from the metadata and the codes of a payload whose sections these
// are. It is not transformed. False if it is damaged.
//   spec   its width does not matter
//   exact  elements in the lines that the payload's patch has
[[nodiscard]] bool tally_payload(const GroupedSections& sections, const BlockSpec& spec,
                                 const ExactElements& exact, std::span<const std::uint8_t> widths,
                                 std::span<SpanTally> tallies) noexcept;

}  // namespace pleat::compress::block

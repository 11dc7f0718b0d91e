// The cost of the groups of a span at a width: their slots, data kept next to the codes, and error.
// Computed from values, or from a payload of another width. Internal to compress/block/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/block/span_tally.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/lines/exact_lines.h"
#include "compress/payload_writer.h"
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

// Of values, as the encoder codes them. `codec` has the width, which is not 0. Counted escapes are
// left out.
//   beside  the sides that values must stay on, as sides_beside_values() gives them
//   steps   filled with the step of each group, as group_steps() has it; may be nullptr
// Throws std::bad_alloc.
[[nodiscard]] SpanTally tally_values(const Span& span, const CodecSpec& codec, const Sides& beside,
                                     const ExactElements& exact, const Executor& executor,
                                     std::vector<float>* steps);

// The spec of a payload with these sections: `asked`, but for what the payload shows of itself. Its
// width is that asked for.
[[nodiscard]] CodecSpec spec_of_payload(const GroupedSections& sections, CodecSpec asked) noexcept;

// At each of up to eight widths, from the metadata and the codes of a payload whose sections these
// are. False if it is damaged. Throws std::bad_alloc.
//   codec  as spec_of_payload() gives it; its width does not matter
//   exact  elements in the lines that the payload's patch has
[[nodiscard]] bool tally_payload(const GroupedSections& sections, const CodecSpec& codec,
                                 const Sides& beside, const ExactElements& exact,
                                 std::span<const std::uint8_t> widths,
                                 std::span<SpanTally> tallies);

// Of the payload of a span: `request` is for so many elements, and does not read them.
[[nodiscard]] std::size_t bytes_of_span(const Request& request, const SpanTally& tally) noexcept;
[[nodiscard]] std::size_t near_zero_section(const GroupedLayout& layout,
                                            const SpanTally& tally) noexcept;

}  // namespace pleat::compress::block

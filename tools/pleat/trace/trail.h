// Trails of decisions (torch_bridge/core/decision.h) as text. Old traces have a name without width.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/reasons.h"

namespace pleat::trace {

// "asked 3 by profile; 8: an exponential reads it"; empty for no steps.
[[nodiscard]] inline std::string trail_words(std::string_view trail) {
  using bridge::Why;
  std::string text;
  const bool has_widths = trail.find(':') != std::string_view::npos;
  while (!trail.empty()) {
    const std::string_view step = has_widths ? trail.substr(0, trail.find(' ')) : trail;
    trail.remove_prefix(std::min(trail.size(), step.size() + 1));
    const std::size_t colon = step.find(':');
    const std::string_view bits = step.substr(std::min(colon, step.size()));
    // A file can hold any text.
    const bool is_width = bits.size() <= 2 && bits.find_first_not_of(":0123456789") == bits.npos;
    const Why why = is_width ? bridge::why_named(step.substr(0, colon)) : Why::kCount;
    const std::string words(why == Why::kCount
                                ? bridge::printable(step)
                                : bridge::kWhyTexts[static_cast<std::size_t>(why)].words);
    const bool alone =
        why == Why::kCount || why == Why::kShape || why == Why::kSides || why == Why::kMayBearNoise;
    const std::string width(bits.empty() || bits == ":0" ? "exact" : bits.substr(1));
    if (!alone) text += (words.starts_with("by ") ? "asked " + width + ' ' : width + ": ");
    text += words + (trail.empty() ? "" : "; ");
  }
  return text;
}

// Why a tensor with this trail is exact, as core/reasons.h names it; "may_bear_noise": the rule for
// noise allows some. Of an unknown text the text.
[[nodiscard]] inline std::string_view exactness_of(std::string_view trail) noexcept {
  const std::string_view last = trail.substr(trail.rfind(' ') + 1);
  const std::string_view name = last.substr(0, last.find(':'));
  const bridge::Why why = bridge::why_named(name);
  return why == bridge::Why::kCount ? trail
         : why < bridge::Why::kBits ? name
                                    : bridge::name_of(bridge::Why::kMayBearNoise);
}

// With the reason for which the tensor stayed raw.
[[nodiscard]] inline std::string raw_trail(std::string_view trail) {
  const bool noisy = trail != "may_bear_noise" && exactness_of(trail) == "may_bear_noise";
  return trail.empty() ? "no reason told" : std::string(trail) + (noisy ? " may_bear_noise:0" : "");
}

}  // namespace pleat::trace

// The tables of a summary that tell of modules and of groups.
#pragma once

#include <string>

#include "summary.h"
#include "tools/pleat/profile_output.h"

namespace pleat::cli {

// With titles; empty: there is nothing to tell.
[[nodiscard]] std::string layers_text(const TraceSummary& summary, const DeviceSummary& device,
                                      trace::Lines& lines, const TraceSummaryRequest& request);
// Adds `modules` and `groups` to the object of the device: null where the trace has none, or none
// were asked for.
void put_layers(Json& json, const TraceSummary& summary, const DeviceSummary& device,
                trace::Lines& lines);

}  // namespace pleat::cli

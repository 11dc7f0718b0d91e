// Checks a user's request for data that the trace does not have.
#pragma once

#include "request.h"
#include "tools/pleat/trace/lives.h"

namespace pleat::cli {

// False: a moment, a time, a step or a device lies outside of what was read, which is said in one
// line on stderr. A filter that merely finds nothing is no error.
[[nodiscard]] bool is_within(const TraceSelection& selection, const Moment& at,
                             const trace::Lives& lives);

}  // namespace pleat::cli

// Who steps: torch's optimizers name themselves in a profiler's scope around each step.
#pragma once

#include <string_view>

namespace pleat::bridge {

// From now on `steps` is called with the name of the class, such as "AdamW", at the start of each
// step of an optimizer of torch.optim, or of a class of it. On the thread that steps; it must not
// throw. For the life of the process; the first call counts.
void watch_optimizers(void (*steps)(std::string_view) noexcept);

}  // namespace pleat::bridge

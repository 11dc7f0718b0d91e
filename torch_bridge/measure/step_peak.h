// How much memory the last step took, for a budget.
#pragma once

namespace pleat::bridge {

class Runtime;

// A step ends and the next begins: tells Runtime::sensitivity what was taken at the peak by the
// heap that has the most in payloads.
void note_step_peak(Runtime& runtime) noexcept;

}  // namespace pleat::bridge

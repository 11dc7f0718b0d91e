// Reports the optimizers that step to the sensitivity book.
#pragma once

namespace pleat::bridge {

// From now on the book gets the name of the class, such as "AdamW", at the start of each step of an
// optimizer of torch.optim, or of a class of it. Torch's optimizers name themselves in a profiler's
// scope around each step. For the life of the process; the first call counts.
void watch_optimizers();

}  // namespace pleat::bridge

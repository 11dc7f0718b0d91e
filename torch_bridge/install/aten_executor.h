// aten_executor() runs the codec's loops in ATen's own threads, or in the calling thread.
#pragma once

#include <cstddef>
#include <functional>

namespace pleat::bridge {

// Implements compress::Executor. Runs serially
//   inside a parallel region,
//   in a thread that only happens to free a tensor, because OpenMP would start a team for it,
//   in a forked child, which does not have OpenMP's team.
void aten_executor(std::size_t items, std::size_t grain,
                   const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace pleat::bridge

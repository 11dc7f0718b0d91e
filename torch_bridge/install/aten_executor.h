// Where the loops of the codec run: ATen's own threads, or the one that asks.
#pragma once

#include <cstddef>
#include <functional>

namespace pleat::bridge {

// As compress::Executor says. Runs serially
//   inside a parallel region,
//   in a thread that only happens to free a tensor, because OpenMP would start a team for it,
//   in a forked child, because the team that OpenMP believes in does not exist there.
void aten_executor(std::size_t items, std::size_t grain,
                   const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace pleat::bridge

// Where the loops of the codec run: ATen's own threads, or the one that asks.
#pragma once

#include <cstddef>
#include <functional>

namespace pleat::bridge {

// As compress::Executor says. Serial inside a parallel region; in a thread that has no ATen threads
// beside it and only happens to free a tensor: OpenMP would start a team for it; and in a forked
// child, which has none of the team that its OpenMP believes in.
void aten_executor(std::size_t items, std::size_t grain,
                   const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace pleat::bridge

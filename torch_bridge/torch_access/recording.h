// Which thread has recorded a graph, and what it counts of its keys. Autograd writes into each node
// the number of the thread that made it.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>

#include "torch_bridge/core/key_book.h"
#include "torch_bridge/torch_access/torch_version.h"

namespace pleat::bridge {

// This thread's; made when it is first asked for. Null without memory for it.
[[nodiscard]] KeyBook::Recording* this_recording(KeyBook& book) noexcept;

// The threads that recorded these roots; this one without any.
using ThreadNumbers = c10::SmallVector<std::uint64_t, 4>;
[[nodiscard]] ThreadNumbers recorders_of(const torch::autograd::edge_list& roots);

}  // namespace pleat::bridge

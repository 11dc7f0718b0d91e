// The stack that torch's history of memory shows of a thread that has none.
#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace pleat::bridge {

// Waits for no lock. Throws std::bad_alloc.
[[nodiscard]] std::shared_ptr<c10::GatheredContext> no_stack();

}  // namespace pleat::bridge

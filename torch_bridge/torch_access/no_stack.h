// no_stack() returns an empty stack for torch's memory history of threads without interpreter.
#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace pleat::bridge {

// Waits for no lock. Throws std::bad_alloc.
[[nodiscard]] std::shared_ptr<c10::GatheredContext> no_stack();

}  // namespace pleat::bridge

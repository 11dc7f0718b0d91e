// The c10::Allocator for CPU tensors: small requests use the previous allocator, others Pleat's
// pool. Both have one deleter.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {

// The uniform deleter: a block of Pleat's is released through residency, any other pointer reaches
// the previous allocator's deleter unchanged. Any thread, never throws.
void cpu_deleter(void* pointer);

// A DataPtr over a block of the host's pool; it becomes the block's owner. Its deleter is
// cpu_deleter.
[[nodiscard]] c10::DataPtr data_over(allocator::Block* block, std::size_t bytes);

// Null before the installation.
[[nodiscard]] c10::Allocator* cpu_allocator() noexcept;

// Puts the allocator in force with the highest priority. Once per process.
void install_cpu_allocator();

}  // namespace pleat::bridge

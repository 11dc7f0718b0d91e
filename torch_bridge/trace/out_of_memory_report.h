// A report on stderr of the memory in use: by class and by line while a trace is written, else by
// Pleat's counters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pleat::bridge {

// Reports that an allocation of `bytes` was refused. Only the first few reports are written: a
// program can be in search of the batch that fits. A trace gets a mark of each. Takes hardly any
// memory. Any thread, without a lock of Pleat's. `device`: as of a heap. Does nothing if Pleat is
// not installed.
void report_out_of_memory(std::size_t bytes, std::int32_t device) noexcept;

// The same report on request. `title` is for the first line; null: "memory".
void report_memory(const char* title) noexcept;

}  // namespace pleat::bridge

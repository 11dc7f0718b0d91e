// A page on stderr that says who holds the memory: by class and by line where a trace is written,
// else by what Pleat counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pleat::bridge {

// An allocation of `bytes` was refused. The page is written for the first few only: a program may
// look for the batch that fits. A trace has a mark of each. Takes no memory to speak of; any
// thread, with no lock of ours held. `device`: as of a heap. Nothing where Pleat is not installed.
void report_out_of_memory(std::size_t bytes, std::int32_t device) noexcept;

// The same because somebody asks. `title` is for the first line; null: one of ours.
void report_memory(const char* title) noexcept;

}  // namespace pleat::bridge

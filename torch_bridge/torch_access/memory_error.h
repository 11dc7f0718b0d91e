// The error of memory that is not to be had, word for word as stock's allocator raises it: searches
// for a batch size that fits look for its text.
#pragma once

#include <cstddef>

namespace pleat::bridge {

// `purpose` says behind stock's text what the bytes were for.
[[noreturn]] void throw_out_of_memory(std::size_t bytes, const char* purpose);

}  // namespace pleat::bridge

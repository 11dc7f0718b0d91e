// The out-of-memory error of stock's allocator, word for word: batch-size searches match its text.
#pragma once

#include <cstddef>

namespace pleat::bridge {

// `purpose` follows stock's text and names the use of the bytes.
[[noreturn]] void throw_out_of_memory(std::size_t bytes, const char* purpose);

}  // namespace pleat::bridge

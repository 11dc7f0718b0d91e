// What planted bugs (planted.cmake) need besides the sources that they are in; included before
// each.
#pragma once

#include <cstdint>

inline thread_local std::uint64_t planted_current_stream = 0;
extern int (*planted_at_end)(void** context);

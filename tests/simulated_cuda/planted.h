// Declarations that planted bugs (planted.cmake) need in addition to their sources; included before
// each source.
#pragma once

#include <cstdint>

inline thread_local std::uint64_t planted_current_stream = 0;
inline thread_local bool planted_late = false;
extern int (*planted_at_end)(void** context);

// The clock of what the bridge times, which is that of a trace's events.
#pragma once

#include <cstdint>
#include <ctime>

namespace pleat::bridge {

[[nodiscard]] inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace pleat::bridge

// Which part of a trace is asked for. Every command applies what makes sense for it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "interpose/trace/byte_class.h"

namespace pleat::trace {

struct Filter {
  // Moments between these are looked at for peaks; CLOCK_MONOTONIC.
  std::uint64_t since_ns = 0;
  std::uint64_t until_ns = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t most_events = std::numeric_limits<std::uint64_t>::max();  // reading ends then
  // Of what lives at a moment, these are listed.
  std::uint64_t least_bytes = 0;
  std::string op;                     // a part of the operator's name; empty: any
  std::optional<ByteClass> of_class;  // none: any
  std::optional<std::uint64_t> step;  // born in it; none: any

  [[nodiscard]] bool holds(std::uint64_t time_ns) const noexcept {
    return time_ns >= since_ns && time_ns <= until_ns;
  }
};

}  // namespace pleat::trace

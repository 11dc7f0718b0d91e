#include "torch_bridge/measure/probe_parts.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "torch_bridge/core/runtime.h"

namespace pleat::bridge {
namespace {

// Of the process; 0 if the system does not say.
std::uint64_t resident_bytes() noexcept {
  unsigned long all = 0, resident = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%lu %lu", &all, &resident) != 2) {
      resident = 0;
    }
    std::fclose(file);
  }
  return std::uint64_t{resident} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

void note_step_peak(Runtime& runtime) noexcept {
  SensitivityBook::Peak most;
  runtime.heaps.for_each([&](allocator::Heap& heap) {
    allocator::Statistics& statistics = heap.statistics();
    const allocator::Statistics::Window window = statistics.window();
    statistics.restart_window();
    if (static_cast<std::uint64_t>(window.payload) >= most.payload) {
      most = {static_cast<std::uint64_t>(window.requested),
              static_cast<std::uint64_t>(window.payload),
              static_cast<std::uint64_t>(window.reserved)};
    }
  });
  const auto reserved =
      static_cast<std::uint64_t>(runtime.statistics.current(allocator::StatKind::kReserved));
  const std::uint64_t resident = resident_bytes();
  most.beside = resident - std::min(resident, reserved);
  try {
    if (runtime.sensitivity.note_peak(most)) {
      runtime.pool.trim();
      runtime.heaps.for_each([](allocator::Heap& heap) { heap.statistics().restart_window(); });
    }
  } catch (...) {  // no memory: the widths stay
  }
}

}  // namespace pleat::bridge

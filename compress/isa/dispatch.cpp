// Finds once what depends on the CPU: the table of inner loops, and when to write past the caches.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "compress/codec.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

#if defined(__x86_64__)
bool has_f16c() noexcept {  // not every compiler's __builtin_cpu_supports() knows this name
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool cpu_has(Isa isa) noexcept {
  switch (isa) {
    case Isa::kAuto:
    case Isa::kScalar:
      return true;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
             has_f16c();
    case Isa::kAvx512:
      return cpu_has(Isa::kAvx2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0;
#else
    default:
      return false;
#endif
  }
  return false;
}

Isa best_isa() noexcept {
  if (cpu_has(Isa::kAvx512)) return Isa::kAvx512;
  if (cpu_has(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kScalar;
}

const Kernels* table_of(Isa isa) noexcept {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return &kAvx512Kernels;
  if (isa == Isa::kAvx2) return &kAvx2Kernels;
#endif
  (void)isa;
  return &kScalarKernels;
}

// Process-wide because the CPU is; constant-initialised, so usable from any static constructor.
struct Dispatch {
  std::atomic<Isa> isa{Isa::kAuto};
  std::atomic<const Kernels*> table{nullptr};    // null: not looked up yet
  std::atomic<std::size_t> stream_threshold{0};  // in bytes; 0: not looked up yet
};
constinit Dispatch dispatch;

constexpr std::size_t kLeastThreshold = std::size_t{1} << 20;  // fits a core's own cache
constexpr std::size_t kUsualThreshold = std::size_t{8} << 20;  // where the cache is unknown
constexpr std::size_t kMostThreshold = std::size_t{64} << 20;  // guests see all of the host's cache

// Bytes of the first CPU's last-level cache; 0: unknown. (sysconf() sums over a package.)
std::size_t last_level_cache() noexcept {
  std::size_t kibibytes = 0;
  if (std::FILE* const file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re")) {
    if (std::fscanf(file, "%zuK", &kibibytes) != 1) kibibytes = 0;
    std::fclose(file);
  }
  return kibibytes * 1024;
}

}  // namespace

Isa active_isa() noexcept {
  const Isa isa = dispatch.isa.load(std::memory_order_relaxed);
  return isa == Isa::kAuto ? best_isa() : isa;
}

const Kernels& kernels() noexcept {
  const Kernels* in_use = dispatch.table.load(std::memory_order_relaxed);
  if (in_use == nullptr) {  // threads may race here: all find the same table
    in_use = table_of(active_isa());
    dispatch.table.store(in_use, std::memory_order_relaxed);
  }
  return *in_use;
}

std::size_t stream_threshold() noexcept {
  std::size_t threshold = dispatch.stream_threshold.load(std::memory_order_relaxed);
  if (threshold == 0) {  // threads may race here: all find the same threshold
    const std::size_t cache = last_level_cache();
    threshold =
        cache == 0 ? kUsualThreshold : std::clamp(cache / 4, kLeastThreshold, kMostThreshold);
    dispatch.stream_threshold.store(threshold, std::memory_order_relaxed);
  }
  return threshold;
}

void set_stream_threshold(std::size_t bytes) noexcept {
  dispatch.stream_threshold.store(bytes, std::memory_order_relaxed);
}

void use_kernels(const Kernels* replacement) noexcept {
  dispatch.table.store(replacement, std::memory_order_relaxed);
}

bool isa_supported(Isa isa) noexcept { return cpu_has(isa); }

void set_isa(Isa isa) noexcept {
  dispatch.isa.store(cpu_has(isa) ? isa : Isa::kAuto, std::memory_order_relaxed);
  dispatch.table.store(nullptr, std::memory_order_relaxed);
}

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kAuto:
      return "auto";
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace pleat::compress

// Chooses the table of inner loops once, by what the CPU can do.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <unistd.h>

#include <atomic>

#include "compress/codec.h"
#include "compress/kernels.h"

namespace pleat::compress {
namespace {

#if defined(__x86_64__)
bool has_f16c() noexcept {  // a name that not every compiler's __builtin_cpu_supports() knows
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
constinit std::atomic<Isa> chosen{Isa::kAuto};
constinit std::atomic<const Kernels*> table{nullptr};

constinit std::atomic<std::size_t> threshold{0};                // of streaming; 0: a quarter of
constexpr std::size_t kUsualThreshold = std::size_t{8} << 20;  // the last-level cache, or this

}  // namespace

Isa active_isa() noexcept {
  const Isa isa = chosen.load(std::memory_order_relaxed);
  return isa == Isa::kAuto ? best_isa() : isa;
}

const Kernels& kernels() noexcept {
  const Kernels* in_use = table.load(std::memory_order_relaxed);
  if (in_use == nullptr) {  // threads may race here: they all find the same
    in_use = table_of(active_isa());
    table.store(in_use, std::memory_order_relaxed);
  }
  return *in_use;
}

std::size_t stream_threshold() noexcept {
  const std::size_t set = threshold.load(std::memory_order_relaxed);
  if (set != 0) return set;
  static const std::size_t found = [] {
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<std::size_t>(bytes) / 4 : kUsualThreshold;
  }();
  return found;
}

void set_stream_threshold(std::size_t bytes) noexcept {
  threshold.store(bytes, std::memory_order_relaxed);
}

void use_kernels(const Kernels* replacement) noexcept {
  table.store(replacement, std::memory_order_relaxed);
}

bool isa_supported(Isa isa) noexcept {
  return cpu_has(isa);
}

void set_isa(Isa isa) noexcept {
  chosen.store(cpu_has(isa) ? isa : Isa::kAuto, std::memory_order_relaxed);
  table.store(nullptr, std::memory_order_relaxed);
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

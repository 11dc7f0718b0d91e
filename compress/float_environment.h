// Sets round to nearest, subnormals kept and no traps, and restores the calling thread's own
// settings afterwards. PyTorch's set_flush_denormal() and threads of other libraries change these
// bits.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace pleat::compress {

class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() noexcept : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
#else
  FloatEnvironment() noexcept = default;
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

#if defined(__x86_64__)
 private:
  static constexpr unsigned kDefault = 0x1F80;  // all exceptions masked
  unsigned saved_;
#endif
};

}  // namespace pleat::compress

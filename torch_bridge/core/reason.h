// Why a saved tensor got a record, or did not: counted by the bridge, printed in its report.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pleat::bridge {

enum class Reason : std::uint8_t {
  kEligibleLossy,
  kEligibleLossless,
  kDisabled,  // pleat_disable, exempt, a forked child, after exit
  kUndefined,
  kLeaf,  // parameters and other leaves that require grad
  kViewOfLeaf,
  kCastOfParameter,  // low-precision or transposed copies of a parameter
  kNotPlainStrided,  // fake, functional, meta, sparse, quantised, nested, subclass
  kOtherDevice,
  kTooSmall,
  kForeignStorage,  // numpy, shared memory, dlpack, older than us, a view into something else
  kTracing,
  kCompiledFunction,  // what a function of torch.compile saves; it has chosen that itself
  kCount,
};
[[nodiscard]] const char* reason_name(Reason reason) noexcept;

// How many tensors, and of how many bytes, each reason was given. Any thread.
class ReasonCounts {
 public:
  struct Count {
    std::atomic<std::uint64_t> tensors{0}, bytes{0};
  };
  void add(Reason reason, std::size_t bytes) noexcept {
    Count& c = counts_[static_cast<std::size_t>(reason)];
    c.tensors.fetch_add(1, std::memory_order_relaxed);
    c.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] const Count& operator[](Reason reason) const noexcept {
    return counts_[static_cast<std::size_t>(reason)];
  }

 private:
  std::array<Count, static_cast<std::size_t>(Reason::kCount)> counts_{};
};

}  // namespace pleat::bridge

// Why a floating tensor that could have been lossy is exact: counted by the bridge when the tensor
// is stored, printed in its report. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pleat::bridge {

enum class Exactness : std::uint8_t {
  kMayBearNoise,    // it is not exact
  kOperator,        // the operator that saves it bears no noise
  kFunction,        // a function that we cannot look into saves it
  kPole,            // a path from there meets a pole, a comparison or a loss
  kFunctionBehind,  // a path meets a function that we cannot look into
  kNoProof,         // backward began, and no path had met anything that closes it
  kNoRoom,          // memory was short before a proof came
  kComputedWeight,  // it is computed from weights alone
  kReadTwice,       // several contractions read it as their weight
  kDerivative,      // results of derivatives are made of it
  kInBackward,      // saved while a backward pass runs
  kRule,            // the option `rule` allows no noise there
  kCount,
};
[[nodiscard]] const char* exactness_name(Exactness why) noexcept;

// How many storages, and of how many bytes. Any thread.
class ExactnessCounts {
 public:
  struct Count {
    std::atomic<std::uint64_t> storages{0}, bytes{0};
  };
  void add(Exactness why, std::size_t bytes) noexcept {
    Count& c = counts_[static_cast<std::size_t>(why)];
    c.storages.fetch_add(1, std::memory_order_relaxed);
    c.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] const Count& operator[](Exactness why) const noexcept {
    return counts_[static_cast<std::size_t>(why)];
  }

 private:
  std::array<Count, static_cast<std::size_t>(Exactness::kCount)> counts_{};
};

}  // namespace pleat::bridge

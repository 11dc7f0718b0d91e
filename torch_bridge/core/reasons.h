// Reasons that the bridge counts and its report prints. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pleat::bridge {

// How many tensors or storages, and of how many bytes, were given each value of an enum that ends
// with kCount. Any thread.
template <class Enum>
class Counts {
 public:
  struct Count {
    std::atomic<std::uint64_t> number{0}, bytes{0};
  };
  void add(Enum value, std::size_t bytes) noexcept {
    Count& c = counts_[static_cast<std::size_t>(value)];
    c.number.fetch_add(1, std::memory_order_relaxed);
    c.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] const Count& operator[](Enum value) const noexcept {
    return counts_[static_cast<std::size_t>(value)];
  }

 private:
  std::array<Count, static_cast<std::size_t>(Enum::kCount)> counts_{};
};

// Why a saved tensor got a record, or did not.
enum class Reason : std::uint8_t {
  kEligibleLossy,
  kEligibleLossless,
  kDisabled,  // pleat_disable, exempt, a forked child, after exit
  kUndefined,
  kLeaf,  // parameters and other leaves that require grad
  kViewOfLeaf,
  kCastOfParameter,  // low-precision or transposed copies of a parameter
  kNotPlainStrided,  // fake, functional, meta, sparse, quantised, nested, subclass with its own
                     // dispatch
  kOtherDevice,
  kTooSmall,
  kForeignStorage,  // numpy, shared memory, dlpack, older than us, a view into something else
  kWatched,         // saved while a dispatch mode, a function transform or a tracer watches
  kPythonState,  // saved by a function in Python, which gets the object's class and attributes back
  kCompiledFunction,  // what a function of torch.compile saves; it has chosen that itself
  kCount,
};
[[nodiscard]] constexpr const char* reason_name(Reason reason) noexcept {
  constexpr std::array kNames{
      "eligible_lossy",  "eligible_lossless", "disabled",          "undefined",        "leaf",
      "view_of_leaf",    "cast_of_parameter", "not_plain_strided", "other_device",     "too_small",
      "foreign_storage", "watched",           "python_state",      "compiled_function"};
  static_assert(kNames.size() == static_cast<std::size_t>(Reason::kCount));
  return reason < Reason::kCount ? kNames[static_cast<std::size_t>(reason)] : "?";
}

using ReasonCounts = Counts<Reason>;

// Why a floating tensor that could have been lossy is exact: counted when the tensor is stored.
enum class Exactness : std::uint8_t {
  kMayBearNoise,    // it is not exact
  kOperator,        // the operator that saves it bears no noise
  kFunction,        // a function that we cannot look into saves it
  kPole,            // a path from there meets a pole, a comparison or a loss
  kFunctionBehind,  // a path meets a function that we cannot look into
  kNoProof,         // backward began, and no path had met anything that closes it
  kNoRoom,          // memory was short before a proof came
  kComputedWeight,  // it is computed from weights alone
  kDerivative,      // results of derivatives are made of it
  kInBackward,      // saved while a backward pass runs
  kRule,            // the option `rule` allows no noise there
  kAssigned,        // it may bear noise, but its key is to be exact
  kCount,
};
[[nodiscard]] constexpr const char* exactness_name(Exactness why) noexcept {
  constexpr std::array kNames{"may_bear_noise",  "operator",    "function", "pole",
                              "function_behind", "no_proof",    "no_room",  "computed_weight",
                              "derivative",      "in_backward", "rule",     "assigned"};
  static_assert(kNames.size() == static_cast<std::size_t>(Exactness::kCount));
  return why < Exactness::kCount ? kNames[static_cast<std::size_t>(why)] : "?";
}

using ExactnessCounts = Counts<Exactness>;

}  // namespace pleat::bridge

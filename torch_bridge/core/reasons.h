// Reasons that the bridge counts and reports. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

// Rows of the enums below: name in code and in files, and the words of a user behind a width, as in
// "8: an exponential reads it".
#define PLEAT_EXACTNESS(ROW)                                                                      \
  ROW(kMayBearNoise, "may_bear_noise", "nothing is coded (bits:off), or coding gains too little") \
  ROW(kOperator, "operator", "the operator bears no noise")                                       \
  ROW(kFunction, "function", "saved by a function that Pleat cannot look into")                   \
  ROW(kPole, "pole", "a division, logarithm, comparison or loss follows")                         \
  ROW(kFunctionBehind, "function_behind", "a function that Pleat cannot look into follows")       \
  ROW(kNoProof, "no_proof", "nothing that follows shows noise to be harmless")                    \
  ROW(kNoRoom, "no_room", "memory was short before a proof came")                                 \
  ROW(kComputedWeight, "computed_weight", "computed from weights alone")                          \
  ROW(kDerivative, "derivative", "results of derivatives are made of it")                         \
  ROW(kInBackward, "in_backward", "saved while backward runs")                                    \
  ROW(kRule, "rule", "the option `rule` says so")                                                 \
  ROW(kAssigned, "assigned", "its bits by sensitivity say so")
// Widths that are asked for, then of a save, of the saves of one storage, of the payload.
#define PLEAT_OTHER_WHYS(ROW)                                                              \
  ROW(kBits, "bits", "by the option `bits`")                                               \
  ROW(kProfile, "profile", "by profile")                                                   \
  ROW(kBudget, "budget", "by budget")                                                      \
  ROW(kDistrusted, "distrusted", "by the option `bits`, as a check distrusts the profile") \
  ROW(kExactType, "exact_type", "no float that needs a gradient, or bits:lossless")        \
  ROW(kShape, "shape", "only its shape is read")                                           \
  ROW(kSides, "sides", "only the sides of its values are read")                            \
  ROW(kOwnOperator, "own_operator", "the operator that saves it needs as many")            \
  ROW(kAttention, "attention", "multiplied with a softmax, as in attention")               \
  ROW(kOwnSum, "own_sum", "divided by its own sum, as in a softmax")                       \
  ROW(kExponential, "exponential", "an exponential reads it")                              \
  ROW(kSeveralSaves, "several_saves", "its saves disagree")                                \
  ROW(kLeftOut, "left_out", "more steps than the trail has room for")                      \
  ROW(kWideSteps, "wide_steps", "wider steps than 1/2")                                    \
  ROW(kWideExponents, "wide_exponents", "wider steps than 1/8")                            \
  ROW(kValues, "values", "its values need as many")                                        \
  ROW(kLesson, "lesson", "the steps of earlier payloads were too wide")
#define PLEAT_WHY_CODE(code, name, words) code,
#define PLEAT_WHY_TEXT(code, name, words) WhyText{name, words},

// Why a floating tensor that could have been lossy is exact: counted when the tensor is stored.
enum class Exactness : std::uint8_t { PLEAT_EXACTNESS(PLEAT_WHY_CODE) kCount };
// Why a saved tensor has its width: a step of a Decision's trail (decision.h).
enum class Why : std::uint8_t {
  PLEAT_EXACTNESS(PLEAT_WHY_CODE) PLEAT_OTHER_WHYS(PLEAT_WHY_CODE) kCount
};
struct WhyText {
  std::string_view name, words;
};
inline constexpr std::array kWhyTexts{PLEAT_EXACTNESS(PLEAT_WHY_TEXT)
                                          PLEAT_OTHER_WHYS(PLEAT_WHY_TEXT)};

[[nodiscard]] constexpr std::string_view name_of(Why why) noexcept {
  return why < Why::kCount ? kWhyTexts[static_cast<std::size_t>(why)].name : "?";
}
// kCount: no reason has the name.
[[nodiscard]] constexpr Why why_named(std::string_view name) noexcept {
  std::size_t i = 0;
  while (i < kWhyTexts.size() && kWhyTexts[i].name != name) ++i;
  return static_cast<Why>(i);
}
// Of a trail in a file: "profile:3".
[[nodiscard]] inline std::string step_text(Why why, unsigned width) {
  return std::string(name_of(why)) + ':' + std::to_string(width);
}
[[nodiscard]] constexpr const char* exactness_name(Exactness why) noexcept {
  return name_of(static_cast<Why>(why)).data();
}

using ExactnessCounts = Counts<Exactness>;

}  // namespace pleat::bridge

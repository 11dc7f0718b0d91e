// ByteClass is the purpose of live bytes, for the reader of traces and for the recorder. Each live
// byte of a device is of one class at every moment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pleat::trace {

// Of two classes that a block could be of, the one that stands first counts; but a block that holds
// a payload of its own is of kPayloads whatever else it is.
enum class ByteClass : std::uint8_t {
  kParameters,      // labelled so, at any time of its life
  kGradients,       // the same
  kOptimizerState,  // born in the optimizer, lives on after it
  kInputs,     // born outside of training or as data is loaded, there when the next phase begins
  kSavedRaw,   // from its tag until its record is encoded, kept or dropped
  kPayloads,   // places in chunks, and blocks that hold a payload
  kRestored,   // a record was restored into it
  kTemporary,  // born and freed within one phase
  kKept,       // of forward or backward, outlives its phase: the program holds it
  kUnknown,    // of before the trace, or none of these
};
inline constexpr std::size_t kByteClasses = 10;

inline constexpr std::array<std::string_view, kByteClasses> kClassNames{
    "parameters", "gradients", "optimizer state", "inputs", "saved raw",
    "payloads",   "restored",  "temporary",       "kept",   "unknown"};
[[nodiscard]] constexpr std::string_view class_name(ByteClass of) noexcept {
  return kClassNames[static_cast<std::size_t>(of)];
}

[[nodiscard]] constexpr std::optional<ByteClass> class_of_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kByteClasses; ++i)
    if (kClassNames[i] == name) return static_cast<ByteClass>(i);
  return std::nullopt;
}

[[nodiscard]] constexpr std::string_view phase_name(
    std::uint8_t phase) noexcept {  // "?": none such
  constexpr std::array<std::string_view, 6> kNames{"other",     "forward", "backward",
                                                   "optimizer", "between", "data"};
  return phase < kNames.size() ? kNames[phase] : "?";
}

// Decided once for a whole life: none of them ever is saved raw.
[[nodiscard]] constexpr bool is_for_life(ByteClass of) noexcept {
  return of <= ByteClass::kInputs || of == ByteClass::kPayloads;
}

}  // namespace pleat::trace

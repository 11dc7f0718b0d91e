// What the text of a profile may hold. The writer keeps within these limits, the reader refuses
// what does not; sums over all units then stay within their types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pleat::sensitivity::limits {

inline constexpr std::uint64_t kVersion = 1;
// A text is a profile if it says so this near to its start.
inline constexpr std::string_view kMark = "\"pleat_profile\"";
inline constexpr std::size_t kMarkWithin = 4096;

inline constexpr std::size_t kUnits = 1'000'000;
inline constexpr std::size_t kCharacters = 4096;  // of a name
inline constexpr std::size_t kDimensions = 64;
inline constexpr std::uint64_t kBytes = std::uint64_t{1} << 43;
inline constexpr std::uint64_t kCount = std::uint64_t{1} << 53;
inline constexpr double kNumber = 1e100;
inline constexpr std::uint64_t kFloor = 8;

}  // namespace pleat::sensitivity::limits

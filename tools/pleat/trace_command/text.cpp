#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "torch_bridge/core/option_text.h"

namespace pleat::cli {

std::string size_text(std::int64_t bytes) {
  constexpr std::array<const char*, 7> kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  // A size that would print as 1024 is one of the next unit.
  while (std::abs(size) >= (unit == 0 ? 1024 : 1023.995) && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", size, kUnits[unit]);
}

std::string share_of(std::int64_t part, std::int64_t all) {
  if (all <= 0) return "";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(all));
}

std::string count_text(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string device_text(int device) { return device < 0 ? "host" : fmt::format("cuda:{}", device); }

std::string step_text(const trace::Lives& lives, std::uint32_t step) {
  const std::optional<std::uint64_t> number = lives.step_number(step);
  return number ? std::to_string(*number) : "-";
}

std::string what_if_text(double bits) {
  return bits == trace::kLossless ? "lossless"
                                  : fmt::format("at {:g} bit{}", bits, bits == 1 ? "" : "s");
}

std::string shown_path(std::string_view path) { return bridge::printable(path, 4096); }

std::optional<std::uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  std::string unit;
  for (const char* at = stop; at != end; ++at)
    if (*at != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  double base = 1024;
  if (unit.ends_with("ib")) {
    unit.resize(unit.size() - 2);
  } else if (unit.ends_with('b')) {
    if (unit.size() > 1) base = 1000;
    unit.pop_back();
  }
  constexpr std::string_view kPrefixes = "kmgtp";
  const std::size_t prefix = unit.size() == 1 ? kPrefixes.find(unit[0]) : std::string_view::npos;
  if (!unit.empty() && prefix == std::string_view::npos) return std::nullopt;
  if (!unit.empty()) number *= std::pow(base, static_cast<double>(prefix + 1));
  if (!(number < 0x1p62)) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(number));
}

}  // namespace pleat::cli

// A chart of lines and dots as one SVG element, for a page of HTML whose style names the colours.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pleat::cli {

// For text and attributes of HTML. Control characters become '?', invalid UTF-8 U+FFFD.
[[nodiscard]] std::string escaped(std::string_view text);

struct Axis {
  std::string title;
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  std::vector<std::pair<double, std::string>> ticks;
};

// An axis from zero to the largest of the values.
[[nodiscard]] Axis linear_axis(std::string title, std::span<const double> values);
// An axis of whole decades around the positive values.
[[nodiscard]] Axis decades_axis(std::string title, std::span<const double> values);

struct Point {
  double x = 0;
  double y = 0;      // NaN: a gap
  std::string note;  // shown when a pointer rests on it
};

struct Series {
  std::string name;
  const char* style = "one";  // a class of the page: "one" or "two"
  bool line = true;
  bool dots = true;
  std::vector<Point> points;
};

// Values beyond an axis lie at its end.
[[nodiscard]] std::string svg_chart(const std::string& title, const Axis& x, const Axis& y,
                                    std::span<const Series> series);

}  // namespace pleat::cli

#include "svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

// Of the picture, and of the field that the axes span.
constexpr double kWidth = 880;
constexpr double kHeight = 320;
constexpr double kLeft = 70;
constexpr double kRight = kWidth - 15;
constexpr double kTop = 34;
constexpr double kBottom = kHeight - 48;

double place(const Axis& axis, double value, double from, double to) {
  double low = axis.low;
  double high = axis.high;
  value = std::clamp(value, low, high);
  if (axis.logarithmic) {
    value = std::log10(value);
    low = std::log10(low);
    high = std::log10(high);
  }
  return from + (to - from) * (value - low) / (high - low);
}

double x_of(const Axis& axis, double value) { return place(axis, value, kLeft, kRight); }
double y_of(const Axis& axis, double value) { return place(axis, value, kBottom, kTop); }

void add_axes(std::string& svg, const Axis& x, const Axis& y) {
  const auto out = std::back_inserter(svg);
  for (const auto& [value, name] : x.ticks) {
    const double at = x_of(x, value);
    fmt::format_to(out, R"(<path class="grid" d="M{0:.1f} {1}V{2}"/>)", at, kTop, kBottom);
    fmt::format_to(out, R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", at,
                   kBottom + 18, escaped(name));
  }
  for (const auto& [value, name] : y.ticks) {
    const double at = y_of(y, value);
    fmt::format_to(out, R"(<path class="grid" d="M{} {:.1f}H{}"/>)", kLeft, at, kRight);
    fmt::format_to(out, R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 7, at + 4,
                   escaped(name));
  }
  fmt::format_to(out, R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)", (kLeft + kRight) / 2,
                 kHeight - 8, escaped(x.title));
  fmt::format_to(out, R"(<text x="{}" y="16">{}</text>)", 4, escaped(y.title));
}

void add_line(std::string& svg, const Series& series, const Axis& x, const Axis& y) {
  const auto out = std::back_inserter(svg);
  fmt::format_to(out, R"(<path class="line {}" d=")", series.style);
  char command = 'M';
  for (const Point& point : series.points) {
    if (std::isnan(point.y)) {
      command = 'M';
      continue;
    }
    fmt::format_to(out, "{}{:.1f} {:.1f}", command, x_of(x, point.x), y_of(y, point.y));
    command = 'L';
  }
  svg += "\"/>";
}

void add_dots(std::string& svg, const Series& series, const Axis& x, const Axis& y) {
  const auto out = std::back_inserter(svg);
  for (const Point& point : series.points) {
    if (std::isnan(point.y)) continue;
    fmt::format_to(out, R"(<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="3">)", series.style,
                   x_of(x, point.x), y_of(y, point.y));
    if (!point.note.empty()) fmt::format_to(out, "<title>{}</title>", escaped(point.note));
    svg += "</circle>";
  }
}

// At the top, from the right. A series without a name has no entry.
void add_legend(std::string& svg, std::span<const Series> series) {
  const auto out = std::back_inserter(svg);
  constexpr double kLetter = 6.2;
  double end = kRight;
  for (auto one = series.rbegin(); one != series.rend(); ++one) {
    if (one->name.empty()) continue;
    fmt::format_to(out, R"(<text x="{:.1f}" y="16" text-anchor="end">{}</text>)", end,
                   escaped(one->name));
    end -= kLetter * static_cast<double>(one->name.size()) + 8;
    if (one->line)
      fmt::format_to(out, R"(<path class="line {}" d="M{:.1f} 12h-30"/>)", one->style, end);
    if (one->dots)
      fmt::format_to(out, R"(<circle class="dot {}" cx="{:.1f}" cy="12" r="3"/>)", one->style,
                     end - 15);
    end -= 46;
  }
}

// 1, 2 or 5 times a power of ten, so that there are at most ten ticks.
double step_for(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range)) - 1);
  for (const double times : {1.0, 2.0, 5.0})
    if (range / (times * power) <= 10) return times * power;
  return 10 * power;
}

}  // namespace

std::string escaped(std::string_view text) {
  // JSON's writer replaces what is no UTF-8.
  const std::string valid = nlohmann::json::parse(bridge::json_string(text)).get<std::string>();
  std::string out;
  for (const char c : valid) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return out;
}

Axis linear_axis(std::string title, std::span<const double> values) {
  Axis axis;
  axis.title = std::move(title);
  axis.high = 0;
  for (const double value : values)
    if (std::isfinite(value)) axis.high = std::max(axis.high, value);
  if (axis.high <= 0) axis.high = 1;
  const double step = step_for(axis.high);
  const int steps = static_cast<int>(std::ceil(axis.high / step - 1e-9));
  axis.high = steps * step;
  for (int i = 0; i <= steps; ++i) axis.ticks.emplace_back(i * step, fmt::format("{:g}", i * step));
  return axis;
}

Axis decades_axis(std::string title, std::span<const double> values) {
  Axis axis;
  axis.title = std::move(title);
  axis.logarithmic = true;
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const double value : values) {
    if (!(value > 0) || !std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (high <= 0) low = high = 1;
  // A zero counts as the least positive number: it must not squeeze all others together.
  constexpr double kMostDecades = 12;
  const double last = std::max(std::ceil(std::log10(high)), std::floor(std::log10(low)) + 1);
  const double first = std::max(std::floor(std::log10(low)), last - kMostDecades);
  axis.low = std::pow(10.0, first);
  axis.high = std::pow(10.0, last);
  const double step = last - first > 6 ? 2 : 1;
  for (double power = first; power <= last; power += step)
    axis.ticks.emplace_back(std::pow(10.0, power), fmt::format("1e{:.0f}", power));
  return axis;
}

std::string svg_chart(const std::string& title, const Axis& x, const Axis& y,
                      std::span<const Series> series) {
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", kWidth,
                                kHeight, escaped(title));
  add_axes(svg, x, y);
  for (const Series& one : series) {
    if (one.line) add_line(svg, one, x, y);
    if (one.dots) add_dots(svg, one, x, y);
  }
  add_legend(svg, series);
  return svg + "</svg>\n";
}

}  // namespace pleat::cli

#include "profile_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "program.h"
#include "svg_chart.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using sensitivity::Unit;

constexpr std::string_view kHead = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark">
)html";

constexpr std::string_view kStyle = R"html(<style>
:root { --ink: #1f2430; --paper: #ffffff; --faint: #d9dde3; --one: #2563eb; --two: #6b7280; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --paper: #14171d; --faint: #343a46; --one: #7aa2ff; --two: #a3abb8; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } .wide:focus-visible { outline: 2px solid var(--one); }
svg { width: 100%; min-width: 36rem; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--faint); } .line { fill: none; stroke-width: 1.8; }
.line.one { stroke: var(--one); } .line.two { stroke: var(--two); stroke-dasharray: 6 4; }
.dot.one { fill: var(--one); } .dot.two { fill: var(--two); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--faint); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.units :is(th, td):is(:nth-child(1), :nth-child(2), :nth-child(3), :nth-child(11)) { text-align: left; }
thead th { position: sticky; top: 0; background: var(--paper); }
@media print { body { margin: 0; max-width: none; } .wide { overflow: visible; }
  svg { min-width: 0; break-inside: avoid; } tr { break-inside: avoid; } table { font-size: 10px; } }
</style>
)html";

// Content wider than the window can be scrolled by the keyboard, too.
std::string wide(std::string_view name, const std::string& content) {
  return fmt::format(
      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n{}</div>\n", name,
      content);
}

std::string row_of(const char* cell, const std::vector<std::string>& texts) {
  std::string row = "<tr>";
  for (const std::string& text : texts) row += fmt::format("<{0}>{1}</{0}>", cell, escaped(text));
  return row + "</tr>\n";
}

std::string table_of(const char* style, const std::vector<std::string>& titles,
                     const std::vector<std::vector<std::string>>& rows) {
  std::string table = fmt::format("<table class=\"{}\">", style);
  if (!titles.empty()) table += "<thead>" + row_of("th", titles) + "</thead>";
  table += "<tbody>\n";
  for (const std::vector<std::string>& row : rows) table += row_of("td", row);
  return table + "</tbody></table>\n";
}

std::string name_of(const Unit& unit) { return unit.producer + ", " + form_of(unit); }

// The units as forward makes them.
std::vector<const UnitFigures*> in_forward_order(const ProfileFigures& figures) {
  std::vector<const UnitFigures*> rows;
  for (auto row = figures.units.rbegin(); row != figures.units.rend(); ++row) rows.push_back(&*row);
  return rows;
}

Axis depth_axis(std::size_t units) {
  const std::vector<double> ends{static_cast<double>(std::max<std::size_t>(units, 1))};
  return linear_axis("unit, in the order of forward", ends);
}

std::string bits_chart(const ProfileFigures& figures) {
  constexpr double kExact = 10;  // where "exact" stands
  const std::vector<const UnitFigures*> rows = in_forward_order(figures);
  Series adaptive{"assignment", "one", true, true, {}};
  Series uniform{"uniform", "two", true, false, {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto depth = static_cast<double>(i + 1);
    const auto height = [&](unsigned width) {
      return !rows[i]->lossy ? kUnknown : width == 0 ? kExact : static_cast<double>(width);
    };
    adaptive.points.push_back({depth, height(rows[i]->width),
                               name_of(*rows[i]->unit) + ": " + width_text(rows[i]->width)});
    uniform.points.push_back({depth, height(rows[i]->uniform_width), ""});
  }
  const Axis bits{"bits",
                  0,
                  kExact,
                  false,
                  {{1, "1"}, {2, "2"}, {3, "3"}, {4, "4"}, {6, "6"}, {8, "8"}, {kExact, "exact"}}};
  const std::vector<Series> series{std::move(uniform), std::move(adaptive)};
  return svg_chart("Bits of each unit over the depth of the model", depth_axis(rows.size()), bits,
                   series);
}

std::string axis_name(const ProfileFigures& figures) {
  return fmt::format("noise over the {}'s squared norm",
                     sensitivity::name_of(figures.profile->objective));
}

std::string noise_chart(const ProfileFigures& figures) {
  const std::vector<const UnitFigures*> rows = in_forward_order(figures);
  Series at_four{"sensitivity (at 4 bits)", "two", true, true, {}};
  Series chosen{"noise with the assignment", "one", false, true, {}};
  std::vector<double> values;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const UnitFigures& row = *rows[i];
    const auto depth = static_cast<double>(i + 1);
    values.insert(values.end(), {row.sensitivity, row.noise});
    at_four.points.push_back({depth, row.sensitivity, ""});
    const double shown = row.noise > 0 ? row.noise : kUnknown;  // exact: none
    chosen.points.push_back(
        {depth, shown,
         fmt::format("{}: sensitivity {}, noise {}, {} of all", name_of(*row.unit),
                     noise_text(row.sensitivity), noise_text(row.noise), share_text(row.share))});
  }
  const std::vector<Series> series{std::move(at_four), std::move(chosen)};
  return svg_chart("Noise of each unit over the depth of the model", depth_axis(rows.size()),
                   decades_axis(axis_name(figures), values), series);
}

std::string curve_chart(const ProfileFigures& figures, const std::vector<CurvePoint>& curve) {
  Series adaptive{"assignment", "one", true, true, {}};
  Series uniform{"uniform", "two", true, true, {}};
  std::vector<double> payloads;
  std::vector<double> noises;
  for (const CurvePoint& point : curve) {
    const auto add = [&](Series& series, std::uint64_t bytes, double noise) {
      const double payload = static_cast<double>(bytes) / 1e6;
      payloads.push_back(payload);
      noises.push_back(noise);
      series.points.push_back(
          {payload, noise > 0 ? noise : kUnknown,
           fmt::format("{} bits: {} MB, noise {} ({} of the norm)", bits_text(point.bits),
                       megabytes(bytes), noise_text(noise), norm_text(noise))});
    };
    add(adaptive, point.lossy_bytes, point.noise);
    add(uniform, point.uniform_bytes, point.uniform_noise);
  }
  const std::vector<Series> series{std::move(uniform), std::move(adaptive)};
  return svg_chart("Noise over payload", linear_axis("MB of payloads with noise", payloads),
                   decades_axis(axis_name(figures), noises), series);
}

std::string stability_chart(const ProfileFigures& figures) {
  const Stability& steps = *figures.stability;
  Series units{"", "one", false, true, {}};
  std::vector<double> values;
  for (const UnitFigures& row : figures.units) {
    if (!row.measured) continue;
    double first = kUnknown;
    double last = kUnknown;
    for (const sensitivity::Measurement& measurement : row.unit->measurements) {
      if (measurement.step == steps.first) first = measurement.of(figures.profile->objective);
      if (measurement.step == steps.last) last = measurement.of(figures.profile->objective);
    }
    if (std::isnan(first) || std::isnan(last)) continue;
    values.insert(values.end(), {first, last});
    units.points.push_back(
        {first, last,
         fmt::format("{}: {}, then {}", name_of(*row.unit), noise_text(first), noise_text(last))});
  }
  const Axis x = decades_axis(fmt::format("sensitivity at step {}", steps.first), values);
  const Axis y = decades_axis(fmt::format("sensitivity at step {}", steps.last), values);
  Series equal{"equal", "two", true, false, {{x.low, x.low, ""}, {x.high, x.high, ""}}};
  const std::vector<Series> series{std::move(equal), std::move(units)};
  return svg_chart("Sensitivity at the first measurement and at the last", x, y, series);
}

std::string summary_table(const ProfileFigures& figures) {
  std::vector<std::vector<std::string>> rows{
      {"units", fmt::format("{}; {} may be noisy, {} measured", figures.units.size(), figures.lossy,
                            figures.measured)},
      {"saved for backward", megabytes(figures.bytes) + " MB"},
      {"payload",
       fmt::format("{} MB at {} bits", megabytes(figures.payload_bytes), bits_text(figures.bits))},
      {"measurements", std::to_string(figures.steps.size())}};
  if (figures.measured > 0) {
    rows.push_back({"noise with the assignment",
                    noise_text(figures.noise) + ", " + norm_text(figures.noise) + " of the norm"});
    rows.push_back({"noise with one width", noise_text(figures.uniform_noise) + ", " +
                                                norm_text(figures.uniform_noise) + " of the norm"});
    if (!std::isnan(figures.gap()))
      rows.push_back({"above the least possible noise", share_text(figures.gap())});
  }
  if (figures.stability && !std::isnan(figures.stability->correlation))
    rows.push_back({"rank correlation, first and last measurement",
                    fmt::format("{:.2f}", figures.stability->correlation)});
  return table_of("summary", {}, rows);
}

std::string curve_numbers(const std::vector<CurvePoint>& curve) {
  std::vector<std::vector<std::string>> rows;
  for (const CurvePoint& point : curve)
    rows.push_back(
        {bits_text(point.bits), megabytes(point.lossy_bytes), megabytes(point.all_bytes),
         norm_text(point.noise), norm_text(point.uniform_noise),
         std::isnan(point.uniform_bits) ? "-" : fmt::format("{:.2f}", point.uniform_bits)});
  return table_of("curve",
                  {"bits", "MB with noise", "MB of all units", "noise, of the norm",
                   "with one width", "one width with as much noise"},
                  rows);
}

std::string unit_numbers(const ProfileFigures& figures) {
  std::vector<std::vector<std::string>> rows;
  for (const UnitFigures* row : in_forward_order(figures)) {
    const Unit& unit = *row->unit;
    rows.push_back({unit.producer, unit.reader, form_of(unit), std::to_string(unit.tensors),
                    megabytes(unit.bytes), width_text(row->width),
                    row->lossy ? width_text(row->uniform_width) : "", megabytes(row->payload_bytes),
                    noise_text(row->sensitivity), share_text(row->share), why(*row)});
  }
  return table_of("units",
                  {"producer", "reader", "type and shape", "tensors", "MB", "bits", "uniform",
                   "payload MB", "sensitivity", "share", "why"},
                  rows);
}

}  // namespace

std::string profile_html(const ProfilePage& page) {
  const ProfileFigures& figures = page.figures;
  const std::string file = escaped(page.file);
  std::string html(kHead);
  html += fmt::format("<title>Pleat profile {}</title>\n", file);
  html += kStyle;
  html += fmt::format("</head>\n<body>\n<main>\n<h1>Pleat profile {}</h1>\n", file);
  html += summary_table(figures);
  html += fmt::format("<h2>Bits over depth, at {} bits</h2>\n", bits_text(figures.bits));
  html += wide("bits over depth", bits_chart(figures));
  if (figures.measured > 0) {
    html += "<h2>Noise over depth</h2>\n" + wide("noise over depth", noise_chart(figures));
    html += "<h2>Noise over payload</h2>\n" +
            wide("noise over payload", curve_chart(figures, page.curve));
    html += wide("noise over payload, in numbers", curve_numbers(page.curve));
  } else {
    html += "<p>No unit is measured: noise is unknown, and each unit gets the uniform width.</p>\n";
  }
  if (figures.stability)
    html += "<h2>Stability</h2>\n" + wide("stability", stability_chart(figures));
  html += "<h2>Units, in the order of forward</h2>\n" + wide("units", unit_numbers(figures));
  return html + "</main>\n</body>\n</html>\n";
}

bool write_html(const ProfilePage& page, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::equivalent(page.file, path, ignored)) {
    say("pleat: {}: is the profile itself\n", bridge::printable(path));
    return false;
  }
  const std::string html = profile_html(page);
  std::FILE* const out = std::fopen(path.c_str(), "w");
  bool written = out != nullptr && std::fwrite(html.data(), 1, html.size(), out) == html.size();
  int error = errno;
  if (out != nullptr && std::fclose(out) != 0) {
    error = written ? errno : error;
    written = false;
  }
  if (!written) say("pleat: {}: {}\n", bridge::printable(path), std::strerror(error));
  return written;
}

}  // namespace pleat::cli

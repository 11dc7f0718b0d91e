#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "page/page.h"
#include "program.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using sensitivity::Unit;

// ---- charts, as page/lines.js reads them --------------------------------------------------------

enum Marks : unsigned { kLine = 1, kDots = 2 };

Json series(const char* name, const char* style, unsigned marks) {
  return {{"name", name},
          {"style", style},
          {"line", (marks & kLine) != 0},
          {"dots", (marks & kDots) != 0},
          {"points", Json::array()}};
}

// An unknown height is a gap.
void add_point(Json& series, double x, double y, std::string note = "") {
  series["points"].push_back(Json::array({x, number(y), std::move(note)}));
}

Json linear(std::string title) { return {{"title", std::move(title)}, {"kind", "linear"}}; }
Json decades(std::string title) { return {{"title", std::move(title)}, {"kind", "decades"}}; }

Json chart(const char* title, Json x, Json y, std::vector<Json> series) {
  return {
      {"title", title}, {"x", std::move(x)}, {"y", std::move(y)}, {"series", std::move(series)}};
}

constexpr const char* kDepth = "unit, in the order of forward";

std::string name_of(const Unit& unit) { return unit.producer + ", " + form_of(unit); }

// `units`: in the order of forward, here and below.
Json bits_chart(const std::vector<UnitFigures>& units) {
  constexpr double kExact = 10;  // where "exact" stands
  Json adaptive = series("assignment", "one", kLine | kDots);
  Json uniform = series("uniform", "two", kLine);
  double depth = 0;
  for (const UnitFigures& row : units) {
    const auto height = [&](unsigned width) {
      return !row.lossy ? kUnknown : width == 0 ? kExact : static_cast<double>(width);
    };
    ++depth;
    add_point(adaptive, depth, height(row.width),
              name_of(*row.unit) + "\nbits: " + width_text(row.width));
    add_point(uniform, depth, height(row.uniform_width));
  }
  Json bits{{"title", "bits"}, {"low", 0}, {"high", kExact}, {"ticks", Json::array()}};
  for (const unsigned width : {1u, 2u, 3u, 4u, 6u, 8u})
    bits["ticks"].push_back(Json::array({width, std::to_string(width)}));
  bits["ticks"].push_back(Json::array({kExact, "exact"}));
  return chart("Bits of each unit over the depth of the model", linear(kDepth), std::move(bits),
               {std::move(uniform), std::move(adaptive)});
}

Json noise_axis(const ProfileFigures& figures) {
  return decades(fmt::format("noise over the {}'s squared norm",
                             sensitivity::name_of(figures.profile->objective)));
}

// A noise of zero has no place on an axis of decades.
double positive(double noise) { return noise > 0 ? noise : kUnknown; }

Json noise_chart(const ProfileFigures& figures, const std::vector<UnitFigures>& units) {
  Json at_four = series("sensitivity (at 4 bits)", "two", kLine | kDots);
  Json chosen = series("noise with the assignment", "one", kDots);
  double depth = 0;
  for (const UnitFigures& row : units) {
    add_point(at_four, ++depth, row.sensitivity);
    add_point(
        chosen, depth, positive(row.noise),
        fmt::format("{}\nsensitivity {}, noise {}, {} of all", name_of(*row.unit),
                    noise_text(row.sensitivity), noise_text(row.noise), share_text(row.share)));
  }
  return chart("Noise of each unit over the depth of the model", linear(kDepth),
               noise_axis(figures), {std::move(at_four), std::move(chosen)});
}

Json curve_chart(const ProfileFigures& figures, const std::vector<CurvePoint>& curve) {
  Json adaptive = series("assignment", "one", kLine | kDots);
  Json uniform = series("uniform", "two", kLine | kDots);
  for (const CurvePoint& point : curve) {
    const auto add = [&](Json& to, std::uint64_t bytes, double noise) {
      add_point(to, static_cast<double>(bytes) / 1e6, positive(noise),
                fmt::format("{} bits\n{} MB, noise {} ({} of the norm)", bits_text(point.bits),
                            megabytes(bytes), noise_text(noise), norm_text(noise)));
    };
    add(adaptive, point.lossy_bytes, point.noise);
    add(uniform, point.uniform_bytes, point.uniform_noise);
  }
  return chart("Noise over payload", linear("MB of payloads with noise"), noise_axis(figures),
               {std::move(uniform), std::move(adaptive)});
}

Json stability_chart(const ProfileFigures& figures) {
  const Stability& steps = *figures.stability;
  Json units = series("", "one", kDots);
  for (const UnitFigures& row : figures.units) {
    if (!row.measured) continue;
    double first = kUnknown;
    double last = kUnknown;
    for (const sensitivity::Measurement& measurement : row.unit->measurements) {
      if (measurement.step == steps.first) first = measurement.of(figures.profile->objective);
      if (measurement.step == steps.last) last = measurement.of(figures.profile->objective);
    }
    if (std::isnan(first) || std::isnan(last)) continue;
    add_point(
        units, first, last,
        fmt::format("{}\n{}, then {}", name_of(*row.unit), noise_text(first), noise_text(last)));
  }
  Json equal = series("equal", "two", kLine);
  equal["diagonal"] = true;
  return chart("Sensitivity at the first measurement and at the last",
               decades(fmt::format("sensitivity at step {}", steps.first)),
               decades(fmt::format("sensitivity at step {}", steps.last)),
               {std::move(equal), std::move(units)});
}

// ---- the page -----------------------------------------------------------------------------------

Json facts_of(const ProfileFigures& figures) {
  Json facts = Json::array();
  const auto add = [&](const char* name, std::string words) {
    facts.push_back(Json::array({name, std::move(words)}));
  };
  const auto of_norm = [](double noise) {
    return noise_text(noise) + ", " + norm_text(noise) + " of the norm";
  };
  add("units", fmt::format("{}; {} may be noisy, {} measured", figures.units.size(), figures.lossy,
                           figures.measured));
  add("saved for backward", megabytes(figures.bytes) + " MB");
  add("payload",
      fmt::format("{} MB at {} bits", megabytes(figures.payload_bytes), bits_text(figures.bits)));
  add("measurements", std::to_string(figures.steps.size()));
  if (figures.measured > 0) {
    add("noise with the assignment", of_norm(figures.noise));
    add("noise with one width", of_norm(figures.uniform_noise));
    if (!std::isnan(figures.gap()))
      add("above the least possible noise", share_text(figures.gap()));
  }
  if (figures.stability && !std::isnan(figures.stability->correlation))
    add("rank correlation, first and last measurement",
        fmt::format("{:.2f}", figures.stability->correlation));
  return facts;
}

Json page_data(const std::string& file, const ProfileFigures& figures,
               const std::vector<CurvePoint>& curve) {
  const std::vector<UnitFigures> units(figures.units.rbegin(), figures.units.rend());
  Json sections = Json::array();
  const auto add = [&](std::string title, Json chart, Json table = {}) {
    sections.push_back(
        {{"title", std::move(title)}, {"chart", std::move(chart)}, {"table", std::move(table)}});
  };
  add(fmt::format("Bits over depth, at {} bits", bits_text(figures.bits)), bits_chart(units));
  const bool known = figures.measured > 0;
  if (known) {
    add("Noise over depth", noise_chart(figures, units));
    add("Noise over payload", curve_chart(figures, curve), curve_table(curve, known).page());
  }
  if (figures.stability) add("Stability", stability_chart(figures));
  add("Units, in the order of forward", {}, unit_table(units).page());
  Json notices = Json::array();
  if (!known)
    notices.push_back(
        "No unit is measured: noise is unknown, and each unit gets the uniform width.");
  return {{"file", file},
          {"facts", facts_of(figures)},
          {"notices", std::move(notices)},
          {"sections", std::move(sections)}};
}

}  // namespace

bool write_profile_page(const std::string& file, const ProfileFigures& figures,
                        const std::vector<CurvePoint>& curve, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::equivalent(file, path, ignored)) {
    say("pleat: {}: is the profile itself\n", bridge::printable(path));
    return false;
  }
  const std::string html =
      make_page(PageOf::kProfile, "profile " + file, page_data(file, figures, curve));
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

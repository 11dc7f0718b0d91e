#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profile_figures.h"
#include "profile_html.h"
#include "profile_output.h"
#include "text_table.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using sensitivity::Profile;
using sensitivity::Unit;

// --- show -------------------------------------------------------------------------------------

// More than any width that has noise.
double bits_or_exact(unsigned width) { return width == 0 ? 100.0 : static_cast<double>(width); }

// Sort key of rows, descending.
double sort_value(const UnitFigures& row, std::string_view sort) {
  if (sort == "bytes") return static_cast<double>(row.unit->bytes);
  if (sort == "payload") return static_cast<double>(row.payload_bytes);
  if (sort == "sensitivity") return row.sensitivity;
  if (sort == "share") return row.share;
  return row.lossy ? bits_or_exact(row.width) : kUnknown;
}

void sort_rows(std::vector<UnitFigures>& rows, std::string_view sort) {
  if (sort == "backward") return;
  std::stable_sort(rows.begin(), rows.end(), [&](const UnitFigures& a, const UnitFigures& b) {
    if (sort == "producer") return a.unit->producer < b.unit->producer;
    const double left = sort_value(a, sort);
    const double right = sort_value(b, sort);
    return std::isnan(right) ? !std::isnan(left) : left > right;
  });
}

std::string times(double ratio) {
  return std::isfinite(ratio) ? fmt::format("{:.3g}x as much", ratio) : "the assignment has none";
}

std::string measured_text(const ProfileFigures& figures) {
  const std::size_t count = figures.steps.size();
  if (count == 0) return "none";
  if (count == 1) return fmt::format("1, at step {}", figures.steps.front());
  return fmt::format("{}, at steps {} to {}", count, figures.steps.front(), figures.steps.back());
}

std::string stability_text(const ProfileFigures& figures) {
  if (!figures.stability) return "";
  const Stability& stability = *figures.stability;
  if (std::isnan(stability.correlation)) return "";
  return fmt::format("; rank correlation of steps {} and {}: {:.2f}", stability.first,
                     stability.last, stability.correlation);
}

std::string origin_text(const Profile& profile) {
  std::string text =
      profile.torch.empty() ? "" : "torch " + bridge::printable(profile.torch) + ", ";
  text += fmt::format("{} steps", profile.steps);
  if (profile.passes > 0)
    text += fmt::format(", {} extra passes in {:.3g} s", profile.passes, profile.seconds);
  return text;
}

std::string heading(const ProfileFigures& figures, const std::string& file) {
  std::string text =
      fmt::format("profile {}: {}\n", bridge::printable(file), origin_text(*figures.profile));
  const auto line = [&](const char* name, const std::string& words) {
    text += fmt::format("  {:<13} {}\n", name, words);
  };
  line("units", fmt::format("{} of {} MB; {} of {} MB may be noisy, {} of {} MB measured",
                            figures.units.size(), megabytes(figures.bytes), figures.lossy,
                            megabytes(figures.lossy_bytes), figures.measured,
                            megabytes(figures.measured_bytes)));
  if (figures.lossy > 0)
    line("payload", fmt::format("{} MB with noise at {} bits ({:.2f} in the mean), uniform {} MB; "
                                "{} MB with all units{}",
                                megabytes(figures.lossy_payload_bytes), bits_text(figures.bits),
                                figures.mean_bits, megabytes(figures.uniform_bytes),
                                megabytes(figures.payload_bytes),
                                figures.fits ? "" : "; the least widths take more than was asked"));
  line("measurements", measured_text(figures) + stability_text(figures));
  if (figures.measured == 0) {
    line("noise", "unknown: no unit is measured, so each gets the uniform width");
    return text;
  }
  line("noise",
       fmt::format("{} of the {}'s squared norm ({} of its norm)", noise_text(figures.noise),
                   sensitivity::name_of(figures.profile->objective), norm_text(figures.noise)));
  line("uniform",
       fmt::format("{} ({}): {}", noise_text(figures.uniform_noise),
                   norm_text(figures.uniform_noise), times(figures.uniform_noise / figures.noise)));
  if (!std::isnan(figures.gap()))
    line("bound", fmt::format("{} above the least noise that so many bytes can have",
                              share_text(figures.gap())));
  return text;
}

std::string table_of(const std::vector<UnitFigures>& rows) {
  TextTable table({{"producer", Align::kLeft, true},
                   {"reader", Align::kLeft, true},
                   {"type and shape", Align::kLeft, true, 3},
                   {"tensors", Align::kRight, false, 2},
                   {"MB"},
                   {"bits"},
                   {"uniform", Align::kRight, false, 1},
                   {"payload MB", Align::kRight, false, 4},
                   {"sensitivity"},
                   {"share"},
                   {"why", Align::kLeft, true}});
  for (const UnitFigures& row : rows) {
    const Unit& unit = *row.unit;
    table.add({bridge::printable(unit.producer), bridge::printable(unit.reader),
               bridge::printable(form_of(unit)),
               unit.tensors > 1 ? std::to_string(unit.tensors) : "", megabytes(unit.bytes),
               width_text(row.width), row.lossy ? width_text(row.uniform_width) : "",
               megabytes(row.payload_bytes), noise_text(row.sensitivity), share_text(row.share),
               bridge::printable(why(row))});
  }
  return table.empty() ? "" : '\n' + table.text(terminal_columns());
}

Json json_of(const ProfileFigures& figures, const std::vector<UnitFigures>& rows,
             const std::string& file) {
  Json json;
  json["file"] = file;
  json.update(summary(figures));
  json["units"] = Json::array();
  for (const UnitFigures& row : rows) {
    Json unit = identity(*row.unit);
    unit["lossy"] = row.lossy;
    unit["measured"] = row.measured;
    unit["width"] = row.width;
    unit["uniform_width"] = row.uniform_width;
    unit["payload_bytes"] = row.payload_bytes;
    unit["uniform_payload_bytes"] = row.uniform_bytes;
    unit["sensitivity"] = number(row.sensitivity);
    unit["noise"] = number(row.noise);
    unit["share"] = number(row.share);
    unit["why"] = why(row);
    json["units"].push_back(std::move(unit));
  }
  return json;
}

// --- curve ------------------------------------------------------------------------------------

std::string uniform_bits_text(const CurvePoint& point) {
  return std::isnan(point.uniform_bits) ? "-" : fmt::format("{:.2f}", point.uniform_bits);
}

std::string curve_table(const std::vector<CurvePoint>& curve, bool known) {
  TextTable table({{"bits"},
                   {"payload MB"},
                   {"all MB"},
                   {"ratio"},
                   {"noise"},
                   {"of norm"},
                   {"uniform"},
                   {"of norm"},
                   {"as uniform"}});
  for (const CurvePoint& point : curve) {
    const double noise = known ? point.noise : kUnknown;
    const double uniform = known ? point.uniform_noise : kUnknown;
    table.add({bits_text(point.bits), megabytes(point.measured_bytes), megabytes(point.all_bytes),
               std::isnan(point.ratio) ? "-" : fmt::format("{:.2f}x", point.ratio),
               noise_text(noise), norm_text(noise), noise_text(uniform), norm_text(uniform),
               known ? uniform_bits_text(point) : "-"});
  }
  return '\n' + table.text(terminal_columns());
}

constexpr std::string_view kCurveLegend = R"text(
  payload     of the units that are measured; all: of every unit; ratio: uncompressed over all
  noise       predicted error of the gradient, squared, over its squared norm; of norm: the root.
              Of the update where the file's objective is that of Adam and its like
  as uniform  the one width for all that has as much noise; -: none of 1 to 8 has
)text";

Json json_of(const std::vector<CurvePoint>& curve, const ProfileFigures& figures,
             const std::string& file) {
  const bool known = figures.measured > 0;
  Json json;
  json["file"] = file;
  json["bits"] = figures.bits;
  json["bytes"] = figures.bytes;
  json["measured_bytes"] = figures.measured_bytes;
  json["curve"] = Json::array();
  for (const CurvePoint& point : curve)
    json["curve"].push_back({{"bits", point.bits},
                             {"measured_payload_bytes", point.measured_bytes},
                             {"lossy_payload_bytes", point.lossy_bytes},
                             {"payload_bytes", point.all_bytes},
                             {"ratio", number(point.ratio)},
                             {"noise", number(known ? point.noise : kUnknown)},
                             {"uniform_lossy_payload_bytes", point.uniform_bytes},
                             {"uniform_noise", number(known ? point.uniform_noise : kUnknown)},
                             {"uniform_bits", number(known ? point.uniform_bits : kUnknown)}});
  return json;
}

// False: the reason is on stderr.
bool write_page(const ProfileRequest& request, const ProfileFigures& figures,
                const std::vector<CurvePoint>& curve) {
  return request.html.empty() || write_html({request.file, figures, curve}, request.html);
}

}  // namespace

int show_profile(const ProfileRequest& request) {
  const std::optional<Profile> profile = load_profile(request.file);
  if (!profile) return kProfileTrouble;
  const ProfileFigures figures = figures_of(*profile, request.bits.value_or(bits_of(*profile)));
  std::vector<UnitFigures> rows = figures.units;
  sort_rows(rows, request.sort);
  const bool printed = request.as_json ? put_json(json_of(figures, rows, request.file))
                                       : put(heading(figures, request.file) + table_of(rows));
  const bool drawn = request.html.empty() || write_page(request, figures, curve_of(*profile));
  return printed && drawn ? 0 : kProfileTrouble;
}

int show_profile_curve(const ProfileRequest& request) {
  const std::optional<Profile> profile = load_profile(request.file);
  if (!profile) return kProfileTrouble;
  const ProfileFigures figures = figures_of(*profile, bits_of(*profile));
  const std::vector<CurvePoint> curve = curve_of(*profile);
  const bool known = figures.measured > 0;
  const std::string note = known ? "" : "  noise is unknown: no unit is measured\n";
  const bool printed = request.as_json
                           ? put_json(json_of(curve, figures, request.file))
                           : put(fmt::format("profile {}: {}\n", bridge::printable(request.file),
                                             origin_text(*profile)) +
                                 note + curve_table(curve, known) + std::string(kCurveLegend));
  return printed && write_page(request, figures, curve) ? 0 : kProfileTrouble;
}

}  // namespace pleat::cli

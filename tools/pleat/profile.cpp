#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profile_figures.h"
#include "profile_html.h"
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

void put_heading(Section& to, const ProfileFigures& figures) {
  to.line("units", fmt::format("{} of {} MB; {} of {} MB may be noisy, {} of {} MB measured",
                               figures.units.size(), megabytes(figures.bytes), figures.lossy,
                               megabytes(figures.lossy_bytes), figures.measured,
                               megabytes(figures.measured_bytes)));
  if (figures.lossy > 0)
    to.line("payload",
            fmt::format("{} MB with noise at {} bits ({:.2f} in the mean), uniform {} MB; "
                        "{} MB with all units{}",
                        megabytes(figures.lossy_payload_bytes), bits_text(figures.bits),
                        figures.mean_bits, megabytes(figures.uniform_bytes),
                        megabytes(figures.payload_bytes),
                        figures.fits ? "" : "; the least widths take more than was asked"));
  to.line("measurements", measured_text(figures) + stability_text(figures));
  if (figures.measured == 0) {
    to.line("noise", "unknown: no unit is measured, so each gets the uniform width");
    return;
  }
  to.line("noise",
          fmt::format("{} of the {}'s squared norm ({} of its norm)", noise_text(figures.noise),
                      sensitivity::name_of(figures.profile->objective), norm_text(figures.noise)));
  to.line("uniform", fmt::format("{} ({}): {}", noise_text(figures.uniform_noise),
                                 norm_text(figures.uniform_noise),
                                 times(figures.uniform_noise / figures.noise)));
  if (!std::isnan(figures.gap()))
    to.line("bound", fmt::format("{} above the least noise that so many bytes can have",
                                 share_text(figures.gap())));
}

std::string file_line(const std::string& file, const Profile& profile) {
  return fmt::format("profile {}: {}\n", bridge::printable(file), origin_text(profile));
}

Cell word(const std::string& text) { return {text, bridge::printable(text)}; }

Table unit_table(const std::vector<UnitFigures>& rows) {
  Table table({name_column("producer", "producer"), name_column("reader", "reader"),
               name_column("type and shape", "", 3), figure_column("tensors", "tensors", 2),
               figure_column("MB", "bytes"), figure_column("bits", "width"),
               figure_column("uniform", "uniform_width", 1),
               figure_column("payload MB", "payload_bytes", 4),
               figure_column("sensitivity", "sensitivity"), figure_column("share", "share"),
               name_column("why", "why"), json_columns()});
  for (const UnitFigures& row : rows) {
    const Unit& unit = *row.unit;
    Json more = identity(unit);
    more.update({{"lossy", row.lossy},
                 {"measured", row.measured},
                 {"uniform_payload_bytes", row.uniform_bytes},
                 {"noise", number(row.noise)}});
    table.add({word(unit.producer),
               word(unit.reader),
               bridge::printable(form_of(unit)),
               {unit.tensors, unit.tensors > 1 ? std::to_string(unit.tensors) : ""},
               {unit.bytes, megabytes(unit.bytes)},
               {row.width, width_text(row.width)},
               {row.uniform_width, row.lossy ? width_text(row.uniform_width) : ""},
               {row.payload_bytes, megabytes(row.payload_bytes)},
               {number(row.sensitivity), noise_text(row.sensitivity)},
               {number(row.share), share_text(row.share)},
               word(why(row)),
               {std::move(more), ""}});
  }
  return table;
}

// --- curve ------------------------------------------------------------------------------------

Table curve_table(const std::vector<CurvePoint>& curve, bool known) {
  Table table({figure_column("bits", "bits"), figure_column("payload MB", "measured_payload_bytes"),
               figure_column("all MB", "payload_bytes"), figure_column("ratio", "ratio"),
               figure_column("noise", "noise"), figure_column("of norm"),
               figure_column("uniform", "uniform_noise"), figure_column("of norm"),
               figure_column("as uniform", "uniform_bits"), json_columns()});
  for (const CurvePoint& point : curve) {
    const double noise = known ? point.noise : kUnknown;
    const double uniform = known ? point.uniform_noise : kUnknown;
    const double as_uniform = known ? point.uniform_bits : kUnknown;
    table.add(
        {{point.bits, bits_text(point.bits)},
         {point.measured_bytes, megabytes(point.measured_bytes)},
         {point.all_bytes, megabytes(point.all_bytes)},
         {number(point.ratio), std::isnan(point.ratio) ? "-" : fmt::format("{:.2f}x", point.ratio)},
         {number(noise), noise_text(noise)},
         norm_text(noise),
         {number(uniform), noise_text(uniform)},
         norm_text(uniform),
         {number(as_uniform), std::isnan(as_uniform) ? "-" : fmt::format("{:.2f}", as_uniform)},
         {{{"lossy_payload_bytes", point.lossy_bytes},
           {"uniform_lossy_payload_bytes", point.uniform_bytes}},
          ""}});
  }
  return table;
}

constexpr std::string_view kCurveLegend = R"text(
  payload     of the units that are measured; all: of every unit; ratio: uncompressed over all
  noise       predicted error of the gradient, squared, over its squared norm; of norm: the root.
              Of the update where the file's objective is that of Adam and its like
  as uniform  the one width for all that has as much noise; -: none of 1 to 8 has
)text";

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
  Section to;
  to.value("file", request.file);
  to.values(summary(figures));
  to.text(file_line(request.file, *profile));
  put_heading(to, figures);
  to.table("units", "\n", unit_table(rows));
  const bool printed = put(to, request.as_json);
  const bool drawn = request.html.empty() || write_page(request, figures, curve_of(*profile));
  return printed && drawn ? 0 : kProfileTrouble;
}

int show_profile_curve(const ProfileRequest& request) {
  const std::optional<Profile> profile = load_profile(request.file);
  if (!profile) return kProfileTrouble;
  const ProfileFigures figures = figures_of(*profile, bits_of(*profile));
  const std::vector<CurvePoint> curve = curve_of(*profile);
  const bool known = figures.measured > 0;
  Section to;
  to.value("file", request.file);
  to.value("bits", figures.bits);
  to.value("bytes", figures.bytes);
  to.value("measured_bytes", figures.measured_bytes);
  to.text(file_line(request.file, *profile));
  if (!known) to.text("  noise is unknown: no unit is measured\n");
  to.table("curve", "\n", curve_table(curve, known));
  to.text(kCurveLegend);
  const bool printed = put(to, request.as_json);
  return printed && write_page(request, figures, curve) ? 0 : kProfileTrouble;
}

}  // namespace pleat::cli

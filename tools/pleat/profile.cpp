#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profile_figures.h"
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

// --- curve ------------------------------------------------------------------------------------

constexpr std::string_view kCurveLegend = R"text(
  payload     of the units that are measured; all: of every unit; ratio: uncompressed over all
  noise       predicted error of the gradient, squared, over its squared norm; of norm: the root.
              Of the update where the file's objective is that of Adam and its like
  as uniform  the one width for all that has as much noise; -: none of 1 to 8 has
)text";

// False: the reason is on stderr.
bool write_page(const ProfileRequest& request, const ProfileFigures& figures) {
  return request.html.empty() ||
         write_profile_page(request.file, figures, curve_of(*figures.profile), request.html);
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
  to.table("units", "\n", unit_table(rows, request.why));
  const bool printed = put(to, request.as_json);
  const bool drawn = write_page(request, figures);
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
  return printed && write_page(request, figures) ? 0 : kProfileTrouble;
}

}  // namespace pleat::cli

#include "profile_figures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "program.h"
#include "sensitivity/assign.h"
#include "sensitivity/bits.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using sensitivity::Assignment;
using sensitivity::Profile;
using sensitivity::Unit;
using sensitivity::WidthCost;

// `choice`: null if the assignment has none for the unit.
UnitFigures unit_figures(const Unit& unit, const Assignment::Choice* choice, double bits,
                         sensitivity::Objective objective) {
  UnitFigures row;
  row.unit = &unit;
  row.lossy = unit.may_be_noisy();
  row.measured = row.lossy && unit.is_measured();
  row.width = row.uniform_width = unit.width;
  row.payload_bytes = row.uniform_bytes = unit.payload_bytes;
  if (!row.lossy) return row;
  const WidthCost& uniform = unit.uniform_cost(sensitivity::uniform_width(bits));
  const WidthCost& chosen = choice == nullptr ? uniform : unit.cost_at(choice->width);
  row.width = chosen.width;
  row.payload_bytes = chosen.bytes;
  row.uniform_width = uniform.width;
  row.uniform_bytes = uniform.bytes;
  if (row.measured) {
    row.sensitivity = unit.noise(objective);
    row.noise = row.sensitivity * chosen.error;
  }
  return row;
}

void add(ProfileFigures& figures, const UnitFigures& row) {
  const Unit& unit = *row.unit;
  figures.bytes += unit.bytes;
  figures.payload_bytes += row.payload_bytes;
  figures.distrusted += unit.distrusted ? 1 : 0;
  if (row.lossy) {
    ++figures.lossy;
    figures.lossy_bytes += unit.bytes;
    figures.lossy_payload_bytes += row.payload_bytes;
  }
  if (row.measured) {
    ++figures.measured;
    figures.measured_bytes += unit.bytes;
    figures.measured_payload_bytes += row.payload_bytes;
  }
  figures.units.push_back(row);
}

// A step that measured a few units only, because a run was cut short, compares nothing.
void add_steps(ProfileFigures& figures) {
  std::map<std::uint64_t, std::size_t> units_of;
  for (const UnitFigures& row : figures.units)
    if (row.measured)
      for (const sensitivity::Measurement& measurement : row.unit->measurements)
        ++units_of[measurement.step];
  std::vector<std::uint64_t> comparable;
  for (const auto& [step, units] : units_of) {
    figures.steps.push_back(step);
    if (2 * units >= figures.measured) comparable.push_back(step);
  }
  if (comparable.size() < 2) return;
  const std::uint64_t first = comparable.front();
  const std::uint64_t last = comparable.back();
  figures.stability =
      Stability{first, last, sensitivity::rank_correlation(*figures.profile, first, last)};
}

// Between two widths of the codec the noise of the uniform is linear.
double uniform_bits_with(const Profile& profile, double noise) {
  double lower = sensitivity::kWidths.front();
  double before = sensitivity::uniform_cost(profile, lower).noise;
  for (const double upper : sensitivity::kWidths) {
    const double after = sensitivity::uniform_cost(profile, upper).noise;
    if (noise <= before && noise >= after && before > after)
      return lower + (upper - lower) * (before - noise) / (before - after);
    lower = upper;
    before = after;
  }
  return kUnknown;
}

}  // namespace

double ProfileFigures::gap() const noexcept {
  if (measured == 0) return kUnknown;
  if (least_noise > 0) return std::max(noise / least_noise - 1, 0.0);
  return noise > 0 ? kUnknown : 0.0;
}

ProfileFigures figures_of(const Profile& profile, double bits) {
  const Assignment assignment = sensitivity::assign(profile, bits);
  const sensitivity::UniformCost uniform = sensitivity::uniform_cost(profile, bits);
  ProfileFigures figures;
  figures.profile = &profile;
  figures.bits = bits;
  std::size_t next = 0;  // both are in the profile's order
  for (const Unit& unit : profile.units) {
    const bool chosen =
        next < assignment.choices.size() && assignment.choices[next].key == unit.key;
    add(figures,
        unit_figures(unit, chosen ? &assignment.choices[next] : nullptr, bits, profile.objective));
    next += chosen ? 1 : 0;
  }
  figures.noise = assignment.noise;
  figures.least_noise = assignment.least_noise;
  figures.fits = assignment.fits;
  figures.uniform_noise = uniform.noise;
  figures.uniform_bytes = uniform.bytes;
  for (UnitFigures& row : figures.units)
    if (row.measured) row.share = figures.noise > 0 ? row.noise / figures.noise : 0.0;
  if (figures.lossy > 0)
    figures.mean_bits = sensitivity::equivalent_bits(profile, figures.lossy_payload_bytes);
  add_steps(figures);
  return figures;
}

double bits_of(const Profile& profile) noexcept {
  return std::isnan(profile.bits) ? 4 : std::clamp(profile.bits, 1.0, 8.0);
}

std::vector<CurvePoint> curve_of(const Profile& profile) {
  std::vector<CurvePoint> curve;
  for (double bits = 1.5; bits <= 8; bits += 0.5) {
    const ProfileFigures figures = figures_of(profile, bits);
    CurvePoint point;
    point.bits = bits;
    point.measured_bytes = figures.measured_payload_bytes;
    point.lossy_bytes = figures.lossy_payload_bytes;
    point.all_bytes = figures.payload_bytes;
    point.ratio = figures.payload_bytes > 0 ? static_cast<double>(figures.bytes) /
                                                  static_cast<double>(figures.payload_bytes)
                                            : kUnknown;
    point.noise = figures.noise;
    point.uniform_bytes = figures.uniform_bytes;
    point.uniform_noise = figures.uniform_noise;
    point.uniform_bits = uniform_bits_with(profile, figures.noise);
    curve.push_back(point);
  }
  return curve;
}

std::optional<sensitivity::Profile> load_profile(const std::string& path) {
  sensitivity::ReadResult result = sensitivity::read_profile(path);
  if (result.status == sensitivity::ReadStatus::kOk) return std::move(result.profile);
  say("pleat: {}: {}\n", bridge::printable(path), result.message);
  return std::nullopt;
}

// ---- JSON ----

Json identity(const sensitivity::Unit& unit) {
  return {{"key", hexadecimal(unit.key)}, {"producer", unit.producer},
          {"reader", unit.reader},        {"type", unit.type},
          {"shape", unit.shape},          {"tensors", unit.tensors},
          {"bytes", unit.bytes}};
}

Json summary(const ProfileFigures& figures) {
  const sensitivity::Profile& profile = *figures.profile;
  const bool known = figures.measured > 0;
  Json json;
  json["torch"] = profile.torch.empty() ? Json() : Json(profile.torch);
  json["steps"] = profile.steps;
  json["passes"] = profile.passes;
  json["seconds"] = number(profile.seconds);
  json["bits"] = figures.bits;
  json["mean_bits"] = number(figures.mean_bits);
  json["units_lossy"] = figures.lossy;
  json["units_measured"] = figures.measured;
  json["units_distrusted"] = figures.distrusted;
  json["bytes"] = figures.bytes;
  json["lossy_bytes"] = figures.lossy_bytes;
  json["measured_bytes"] = figures.measured_bytes;
  json["payload_bytes"] = figures.payload_bytes;
  json["lossy_payload_bytes"] = figures.lossy_payload_bytes;
  json["uniform_lossy_payload_bytes"] = figures.uniform_bytes;
  json["fits"] = figures.fits;
  json["objective"] = sensitivity::name_of(figures.profile->objective);
  json["noise"] = number(known ? figures.noise : kUnknown);
  json["uniform_noise"] = number(known ? figures.uniform_noise : kUnknown);
  json["least_noise"] = number(known ? figures.least_noise : kUnknown);
  json["gap"] = number(figures.gap());
  json["measured_steps"] = figures.steps;
  json["stability"] = nullptr;
  if (figures.stability)
    json["stability"] = {{"first_step", figures.stability->first},
                         {"last_step", figures.stability->last},
                         {"rank_correlation", number(figures.stability->correlation)}};
  return json;
}

// ---- words ----

std::string hexadecimal(std::uint64_t key) { return fmt::format("{:#018x}", key); }

std::string width_text(unsigned width) { return width == 0 ? "exact" : std::to_string(width); }

std::string bits_text(double bits) { return fmt::format("{:.4g}", bits); }

std::string form_of(const Unit& unit) {
  return fmt::format("{} [{}]", unit.type, fmt::join(unit.shape, ","));
}

std::string megabytes(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes) / 1e6;
  return value < 0.1 && bytes > 0 ? fmt::format("{:.4f}", value) : fmt::format("{:.2f}", value);
}

std::string noise_text(double noise) {
  return std::isnan(noise) ? "-" : noise == 0 ? "0" : fmt::format("{:.2e}", noise);
}

std::string norm_text(double noise) {
  return std::isnan(noise) ? "-" : fmt::format("{:.3g} %", 100 * std::sqrt(noise));
}

std::string share_text(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.1f} %", 100 * share);
}

std::string why(const UnitFigures& figures) {
  const Unit& unit = *figures.unit;
  if (!unit.fixed.empty()) return unit.fixed;
  std::vector<std::string> reasons;
  if (unit.floor > 1)
    reasons.push_back(unit.floor_reason.empty()
                          ? fmt::format("at least {}", unit.floor)
                          : fmt::format("at least {}: {}", unit.floor, unit.floor_reason));
  if (unit.distrusted)
    reasons.emplace_back("distrusted");
  else if (!figures.lossy)
    reasons.emplace_back("no costs");
  else if (!figures.measured)
    reasons.emplace_back("new");
  return fmt::format("{}", fmt::join(reasons, "; "));
}

}  // namespace pleat::cli

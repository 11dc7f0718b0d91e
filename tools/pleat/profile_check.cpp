#include <fmt/format.h>

#include <cmath>

#include "profile.h"
#include "profile_figures.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using sensitivity::Profile;

enum class Grade { kGood, kWarning, kUseless };

struct Finding {
  Grade grade;
  const char* name;
  std::string words;
  const char* verdict;  // in two words; of a warning or worse
};

// ---- what counts as good ----

constexpr double kMostMeasured = 0.9;        // share of bytes
constexpr std::size_t kFewMeasurements = 2;  // fewer show no change over training
constexpr double kStable = 0.8;              // rank correlation
constexpr double kLargeGap = 0.25;

Grade worse_if(bool condition) { return condition ? Grade::kWarning : Grade::kGood; }

Finding of_coverage(const ProfileFigures& figures) {
  if (figures.lossy == 0)
    return {Grade::kUseless, "measured", "no unit may be noisy: there is nothing to choose",
            "nothing to choose"};
  const double share =
      figures.lossy_bytes == 0
          ? static_cast<double>(figures.measured) / static_cast<double>(figures.lossy)
          : static_cast<double>(figures.measured_bytes) / static_cast<double>(figures.lossy_bytes);
  const std::string words = fmt::format("{} of {} units that may be noisy, {} of their bytes",
                                        figures.measured, figures.lossy, share_text(share));
  if (figures.measured == 0) return {Grade::kUseless, "measured", words, "nothing measured"};
  return {worse_if(share < kMostMeasured), "measured", words, "partly measured"};
}

Finding of_measurements(const ProfileFigures& figures) {
  const std::size_t count = figures.steps.size();
  std::string words = fmt::format("{}", count);
  if (count > 0)
    words += count == 1
                 ? fmt::format(", at step {}", figures.steps.front())
                 : fmt::format(", at steps {} to {}", figures.steps.front(), figures.steps.back());
  return {worse_if(count < kFewMeasurements), "measurements", words, "few measurements"};
}

Finding of_stability(const ProfileFigures& figures) {
  if (!figures.stability || std::isnan(figures.stability->correlation))
    return {Grade::kGood, "stability", "unknown: no two measurements can be compared", ""};
  const Stability& stability = *figures.stability;
  return {worse_if(stability.correlation < kStable), "stability",
          fmt::format("rank correlation {:.2f} of steps {} and {}", stability.correlation,
                      stability.first, stability.last),
          "unstable"};
}

Finding of_trust(const ProfileFigures& figures) {
  const std::size_t count = figures.distrusted;
  return {worse_if(count > 0), "distrusted",
          count == 0 ? "none"
                     : fmt::format("{} unit{}: a check found more noise than was predicted", count,
                                   count == 1 ? "" : "s"),
          "distrusted units"};
}

Finding of_gap(const ProfileFigures& figures) {
  if (!figures.fits)
    return {
        Grade::kWarning, "widths",
        fmt::format("the least widths take more bytes than {} bits have", bits_text(figures.bits)),
        "over budget"};
  const double gap = figures.gap();
  if (std::isnan(gap)) return {Grade::kGood, "widths", "no bound is known", ""};
  return {worse_if(gap > kLargeGap), "widths",
          fmt::format("noise {} above the least that so many bytes can have", share_text(gap)),
          "coarse widths"};
}

std::vector<Finding> findings_of(const ProfileFigures& figures) {
  std::vector<Finding> findings{of_coverage(figures)};
  if (findings.front().grade == Grade::kUseless) return findings;
  findings.push_back(of_measurements(figures));
  findings.push_back(of_stability(figures));
  findings.push_back(of_trust(figures));
  findings.push_back(of_gap(figures));
  return findings;
}

// ---- output ----

constexpr const char* name_of(Grade grade) {
  switch (grade) {
    case Grade::kGood:
      return "ok";
    case Grade::kWarning:
      return "note";
    case Grade::kUseless:
      return "broken";
  }
  return "";
}

Grade worst_of(const std::vector<Finding>& findings) {
  Grade worst = Grade::kGood;
  for (const Finding& finding : findings) worst = std::max(worst, finding.grade);
  return worst;
}

std::string verdict_of(const std::vector<Finding>& findings) {
  std::string verdict;
  for (const Finding& finding : findings)
    if (finding.grade != Grade::kGood)
      verdict += (verdict.empty() ? "" : ", ") + std::string(finding.verdict);
  return verdict.empty() ? "good" : verdict;
}

std::string ending_of(Grade worst) {
  switch (worst) {
    case Grade::kGood:
      return "";
    case Grade::kWarning:
      return "; of use all the same";
    case Grade::kUseless:
      return "; of no use";
  }
  return "";
}

Section answer_of(const std::vector<Finding>& findings, const ProfileFigures& figures, int code,
                  const std::string& file) {
  Section to;
  to.value("file", file);
  to.value("code", code);
  to.value("verdict", verdict_of(findings));
  to.value("checks", Json::array());
  for (const Finding& finding : findings) {
    Section check;
    check.text(
        fmt::format("  {:<7} {:<15} {}\n", name_of(finding.grade), finding.name, finding.words));
    check.values(
        {{"status", name_of(finding.grade)}, {"name", finding.name}, {"finding", finding.words}});
    to.element("checks", std::move(check));
  }
  to.values(summary(figures));
  to.text(fmt::format("\n{}: {}{}\n", bridge::printable(file), verdict_of(findings),
                      ending_of(worst_of(findings))));
  return to;
}

}  // namespace

int check_profile(const ProfileRequest& request) {
  const std::optional<Profile> profile = load_profile(request.file);
  if (!profile) return kProfileTrouble;
  const ProfileFigures figures = figures_of(*profile, bits_of(*profile));
  const std::vector<Finding> findings = findings_of(figures);
  const Grade worst = worst_of(findings);
  const int code = worst == Grade::kGood      ? 0
                   : worst == Grade::kWarning ? kProfileWarning
                                              : kProfileTrouble;
  return put(answer_of(findings, figures, code, request.file), request.as_json) ? code
                                                                                : kProfileTrouble;
}

}  // namespace pleat::cli

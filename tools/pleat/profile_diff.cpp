#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "profile.h"
#include "profile_figures.h"
#include "program.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using sensitivity::Profile;
using sensitivity::Unit;

struct Pair {
  const UnitFigures* a = nullptr;
  const UnitFigures* b = nullptr;
  [[nodiscard]] double sensitivity_ratio() const { return b->sensitivity / a->sensitivity; }
};

struct Difference {
  std::vector<Pair> common;  // in the order of A
  std::vector<const UnitFigures*> only_a;
  std::vector<const UnitFigures*> only_b;
  double correlation = kUnknown;

  [[nodiscard]] bool same_model() const {
    return 2 * common.size() >= common.size() + std::min(only_a.size(), only_b.size());
  }
};

// Of the sensitivities of units that both have measured.
double correlation_of(const std::vector<Pair>& common) {
  Profile both;
  for (const Pair& pair : common) {
    if (!pair.a->measured || !pair.b->measured) continue;
    Unit& unit = both.units.emplace_back();
    unit.measurements = {{0, pair.a->sensitivity}, {1, pair.b->sensitivity}};
  }
  return sensitivity::rank_correlation(both, 0, 1);
}

Difference difference_of(const ProfileFigures& a, const ProfileFigures& b) {
  std::map<std::uint64_t, const UnitFigures*> in_b;
  for (const UnitFigures& row : b.units) in_b.emplace(row.unit->key, &row);
  Difference difference;
  for (const UnitFigures& row : a.units) {
    const auto found = in_b.find(row.unit->key);
    if (found == in_b.end()) {
      difference.only_a.push_back(&row);
      continue;
    }
    difference.common.push_back({&row, found->second});
    in_b.erase(found);
  }
  for (const UnitFigures& row : b.units)
    if (in_b.contains(row.unit->key)) difference.only_b.push_back(&row);
  difference.correlation = correlation_of(difference.common);
  return difference;
}

// How far the two are apart.
double change(const Pair& pair, std::string_view sort) {
  const auto apart = [](std::uint64_t x, std::uint64_t y) {
    return std::abs(static_cast<double>(x) - static_cast<double>(y));
  };
  constexpr unsigned kExact = 16;  // bits, say
  const auto bits = [](const UnitFigures& row) { return row.width == 0 ? kExact : row.width; };
  if (sort == "bytes") return apart(pair.a->unit->bytes, pair.b->unit->bytes);
  if (sort == "payload") return apart(pair.a->payload_bytes, pair.b->payload_bytes);
  if (sort == "sensitivity") return std::abs(std::log(pair.sensitivity_ratio()));
  if (sort == "share") return std::abs(pair.a->share - pair.b->share);
  return apart(bits(*pair.a), bits(*pair.b));
}

void sort_pairs(std::vector<Pair>& pairs, std::string_view sort) {
  if (sort == "backward") return;
  std::stable_sort(pairs.begin(), pairs.end(), [&](const Pair& x, const Pair& y) {
    if (sort == "producer") return x.a->unit->producer < y.a->unit->producer;
    const double left = change(x, sort);
    const double right = change(y, sort);
    return std::isnan(right) ? !std::isnan(left) : left > right;
  });
}

// More than the change by one more measurement.
bool is_changed(const Pair& pair) {
  constexpr double kMuch = 2;
  const double ratio = pair.sensitivity_ratio();
  return pair.a->width != pair.b->width || pair.a->unit->bytes != pair.b->unit->bytes ||
         pair.a->measured != pair.b->measured || ratio > kMuch || ratio < 1 / kMuch;
}

template <typename T>
std::string from_to(const T& from, const T& to) {
  return from == to ? from : from + " -> " + to;
}

std::string ratio_text(const Pair& pair) {
  const double ratio = pair.sensitivity_ratio();
  if (std::isfinite(ratio)) return fmt::format("{:.3g}x", ratio);
  if (pair.a->measured == pair.b->measured) return "-";
  return pair.b->measured ? "only in B" : "only in A";
}

std::vector<Column> unit_columns() {
  return {name_column("producer"), name_column("reader"), name_column("type and shape"),
          figure_column("MB"), figure_column("bits")};
}

// Text leaves out units that are much the same.
void put_changes(Section& to, const std::vector<Pair>& pairs) {
  std::vector<Column> columns = unit_columns();
  columns.push_back(figure_column("sensitivity B/A"));
  Table table(std::move(columns));
  Json units = Json::array();
  std::size_t same = 0;
  for (const Pair& pair : pairs) {
    const Unit& a = *pair.a->unit;
    const Unit& b = *pair.b->unit;
    Json unit = identity(b);
    unit["bytes"] = {{"a", a.bytes}, {"b", b.bytes}};
    unit["width"] = {{"a", pair.a->width}, {"b", pair.b->width}};
    unit["payload_bytes"] = {{"a", pair.a->payload_bytes}, {"b", pair.b->payload_bytes}};
    unit["sensitivity"] = {{"a", number(pair.a->sensitivity)}, {"b", number(pair.b->sensitivity)}};
    unit["sensitivity_ratio"] = number(pair.sensitivity_ratio());
    units.push_back(std::move(unit));
    if (!is_changed(pair)) {
      ++same;
      continue;
    }
    table.add({bridge::printable(b.producer), bridge::printable(b.reader),
               bridge::printable(form_of(b)), from_to(megabytes(a.bytes), megabytes(b.bytes)),
               from_to(width_text(pair.a->width), width_text(pair.b->width)), ratio_text(pair)});
  }
  to.value("units", std::move(units));
  to.table("", "\n", table);
  if (same > 0)
    to.text(
        fmt::format("\n  {}{} of the same width and size, and a sensitivity within a factor of 2\n",
                    same, table.empty() ? " units" : " more"));
}

void put_only(Section& to, const char* key, char name,
              const std::vector<const UnitFigures*>& rows) {
  std::vector<Column> columns = unit_columns();
  columns.push_back(json_columns());
  Table table(std::move(columns));
  for (const UnitFigures* row : rows)
    table.add({bridge::printable(row->unit->producer),
               bridge::printable(row->unit->reader),
               bridge::printable(form_of(*row->unit)),
               megabytes(row->unit->bytes),
               width_text(row->width),
               {identity(*row->unit), ""}});
  to.table(key, fmt::format("\nonly in {}\n", name), table);
}

Section side(char name, const std::string& file, const ProfileFigures& figures) {
  Section to;
  to.value("file", file);
  to.values(summary(figures));
  to.text(
      fmt::format("{}: {}: {} units, {} measured; at {} bits {} MB of payloads, noise {}\n", name,
                  bridge::printable(file), figures.units.size(), figures.measured,
                  bits_text(figures.bits), megabytes(figures.payload_bytes),
                  figures.measured > 0 ? norm_text(figures.noise) + " of the norm" : "unknown"));
  return to;
}

Section answer_of(const Difference& difference, const ProfileFigures& a, const ProfileFigures& b,
                  const ProfileRequest& request) {
  Section to;
  to.value("same_model", difference.same_model());
  to.value("rank_correlation", number(difference.correlation));
  to.section("a", side('A', request.file, a));
  to.section("b", side('B', request.other, b));
  to.text(fmt::format("{} units of both, {} only in A, {} only in B\n", difference.common.size(),
                      difference.only_a.size(), difference.only_b.size()));
  if (!std::isnan(difference.correlation))
    to.text(fmt::format("rank correlation of sensitivities: {:.2f}\n", difference.correlation));
  put_changes(to, difference.common);
  put_only(to, "only_in_a", 'A', difference.only_a);
  put_only(to, "only_in_b", 'B', difference.only_b);
  return to;
}

}  // namespace

int diff_profiles(const ProfileRequest& request) {
  const std::optional<Profile> profile_a = load_profile(request.file);
  const std::optional<Profile> profile_b = load_profile(request.other);
  if (!profile_a || !profile_b) return kProfileTrouble;
  const ProfileFigures a = figures_of(*profile_a, bits_of(*profile_a));
  const ProfileFigures b = figures_of(*profile_b, bits_of(*profile_b));
  Difference difference = difference_of(a, b);
  sort_pairs(difference.common, request.sort);
  const bool same = difference.same_model();
  if (!same)
    say("pleat: {} and {} are of different models: {} of {} units in common\n",
        bridge::printable(request.file), bridge::printable(request.other), difference.common.size(),
        std::min(a.units.size(), b.units.size()));
  // The text of profiles that have little in common would say nothing.
  const bool shows = same || request.as_json;
  if (shows && !put(answer_of(difference, a, b, request), request.as_json)) return kProfileTrouble;
  return same ? 0 : kDifferentModels;
}

}  // namespace pleat::cli

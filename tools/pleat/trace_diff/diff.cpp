#include "diff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace pleat::cli {
namespace {

using trace::ByteClass;
using trace::PlacePair;

std::vector<trace::PlaceSum> sums_of(const DiffSide& side, const DeviceSummary* device,
                                     bool by_line) {
  if (device == nullptr) return {};
  return place_sums(by_line ? device->by_line : device->by_operator, side.file->definitions());
}

std::vector<PlacePair> pairs_of(const TraceDiff& diff, const DeviceDiff& device, bool by_line) {
  std::vector<PlacePair> pairs =
      match_places(sums_of(diff.a, device.a, by_line), sums_of(diff.b, device.b, by_line));
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const PlacePair& x, const PlacePair& y) { return x.change() > y.change(); });
  return pairs;
}

// of(summary) for each side that has the device.
template <class Figure>
DiffFigure figure(std::string name, const DeviceDiff& device, Figure&& of) {
  DiffFigure figure{std::move(name), std::nullopt, std::nullopt};
  if (device.a != nullptr) figure.a = of(*device.a);
  if (device.b != nullptr) figure.b = of(*device.b);
  return figure;
}

std::optional<std::int64_t> resident_peak(const DiffSide& side) {
  const trace::Lives& lives = side.replay->lives();
  return lives.resident_known ? std::optional(lives.resident.bytes) : std::nullopt;
}

}  // namespace

const DeviceSummary* DiffSide::device(int index) const noexcept {
  for (const DeviceSummary& device : summary.devices)
    if (device.lives->device == index) return &device;
  return nullptr;
}

void compare(TraceDiff& diff) {
  std::set<int> indices;
  for (const DiffSide* const side : {&diff.a, &diff.b})
    for (const DeviceSummary& device : side->summary.devices) indices.insert(device.lives->device);
  for (const int index : indices) {
    DeviceDiff device;
    device.device = index;
    device.a = diff.a.device(index);
    device.b = diff.b.device(index);
    device.by_line = pairs_of(diff, device, true);
    device.by_operator = pairs_of(diff, device, false);
    for (const PlacePair& pair : device.by_operator) {
      device.bytes_a += pair.a ? pair.a->all() : 0;
      device.bytes_b += pair.b ? pair.b->all() : 0;
    }
    diff.devices.push_back(std::move(device));
  }
}

// ---- figures ------------------------------------------------------------------------------------

std::vector<DiffFigure> peak_figures(const TraceDiff& diff, const DeviceDiff& device) {
  constexpr std::array<std::pair<const char*, int>, 5> kPeaks{{{"live", PLEAT_TRACE_REQUESTED},
                                                               {"reserved", PLEAT_TRACE_RESERVED},
                                                               {"saved raw", PLEAT_TRACE_SAVED_RAW},
                                                               {"payloads", PLEAT_TRACE_PAYLOAD},
                                                               {"restored", PLEAT_TRACE_RESTORED}}};
  std::vector<DiffFigure> figures;
  for (const auto& [name, which] : kPeaks)
    figures.push_back(figure(name, device, [which = which](const DeviceSummary& of) {
      return of.lives->peaks[which].bytes;
    }));
  if (device.device < 0)
    figures.push_back({"resident", resident_peak(diff.a), resident_peak(diff.b)});
  figures.push_back(figure("growth a step", device, [](const DeviceSummary& of) {
    return of.growth.known ? std::optional<std::int64_t>(std::llround(of.growth.bytes_per_step))
                           : std::nullopt;
  }));
  return figures;
}

std::vector<DiffFigure> moment_figures(const DeviceDiff& device) {
  std::vector<DiffFigure> figures;
  const auto add = [&](std::string name, auto&& of) {
    figures.push_back(figure(std::move(name), device, [&](const DeviceSummary& summary) {
      return std::optional<std::int64_t>(of(summary.at));
    }));
  };
  using trace::Snapshot;
  add("live", [](const Snapshot& at) { return at.totals.live(); });
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    add(std::string(trace::kClassNames[i]), [i](const Snapshot& at) { return at.totals.bytes[i]; });
  add("slack", [](const Snapshot& at) { return at.totals.slack(); });
  add("cached", [](const Snapshot& at) { return at.totals.cached(); });
  if (device.device >= 0) return figures;
  add("small", [](const Snapshot& at) { return at.small; });
  add("other", [](const Snapshot& at) { return at.resident >= 0 ? at.other : 0; });
  return figures;
}

std::vector<DiffFigure> saved_figures(const DeviceDiff& device) {
  using Sums = trace::CompressionSums;
  std::vector<DiffFigure> figures;
  const auto add = [&](const char* name, std::int64_t Sums::*bytes) {
    figures.push_back(figure(name, device, [bytes](const DeviceSummary& of) {
      return std::optional(of.compression.*bytes);
    }));
  };
  add("saved", &Sums::saved_bytes);
  add("compressed", &Sums::source_bytes);
  add("to", &Sums::payload_bytes);
  add("left raw", &Sums::held_bytes);
  add("restored", &Sums::restored_bytes);
  return figures;
}

}  // namespace pleat::cli

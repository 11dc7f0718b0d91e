#include "watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "interpose/trace/wrapping.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::wrapping_add;

void add(RunSums& to, const RunSums& more) {
  to.allocated_bytes = wrapping_add(to.allocated_bytes, more.allocated_bytes);
  to.allocations += more.allocations;
  to.saved_bytes = wrapping_add(to.saved_bytes, more.saved_bytes);
  to.saved += more.saved;
}

}  // namespace

std::vector<PlaceRow> place_rows(const DeviceReport& device, bool by_line) {
  std::map<PlaceKey, PlaceRow> found;
  const auto row_of = [&](std::uint32_t op, std::uint32_t frame) -> PlaceRow& {
    const PlaceKey key{op, by_line ? frame : 0};
    PlaceRow& row = found[key];
    row.place = key;
    return row;
  };
  for (const trace::Group& group : by_line ? device.by_line : device.by_operator) {
    PlaceRow& row = row_of(group.op, group.frame);
    std::int64_t& sum = row.bytes[static_cast<std::size_t>(group.of)];
    sum = wrapping_add(sum, group.bytes);
    row.blocks += group.count;
    row.would_be = wrapping_add(row.would_be, group.would_be);
  }
  for (const RunPlace& one : device.run) add(row_of(one.place.op, one.place.frame).run, one.sums);
  std::vector<PlaceRow> rows;
  rows.reserve(found.size());
  for (const auto& [place, row] : found) rows.push_back(row);
  std::stable_sort(rows.begin(), rows.end(), [](const PlaceRow& a, const PlaceRow& b) {
    return std::tuple(a.live(), a.run.allocated_bytes) >
           std::tuple(b.live(), b.run.allocated_bytes);
  });
  if (rows.size() <= kMostPlaces) return rows;
  PlaceRow rest;
  rest.rest = true;
  for (std::size_t i = kMostPlaces; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < trace::kByteClasses; ++j)
      rest.bytes[j] = wrapping_add(rest.bytes[j], rows[i].bytes[j]);
    rest.blocks += rows[i].blocks;
    rest.would_be = wrapping_add(rest.would_be, rows[i].would_be);
    add(rest.run, rows[i].run);
  }
  rows.resize(kMostPlaces);
  rows.push_back(rest);
  return rows;
}

std::string report_filter_text(const TraceReportRequest& request) {
  std::string text;
  const auto say_that = [&](std::string words) {
    text += (text.empty() ? "" : ", ") + std::move(words);
  };
  const trace::Filter& filter = request.filter;
  if (request.since_seconds > 0) say_that(fmt::format("peak from {} s", request.since_seconds));
  if (request.until_seconds) say_that(fmt::format("peak up to {} s", *request.until_seconds));
  if (filter.most_events != trace::Filter{}.most_events)
    say_that(fmt::format("the first {} events", count_text(filter.most_events)));
  if (filter.least_bytes > 0)
    say_that(fmt::format("blocks of at least {}",
                         size_text(static_cast<std::int64_t>(filter.least_bytes))));
  if (!filter.op.empty()) say_that("operators with \"" + filter.op + "\" in their name");
  if (filter.of_class) say_that("class " + std::string(trace::class_name(*filter.of_class)));
  if (filter.step) say_that(fmt::format("born in step {}", *filter.step));
  return text;
}

}  // namespace pleat::cli

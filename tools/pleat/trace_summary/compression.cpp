// Saved tensors of a device, in a summary: sums over the run, and the reasons of decisions.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "interpose/trace/wrapping.h"
#include "summary.h"
#include "tools/pleat/trace/trail.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::CompressionSums;

using Row = std::vector<Cell>;

std::string milliseconds(std::uint64_t ns) {
  return fmt::format("{:.1f} ms", static_cast<double>(ns) * 1e-6);
}

Json sums_json(const CompressionSums& sums) {
  return {{"saved", sums.saved},
          {"saved_bytes", sums.saved_bytes},
          {"compressed", sums.encoded},
          {"source_bytes", sums.source_bytes},
          {"payload_bytes", sums.payload_bytes},
          {"left_raw", sums.held},
          {"left_raw_bytes", sums.held_bytes},
          {"restored", sums.restored},
          {"restored_bytes", sums.restored_bytes},
          {"encode_ns", sums.encode_ns},
          {"restore_ns", sums.restore_ns}};
}

// Of all places, with the reason for which they stayed raw.
std::vector<trace::TrailLine> by_trail(const std::vector<trace::TrailLine>& lines) {
  std::vector<trace::TrailLine> sums;
  for (const trace::TrailLine& line : lines) {
    const std::string trail = trace::raw_trail(line.trail);
    auto sum = std::ranges::find(sums, trail, &trace::TrailLine::trail);
    if (sum == sums.end()) sum = sums.insert(sum, {trail});
    sum->records += line.records;
    sum->bytes = trace::wrapping_add(sum->bytes, line.bytes);
  }
  std::ranges::stable_sort(sums, std::greater(), &trace::TrailLine::bytes);
  return sums;
}

// Why tensors were compressed, stored exactly, or left alone.
void put_decisions(Section& to, const DeviceSummary& device, const PlaceCells& places,
                   const TraceSummaryRequest& request) {
  Table exact({figure_column("size", "bytes"), figure_column("tensors", "records", 1),
               name_column("why", "why"), name_column("operator", "op"),
               name_column("line", "line"), json_columns()});
  exact.add_first(request.top, device.exact, [&](const trace::TrailLine& line) -> Row {
    return {size_cell(line.bytes),
            count_cell(line.records),
            {trace::exactness_of(line.trail), trace::trail_words(line.trail)},
            places.op(line.op),
            places.line(line.frame),
            {{{"trail", line.trail}}, ""}};
  });
  put_table(to, "exact",
            title_text(device_text(device.lives->device), "stored exactly, though floats, and why"),
            exact, device.exact.size());
  Table proved({figure_column("size", "bytes"), figure_column("saves", "saves", 1),
                name_column("shown by", "by")});
  proved.add_first(request.top, device.proved, [](const trace::ProvedLine& line) -> Row {
    return {size_cell(line.bytes), count_cell(line.saves), {line.by, word_text(line.by)}};
  });
  put_table(to, "proved",
            title_text(device_text(device.lives->device),
                       "may bear noise, and what shows it to be harmless"),
            proved, device.proved.size());
  // Saved for backward by stock's means: storages that Pleat cannot or must not take over.
  Table left({figure_column("size", "bytes"), figure_column("tensors", "tensors", 1),
              name_column("why", "why"), name_column("line", "line")});
  left.add_first(request.top, device.left, [&](const trace::LeftLine& line) -> Row {
    return {size_cell(line.bytes),
            count_cell(line.tensors),
            {line.why, bridge::printable(line.why, kMostWord)},
            places.line(line.frame)};
  });
  put_table(
      to, "left_alone",
      title_text(device_text(device.lives->device), "saved for backward and left alone, and why"),
      left, device.left.size());
}

}  // namespace

void put_compression(Section& to, const DeviceSummary& device, const PlaceCells& places,
                     const TraceSummaryRequest& request) {
  const CompressionSums& all = device.compression;
  const std::vector<trace::TrailLine> held_by_trail = by_trail(device.held);
  Section of;
  of.values(sums_json(all));
  if (all.saved != 0 || all.encoded != 0 || all.restored != 0) {
    of.text(title_text(device_text(device.lives->device), "compression"));
    of.line("saved",
            fmt::format("{} tensors, {}", count_text(all.saved), size_text(all.saved_bytes)));
    of.line("compressed", fmt::format("{}, {} to {} ({})", count_text(all.encoded),
                                      size_text(all.source_bytes), size_text(all.payload_bytes),
                                      ratio_text(all.source_bytes, all.payload_bytes)));
    if (all.encode_ns > 0 || all.restore_ns > 0)
      of.line("time", fmt::format("{} to compress, {} to restore", milliseconds(all.encode_ns),
                                  milliseconds(all.restore_ns)));
    of.line("restored",
            fmt::format("{}, {}", count_text(all.restored), size_text(all.restored_bytes)));
    for (const trace::TrailLine& held : held_by_trail)
      of.line("left raw", fmt::format("{}, {}: {}", count_text(held.records), size_text(held.bytes),
                                      trace::trail_words(held.trail)));
  }
  Json reasons = Json::array();
  for (const trace::TrailLine& held : held_by_trail)
    reasons.push_back({{"reason", trace::exactness_of(held.trail)},
                       {"trail", held.trail},
                       {"records", held.records},
                       {"bytes", held.bytes}});
  of.value("reasons", std::move(reasons));
  Table table({json_columns(), figure_column("saved"), figure_column("compressed"),
               figure_column("to"), figure_column("ratio"), figure_column("left raw", "", 1),
               figure_column("restored", "", 2), figure_column("time", "", 3),
               name_column("operator", "op"), name_column("line", "line")});
  table.add_first(request.top, device.compression_lines,
                  [&](const trace::CompressionLine& line) -> Row {
                    const CompressionSums& sums = line.sums;
                    const std::uint64_t spent = sums.encode_ns + sums.restore_ns;
                    return {{sums_json(sums), ""},
                            size_text(sums.saved_bytes),
                            size_text(sums.source_bytes),
                            size_text(sums.payload_bytes),
                            ratio_text(sums.source_bytes, sums.payload_bytes),
                            size_text(sums.held_bytes),
                            size_text(sums.restored_bytes),
                            spent == 0 ? "" : milliseconds(spent),
                            places.op(line.op),
                            places.line(line.frame)};
                  });
  of.table("lines", "", table);
  put_decisions(of, device, places, request);
  to.section("compression", std::move(of));
}

}  // namespace pleat::cli

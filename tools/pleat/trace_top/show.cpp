#include "top.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include "tools/pleat/trace/ledger.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::ByteClass;
using trace::TopDevice;
using trace::TopMoment;
using trace::TopPage;
using trace::Totals;

constexpr std::size_t kClassesInLine = 4;

Totals totals_of(const TopMoment& moment) {
  Totals totals;
  std::copy(std::begin(moment.sums), std::end(moment.sums), totals.sums.begin());
  std::copy(std::begin(moment.classes), std::end(moment.classes), totals.bytes.begin());
  return totals;
}
std::int64_t live(const TopMoment& moment) { return totals_of(moment).live(); }
double seconds(const TopPage& page, const TopMoment& moment) {
  return static_cast<double>(static_cast<std::int64_t>(moment.time_ns - page.start_ns)) * 1e-9;
}
std::string_view phase(const TopMoment& moment) {
  return trace::phase_name(static_cast<std::uint8_t>(std::min(moment.phase, 255u)));
}
std::string when(const TopPage& page, const TopMoment& moment) {
  if (moment.time_ns == 0) return "nothing so far";
  return fmt::format("{:.1f} s, step {}, {}", seconds(page, moment), moment.step, phase(moment));
}
std::string class_text(std::size_t of) {
  const bool so_far = static_cast<ByteClass>(of) == ByteClass::kTemporary;
  return std::string(trace::kClassNames[of]) + (so_far ? " (so far)" : "");
}

std::string device_table(const TopPage& page, const TopDevice& device, std::size_t columns) {
  const Totals now = totals_of(device.now), peak = totals_of(device.peak);
  Table table({word_column(device_text(device.device)), figure_column("now"), figure_column(""),
               figure_column("at the peak"), figure_column("")});
  const auto add = [&](std::string name, std::int64_t a, std::int64_t b, bool shares) {
    if (a == 0 && b == 0) return;
    table.add({std::move(name), size_text(a), shares ? share_of(a, now.live()) : "", size_text(b),
               shares ? share_of(b, peak.live()) : ""});
  };
  add("live", now.live(), peak.live(), false);
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    add("  " + class_text(i), now.bytes[i], peak.bytes[i], true);
  add("reserved", now.reserved(), peak.reserved(), false);
  add("  slack", now.slack(), peak.slack(), false);
  add("  cached", now.cached(), peak.cached(), false);
  if (device.device < 0) {
    add("small", device.now.small, device.peak.small, false);
    add("resident", device.now.resident, device.peak.resident, false);
  }
  std::string text = table.text(columns);
  if (peak.live() > 0) text += fmt::format("  the peak: {}\n", when(page, device.peak));
  return text;
}

Table lines_table(const TopPage& page) {
  Table table({figure_column("largest", "bytes"), figure_column("blocks", "blocks", 1),
               word_column("class", "class"), name_column("operator", "op"),
               name_column("line", "line")});
  for (std::uint32_t i = 0; i < page.lines; ++i) {
    const trace::TopLine& line = page.line[i];
    const std::string of(trace::kClassNames[line.of]);
    table.add({size_cell(line.bytes),
               count_cell(line.count),
               {of, of},
               {line.op, bridge::printable(line.op)},
               {line.line, bridge::printable(line.line, sizeof line.line)}});
  }
  return table;
}

Json moment_json(const TopPage& page, const TopMoment& moment) {
  Json json;
  json["seconds"] = moment.time_ns == 0 ? Json() : Json(seconds(page, moment));
  json["step"] = moment.step;
  json["phase"] = std::string(phase(moment));
  const Totals totals = totals_of(moment);
  json["live_bytes"] = totals.live();
  json["active_bytes"] = totals.active();
  json["reserved_bytes"] = totals.reserved();
  json["saved_raw_bytes"] = moment.sums[PLEAT_TRACE_SAVED_RAW];
  json["payload_bytes"] = moment.sums[PLEAT_TRACE_PAYLOAD];
  json["restored_bytes"] = moment.sums[PLEAT_TRACE_RESTORED];
  json["small_bytes"] = moment.small;
  json["resident_bytes"] = moment.resident == 0 ? Json() : Json(moment.resident);
  json["classes"] = classes_json(totals.bytes);
  return json;
}

}  // namespace

std::string top_text(const TopPage& page, std::size_t columns) {
  std::string text = fmt::format("process {}", page.pid);
  if (page.devices > 0) text += ", " + when(page, page.device[0].now);
  text += page.inexact != 0 ? "; some of what lives is not known\n" : "\n";
  for (std::uint32_t i = 0; i < page.devices; ++i)
    text += "\n" + device_table(page, page.device[i], columns);
  const Table lines = lines_table(page);
  return lines.empty() ? text : text + "\n" + lines.text(columns);
}

std::string top_line(const TopPage& page) {
  std::string text =
      page.devices > 0 ? when(page, page.device[0].now) : std::string("nothing is known yet");
  for (std::uint32_t i = 0; i < page.devices; ++i) {
    const TopDevice& device = page.device[i];
    text += fmt::format("; {}: live {}, peak {}", device_text(device.device),
                        size_text(live(device.now)), size_text(live(device.peak)));
    std::array<std::size_t, trace::kByteClasses> order;
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return device.now.classes[a] > device.now.classes[b];
    });
    for (std::size_t k = 0; k < kClassesInLine; ++k) {
      const std::int64_t bytes = device.now.classes[order[k]];
      if (bytes > 0) text += fmt::format(", {} {}", class_text(order[k]), size_text(bytes));
    }
    if (device.device < 0 && device.now.resident > 0)
      text += fmt::format(", resident {}", size_text(device.now.resident));
  }
  return text + "\n";
}

Json top_json(const TopPage& page) {
  Json json;
  json["pid"] = page.pid;
  json["exact"] = page.inexact == 0;
  json["devices"] = Json::array();
  for (std::uint32_t i = 0; i < page.devices; ++i) {
    const TopDevice& device = page.device[i];
    json["devices"].push_back({{"device", device_text(device.device)},
                               {"now", moment_json(page, device.now)},
                               {"peak", moment_json(page, device.peak)}});
  }
  json["lines_device"] = device_text(page.lines_device);
  json["lines"] = lines_table(page).json();
  return json;
}

}  // namespace pleat::cli

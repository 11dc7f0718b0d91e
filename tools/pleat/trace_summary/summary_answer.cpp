// The answer of a summary: the whole trace, then lines and tables for each device. In JSON, bytes
// and times are whole numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "summary.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::ByteClass;
using trace::Snapshot;

using Row = std::vector<Cell>;

// Only classes that have bytes.
Table made_of(const trace::ClassBytes& bytes, std::int64_t live) {
  Table table({word_column("made of"), figure_column("size"), figure_column("of live")});
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    if (bytes[i] != 0)
      table.add(
          {std::string(trace::kClassNames[i]), size_text(bytes[i]), share_of(bytes[i], live)});
  return table;
}

// One device, or the trace as a whole.
class Describer {
 public:
  Describer(const TraceSummary& summary, trace::Lines& lines, const TraceSummaryRequest& request)
      : summary_(summary),
        request_(request),
        file_(summary.replay->file()),
        lives_(summary.replay->lives()),
        lines_(lines),
        places_(file_.definitions(), lines) {}

  [[nodiscard]] Section answer() {
    Section to;
    head(to);
    to.value("devices", Json::array());
    for (const DeviceSummary& one : summary_.devices) to.element("devices", device(one));
    if (summary_.devices.empty()) to.text("\nnothing is known of any memory\n");
    return to;
  }

 private:
  void head(Section& to) {
    const trace::Process& process = file_.process();
    const std::string who = who_text(process);
    put_run(to, request_.file, file_, lives_, summary_.disagreements);
    to.text(fmt::format("trace {}{}{}\n", shown_path(request_.file), who.empty() ? "" : ": ", who));
    if (!process.command.empty()) to.line("command", bridge::printable(process.command, 200));
    to.line("length",
            fmt::format("{:.3f} s, {} steps, {} events", lives_.seconds(lives_.last_time_ns),
                        count_text(lives_.counted_steps), count_text(lives_.told())));
    for (const TraceNote& note :
         notes_of(file_, lives_, summary_.disagreements, request_.filter.most_events))
      to.line(note.name, note.words);
    if (request_.what_if && !summary_.knows_what_if) to.line("what if", kNoWhatIf);
    part(to);
    to.value("resident_peak_bytes", lives_.resident_known ? Json(lives_.resident.bytes) : Json());
    if (lives_.resident_known)
      to.line("resident", fmt::format("at most {}, at {:.3f} s", size_text(lives_.resident.bytes),
                                      lives_.seconds(lives_.resident.time_ns)));
    to.value("small_peak_bytes", lives_.most_small_bytes);
    Json what_if;  // the bits that were asked for, and whether the trace can answer
    if (request_.what_if) {
      const double bits = *request_.what_if;
      what_if["bits"] = bits == trace::kLossless ? Json("lossless") : Json(bits);
      what_if["known"] = summary_.knows_what_if;
    }
    to.value("what_if", std::move(what_if));
  }
  void part(Section& to) {
    const std::uint64_t part = file_.process().part;
    if (part <= 1) return;
    std::string words = std::to_string(part);
    if (request_.file.ends_with(".1")) {
      words += "; what came before it is gone";
    } else {
      const std::string name = request_.file.substr(request_.file.rfind('/') + 1);
      words += fmt::format("; before it {}{}", bridge::printable(name + ".1", kMostWord),
                           part > 2 ? ", and what came before that is gone" : "");
    }
    to.line("part", words);
  }
  [[nodiscard]] Section device(const DeviceSummary& device) {
    name_ = device_text(device.lives->device);
    Section to;
    to.value("device", name_);
    peaks(to, device);
    moment(to, device);
    groups(to, device);
    steps(to, *device.lives);
    put_layers(to, summary_, device, lines_, request_);
    growth(to, device.growth);
    fragmentation(to, device);
    put_compression(to, device, places_, request_);
    return to;
  }
  void peaks(Section& to, const DeviceSummary& device) {
    const auto& peaks = device.lives->peaks;
    const trace::Peak& live = peaks[PLEAT_TRACE_REQUESTED];
    to.value("peak_live", peak(live));
    to.value("peak_active", peak(peaks[PLEAT_TRACE_ACTIVE]));
    to.value("peak_reserved", peak(peaks[PLEAT_TRACE_RESERVED]));
    to.value("peak_saved_raw", peak(peaks[PLEAT_TRACE_SAVED_RAW]));
    to.value("peak_payload", peak(peaks[PLEAT_TRACE_PAYLOAD]));
    to.value("peak_restored", peak(peaks[PLEAT_TRACE_RESTORED]));
    to.text(fmt::format("\n{}: most live {}", name_, size_text(live.bytes)));
    if (live.bytes > 0) to.text(" at " + when(live.time_ns, live.step, live.phase));
    to.text("\n");
    to.value("what_if", nullptr);
    if (device.what_if) {
      const WhatIfSummary& what_if = *device.what_if;
      to.value("what_if", {{"peak_live", peak(what_if.peak)},
                           {"classes", classes_json(what_if.classes)},
                           {"moment_live_bytes", what_if.at}});
      const std::string share = share_of(what_if.peak.bytes, live.bytes);
      std::string words =
          fmt::format("{} {}", size_text(what_if.peak.bytes), what_if_text(*request_.what_if));
      if (!share.empty()) words += fmt::format(", {} of that", share);
      if (what_if.peak.bytes > 0)
        words += "; at " + when(what_if.peak.time_ns, what_if.peak.step, what_if.peak.phase);
      to.line("would be", words);
    }
    to.value("blocks", device.lives->blocks);
    const std::uint64_t out_of_memory = device.lives->out_of_memory;
    to.value("out_of_memory", out_of_memory);
    if (out_of_memory > 0)
      to.line("out of memory",
              out_of_memory == 1 ? "once" : fmt::format("{} times", count_text(out_of_memory)));
  }
  void moment(Section& to, const DeviceSummary& device) {
    const Snapshot& at = device.at;
    to.value("moment", nullptr);
    if (!at.taken) {
      if (request_.at.kind == Moment::Kind::kOutOfMemory) to.line("", "memory never ran out");
      if (request_.at.kind == Moment::Kind::kDump)
        to.line("", "nobody asked for a look (pleat.trace.dump())");
    } else {
      if (request_.at.kind != Moment::Kind::kPeak)
        to.line("moment", when(at.time_ns, at.step, at.phase));
      to.line("live", size_text(at.totals.live()));
      if (device.what_if)
        to.line("", size_text(device.what_if->at) + " " + what_if_text(*request_.what_if));
      to.line("reserved", size_text(at.totals.reserved()));
      if (at.resident >= 0)
        to.line("resident", size_text(at.resident) + " of the process, as last sampled");
      Table table = made_of(at.totals.bytes, at.totals.live());
      const auto beside = [&](const char* name, std::int64_t bytes) {
        if (bytes > 0) table.add({std::string("+ ") + name, size_text(bytes), ""});
      };
      const bool is_host = device.lives->device < 0;
      beside("slack", at.totals.slack());
      beside("cached", at.totals.cached());
      if (is_host) beside("small", at.small);
      if (is_host && at.resident >= 0) beside("other", at.other);
      to.table("", "", table);
      moment_values(to, at);
    }
    if (device.what_if && device.what_if->peak.bytes > 0)
      to.table(
          "",
          title_text(name_, what_if_text(*request_.what_if) + ": what most live would be made of"),
          made_of(device.what_if->classes, device.what_if->peak.bytes));
  }
  void moment_values(Section& to, const Snapshot& at) {
    const auto if_known = [](bool known, std::int64_t bytes) {
      return known ? Json(bytes) : Json();
    };
    const bool has_segments = at.gaps.segment_bytes > 0;
    to.value("moment", {{"event", at.event},
                        {"seconds", lives_.seconds(at.time_ns)},
                        {"step", step(at.step)},
                        {"phase", trace::phase_name(at.phase)},
                        {"live_bytes", at.totals.live()},
                        {"active_bytes", at.totals.active()},
                        {"reserved_bytes", at.totals.reserved()},
                        {"slack_bytes", at.totals.slack()},
                        {"cached_bytes", at.totals.cached()},
                        {"small_bytes", at.small},
                        {"other_bytes", if_known(at.resident >= 0, at.other)},
                        {"resident_bytes", if_known(at.resident >= 0, at.resident)},
                        {"classes", classes_json(at.totals.bytes)},
                        {"segment_bytes", if_known(has_segments, at.gaps.segment_bytes)},
                        {"free_in_segments_bytes", if_known(has_segments, at.gaps.free_bytes)},
                        {"largest_gap_bytes", if_known(has_segments, at.gaps.largest)}});
  }
  // Of live blocks. `all`: else they are of one class, which the title names.
  [[nodiscard]] Table group_table(const std::vector<trace::Group>& groups,
                                  const DeviceSummary& device, bool by_line, bool all) {
    const std::string would_be = all && device.what_if ? what_if_text(*request_.what_if) : "";
    Table table({figure_column("size", "bytes"), figure_column(would_be, "what_if_bytes"),
                 figure_column("of live", "", 2), figure_column("blocks", "blocks", 1),
                 word_column("class", "class"), figure_column("born in step", "", 3),
                 name_column("operator", "op"), name_column(by_line ? "line" : "", "line"),
                 json_columns()});
    table.add_first(request_.top, groups, [&](const trace::Group& group) -> Row {
      Cell what_if = summary_.knows_what_if ? size_cell(group.would_be) : Cell::absent();
      if (would_be.empty()) what_if.text.clear();
      const std::string class_name(trace::class_name(group.of));
      const Json born{{"first_step", step(group.first_step)},
                      {"last_step", step(group.last_step)},
                      {"oldest_seconds",
                       group.oldest_ns == 0 ? Json() : Json(lives_.seconds(group.oldest_ns))}};
      return {size_cell(group.bytes),
              std::move(what_if),
              all ? share_of(group.bytes, device.at.totals.live()) : "",
              count_cell(group.count),
              {class_name, all ? class_name : ""},
              born_text(group),
              places_.op(group.op),
              by_line ? places_.line(group.frame) : Cell::absent(),
              {born, ""}};
    });
    return table;
  }
  void groups(Section& to, const DeviceSummary& device) {
    put_table(to, "by_line", title_text(name_, "largest at that moment, by line"),
              group_table(device.by_line, device, true, true), device.by_line.size());
    put_table(to, "by_operator", title_text(name_, "by operator"),
              group_table(device.by_operator, device, false, true), device.by_operator.size());
    // Activations that backward does not need and the program did not release.
    std::vector<trace::Group> kept;
    std::copy_if(device.by_line.begin(), device.by_line.end(), std::back_inserter(kept),
                 [](const trace::Group& one) { return one.of == ByteClass::kKept; });
    const Table table = group_table(kept, device, true, false);
    const bool is_seen_above = request_.filter.of_class || device.by_line.size() <= request_.top;
    if (is_seen_above)
      to.value("kept_by_line", table.json());
    else
      to.table("kept_by_line", title_text(name_, "kept by the program beyond its phase"), table);
  }
  void steps(Section& to, const trace::DeviceLives& device) {
    Json rows = Json::array();
    for (std::size_t i = 0; request_.as_json && i < device.steps.size(); ++i)
      rows.push_back({{"step", lives_.steps[i].number},
                      {"seconds", lives_.seconds(lives_.steps[i].time_ns)},
                      {"peak_bytes", device.steps[i].peak},
                      {"live_at_end_bytes", device.steps[i].live_at_end}});
    to.value("steps", std::move(rows));
  }
  void growth(Section& to, const trace::Growth& growth) {
    to.text(title_text(name_, "growth over steps"));
    if (!growth.known) {
      const std::size_t missing = trace::kLeastSteps - lives_.steps.size();
      to.text(fmt::format("  too few steps to tell: {} of at least {}\n", lives_.counted_steps,
                          lives_.counted_steps + missing));
      to.value("growth", nullptr);
      return;
    }
    Section of;
    of.value("steps", growth.steps);
    of.value("bytes_per_step", std::llround(growth.bytes_per_step));
    if (growth.lines.empty()) of.text("  nothing stays\n");
    Table table({figure_column("a step", "bytes_per_step"), figure_column("in all", "bytes"),
                 figure_column("blocks", "blocks", 1), figure_column("in steps", "steps", 2),
                 name_column("operator", "op"), name_column("line", "line")});
    table.add_first(request_.top, growth.lines, [&](const trace::GrowthLine& line) -> Row {
      return {{std::llround(line.bytes_per_step),
               size_text(static_cast<std::int64_t>(line.bytes_per_step))},
              size_cell(line.bytes),
              count_cell(line.count),
              {line.steps, fmt::format("{} of {}", line.steps, growth.steps)},
              places_.op(line.op),
              places_.line(line.frame)};
    });
    of.table("lines", "", table);
    to.section("growth", std::move(of));
  }
  void fragmentation(Section& to, const DeviceSummary& device) {
    const auto& peaks = device.lives->peaks;
    to.text(title_text(name_, "fragmentation"));
    to.line("reserved",
            fmt::format("at most {}, live at most {}", size_text(peaks[PLEAT_TRACE_RESERVED].bytes),
                        size_text(peaks[PLEAT_TRACE_REQUESTED].bytes)));
    if (!device.at.taken) return;
    to.line("cached", fmt::format("{} at that moment", size_text(device.at.totals.cached())));
    const trace::Gaps& gaps = device.at.gaps;
    if (gaps.segment_bytes > 0)
      to.line("largest gap",
              fmt::format("{} of {} free in segments of {}", size_text(gaps.largest),
                          size_text(gaps.free_bytes), size_text(gaps.segment_bytes)));
  }

  [[nodiscard]] std::string when(std::uint64_t time_ns, std::uint32_t step,
                                 std::uint8_t phase) const {
    return moment_text(lives_, time_ns, step, phase);
  }
  [[nodiscard]] std::string born_text(const trace::Group& group) const {
    if (group.first_step == trace::kNoStep) return "-";
    const std::string first = step_text(lives_, group.first_step);
    const std::string last = step_text(lives_, group.last_step);
    return first == last ? first : first + "-" + last;
  }
  [[nodiscard]] Json step(std::uint32_t index) const { return or_null(lives_.step_number(index)); }
  [[nodiscard]] Json peak(const trace::Peak& of) const {
    return {{"bytes", of.bytes},
            {"event", of.event},
            {"seconds", of.bytes == 0 ? Json() : Json(lives_.seconds(of.time_ns))},
            {"step", step(of.step)},
            {"phase", trace::phase_name(of.phase)}};
  }

  const TraceSummary& summary_;
  const TraceSummaryRequest& request_;
  const trace::File& file_;
  const trace::Lives& lives_;
  trace::Lines& lines_;
  PlaceCells places_;
  std::string name_;  // of the device
};

}  // namespace

Section answer_of(const TraceSummary& summary, trace::Lines& lines,
                  const TraceSummaryRequest& request) {
  return Describer(summary, lines, request).answer();
}

}  // namespace pleat::cli

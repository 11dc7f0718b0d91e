// A trace's summary for a person: a few lines and tables for each device.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "layers.h"
#include "tools/pleat/text_table.h"
#include "tools/pleat/trace_command/process.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::ByteClass;
using trace::Lives;
using trace::Snapshot;

using Row = std::vector<std::string>;  // of a table

std::string milliseconds(std::uint64_t ns) {
  return fmt::format("{:.1f} ms", static_cast<double>(ns) * 1e-6);
}

class TextWriter {
 public:
  TextWriter(const TraceSummary& summary, trace::Lines& lines, const TraceSummaryRequest& request)
      : summary_(summary),
        lines_(lines),
        request_(request),
        file_(summary.replay->file()),
        lives_(summary.replay->lives()) {}

  [[nodiscard]] std::string text() {
    head();
    for (const DeviceSummary& device : summary_.devices) {
      name_ = device_text(device.lives->device);
      moment(device);
      what_if(device);
      groups(device);
      kept(device);
      text_ += layers_text(summary_, device, lines_, request_);
      growth(device);
      fragmentation(device);
      compression(device);
      exact(device);
      proved(device);
      left_alone(device);
    }
    if (summary_.devices.empty()) text_ += "\nnothing is known of any memory\n";
    return text_;
  }

 private:
  void head();
  void moment(const DeviceSummary& device);
  void would_be(const WhatIfSummary& what_if, std::int64_t peak);
  void classes(const Snapshot& at, bool is_host);
  void what_if(const DeviceSummary& device);
  void groups(const DeviceSummary& device);
  void kept(const DeviceSummary& device);
  void growth(const DeviceSummary& device);
  void fragmentation(const DeviceSummary& device);
  void compression(const DeviceSummary& device);
  void exact(const DeviceSummary& device);
  void proved(const DeviceSummary& device);
  void left_alone(const DeviceSummary& device);

  void line(const char* name, const std::string& words) {
    text_ += fmt::format("  {:<13} {}\n", name, words);
  }
  void title(std::string_view words) { text_ += fmt::format("\n{}, {}\n", name_, words); }
  void table(const TextTable& table) { text_ += table.text(terminal_columns()); }
  // With a row of each of the first; says how many more there are.
  template <class All, class MakeRow>
  void table(TextTable table, const All& all, MakeRow&& row) {
    for (std::size_t i = 0; i < std::min(all.size(), request_.top); ++i) table.add(row(all[i]));
    text_ += table.text(terminal_columns()) + more_text(all.size(), request_.top);
  }
  [[nodiscard]] std::string op(std::uint32_t id) const {
    const std::string_view text = file_.definitions().string(id);
    return text.empty() ? "-" : bridge::printable(text, kMostWord);
  }
  [[nodiscard]] std::string place(std::uint32_t frame) const {
    return frame == 0 ? "-" : bridge::printable(lines_.text(frame), kMostWord);
  }
  [[nodiscard]] std::string when(std::uint64_t time_ns, std::uint32_t step,
                                 std::uint8_t phase) const {
    const std::string in_step = step == trace::kNoStep ? "" : ", step " + step_text(lives_, step);
    return fmt::format("{:.3f} s{}, {}", lives_.seconds(time_ns), in_step,
                       trace::phase_name(phase));
  }
  [[nodiscard]] std::string born_text(const trace::Group& group) const {
    if (group.first_step == trace::kNoStep) return "-";
    const std::string first = step_text(lives_, group.first_step);
    const std::string last = step_text(lives_, group.last_step);
    return first == last ? first : first + "-" + last;
  }

  const TraceSummary& summary_;
  trace::Lines& lines_;
  const TraceSummaryRequest& request_;
  const trace::File& file_;
  const Lives& lives_;
  std::string name_;
  std::string text_;
};

void TextWriter::head() {
  const trace::Process& process = file_.process();
  const std::string who = who_text(process);
  text_ += fmt::format("trace {}{}{}\n", shown_path(request_.file), who.empty() ? "" : ": ", who);
  if (!process.command.empty()) line("command", bridge::printable(process.command, 200));
  line("length", fmt::format("{:.3f} s, {} steps, {} events", lives_.seconds(lives_.last_time_ns),
                             count_text(lives_.counted_steps), count_text(lives_.told())));
  for (const TraceNote& note :
       notes_of(file_, lives_, summary_.disagreements, request_.filter.most_events))
    line(note.name, note.words);
  if (request_.what_if && !summary_.knows_what_if) line("what if", kNoWhatIf);
  if (process.part > 1) {
    std::string words = std::to_string(process.part);
    if (request_.file.ends_with(".1")) {
      words += "; what came before it is gone";
    } else {
      const std::string name = request_.file.substr(request_.file.rfind('/') + 1);
      words += fmt::format("; before it {}{}", bridge::printable(name + ".1", kMostWord),
                           process.part > 2 ? ", and what came before that is gone" : "");
    }
    line("part", words);
  }
  if (lives_.resident_known)
    line("resident", fmt::format("at most {}, at {:.3f} s", size_text(lives_.resident.bytes),
                                 lives_.seconds(lives_.resident.time_ns)));
}

// ---- a moment -----------------------------------------------------------------------------------

void TextWriter::moment(const DeviceSummary& device) {
  const Snapshot& at = device.at;
  const trace::Peak& peak = device.lives->peaks[PLEAT_TRACE_REQUESTED];
  text_ += fmt::format("\n{}: most live {}", name_, size_text(peak.bytes));
  if (peak.bytes > 0) text_ += " at " + when(peak.time_ns, peak.step, peak.phase);
  text_ += '\n';
  if (device.what_if) would_be(*device.what_if, peak.bytes);
  if (device.lives->out_of_memory > 0)
    line("out of memory", device.lives->out_of_memory == 1
                              ? "once"
                              : fmt::format("{} times", count_text(device.lives->out_of_memory)));
  if (!at.taken) {
    if (request_.at.kind == Moment::Kind::kOutOfMemory) line("", "memory never ran out");
    if (request_.at.kind == Moment::Kind::kDump)
      line("", "nobody asked for a look (pleat.trace.dump())");
    return;
  }
  if (request_.at.kind != Moment::Kind::kPeak) line("moment", when(at.time_ns, at.step, at.phase));
  line("live", size_text(at.totals.live()));
  if (device.what_if)
    line("", size_text(device.what_if->at) + " " + what_if_text(*request_.what_if));
  line("reserved", size_text(at.totals.reserved()));
  if (at.resident >= 0)
    line("resident", size_text(at.resident) + " of the process, as last sampled");
  classes(at, device.lives->device < 0);
}

TextTable made_of(const trace::ClassBytes& bytes, std::int64_t live) {
  TextTable table({{"made of", Align::kLeft}, {"size"}, {"of live"}});
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    if (bytes[i] != 0)
      table.add(
          {std::string(trace::kClassNames[i]), size_text(bytes[i]), share_of(bytes[i], live)});
  return table;
}

void TextWriter::classes(const Snapshot& at, bool is_host) {
  TextTable table = made_of(at.totals.bytes, at.totals.live());
  const auto beside = [&](const char* name, std::int64_t bytes) {
    if (bytes > 0) table.add({std::string("+ ") + name, size_text(bytes), ""});
  };
  beside("slack", at.totals.slack());
  beside("cached", at.totals.cached());
  if (is_host) beside("small", at.small);
  if (is_host && at.resident >= 0) beside("other", at.other);
  if (!table.empty()) this->table(table);
}

// ---- with other bits ----------------------------------------------------------------------------

void TextWriter::would_be(const WhatIfSummary& what_if, std::int64_t peak) {
  std::string words =
      fmt::format("{} {}", size_text(what_if.peak.bytes), what_if_text(*request_.what_if));
  const std::string share = share_of(what_if.peak.bytes, peak);
  if (!share.empty()) words += fmt::format(", {} of that", share);
  if (what_if.peak.bytes > 0)
    words += "; at " + when(what_if.peak.time_ns, what_if.peak.step, what_if.peak.phase);
  line("would be", words);
}

void TextWriter::what_if(const DeviceSummary& device) {
  if (!device.what_if || device.what_if->peak.bytes <= 0) return;
  title(what_if_text(*request_.what_if) + ": what most live would be made of");
  table(made_of(device.what_if->classes, device.what_if->peak.bytes));
}

// ---- places -------------------------------------------------------------------------------------

void TextWriter::groups(const DeviceSummary& device) {
  const std::int64_t live = device.at.totals.live();
  const std::string would_be = device.what_if ? what_if_text(*request_.what_if) : "";
  for (const bool by_line : {true, false}) {
    const std::vector<trace::Group>& groups = by_line ? device.by_line : device.by_operator;
    if (groups.empty()) continue;
    title(by_line ? "largest at that moment, by line" : "by operator");
    TextTable table({{"size"},
                     {would_be},
                     {"of live", Align::kRight, false, 2},
                     {"blocks", Align::kRight, false, 1},
                     {"class", Align::kLeft},
                     {"born in step", Align::kRight, false, 3},
                     {"operator", Align::kLeft, true},
                     {by_line ? "line" : "", Align::kLeft, true}});
    this->table(std::move(table), groups, [&](const trace::Group& group) -> Row {
      return {size_text(group.bytes),
              device.what_if ? size_text(group.would_be) : "",
              share_of(group.bytes, live),
              count_text(group.count),
              std::string(trace::class_name(group.of)),
              born_text(group),
              op(group.op),
              by_line ? place(group.frame) : ""};
    });
  }
}

// Activations that backward does not need and the program did not release.
void TextWriter::kept(const DeviceSummary& device) {
  if (request_.filter.of_class || device.by_line.size() <= request_.top) return;  // seen above
  TextTable table({{"size"},
                   {"blocks", Align::kRight, false, 1},
                   {"born in step", Align::kRight, false, 2},
                   {"operator", Align::kLeft, true},
                   {"line", Align::kLeft, true}});
  std::size_t rows = 0;
  for (const trace::Group& group : device.by_line) {
    if (group.of != ByteClass::kKept || rows++ >= request_.top) continue;
    table.add({size_text(group.bytes), count_text(group.count), born_text(group), op(group.op),
               place(group.frame)});
  }
  if (table.empty()) return;
  title("kept by the program beyond its phase");
  this->table(table);
}

// ---- the whole trace ----------------------------------------------------------------------------

void TextWriter::growth(const DeviceSummary& device) {
  const trace::Growth& growth = device.growth;
  title("growth over steps");
  if (!growth.known) {
    const std::size_t missing = trace::kLeastSteps - lives_.steps.size();
    text_ += fmt::format("  too few steps to tell: {} of at least {}\n", lives_.counted_steps,
                         lives_.counted_steps + missing);
    return;
  }
  if (growth.lines.empty()) {
    text_ += "  nothing stays\n";
    return;
  }
  TextTable table({{"a step"},
                   {"in all"},
                   {"blocks", Align::kRight, false, 1},
                   {"in steps", Align::kRight, false, 2},
                   {"operator", Align::kLeft, true},
                   {"line", Align::kLeft, true}});
  for (std::size_t i = 0; i < std::min(growth.lines.size(), request_.top); ++i) {
    const trace::GrowthLine& line = growth.lines[i];
    table.add({size_text(static_cast<std::int64_t>(line.bytes_per_step)), size_text(line.bytes),
               count_text(line.count), fmt::format("{} of {}", line.steps, growth.steps),
               op(line.op), place(line.frame)});
  }
  this->table(table);
}

void TextWriter::fragmentation(const DeviceSummary& device) {
  const auto& peaks = device.lives->peaks;
  title("fragmentation");
  line("reserved",
       fmt::format("at most {}, live at most {}", size_text(peaks[PLEAT_TRACE_RESERVED].bytes),
                   size_text(peaks[PLEAT_TRACE_REQUESTED].bytes)));
  if (!device.at.taken) return;
  line("cached", fmt::format("{} at that moment", size_text(device.at.totals.cached())));
  const trace::Gaps& gaps = device.at.gaps;
  if (gaps.segment_bytes > 0)
    line("largest gap", fmt::format("{} of {} free in segments of {}", size_text(gaps.largest),
                                    size_text(gaps.free_bytes), size_text(gaps.segment_bytes)));
}

// The reasons of core/reasons.h, in the words of a user.
std::string_view in_words(std::string_view why) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kWords{{
      {"operator", "the operator bears no noise"},
      {"function", "saved by a function that Pleat cannot look into"},
      {"pole", "a division, logarithm, comparison or loss follows"},
      {"function_behind", "a function that Pleat cannot look into follows"},
      {"no_proof", "nothing that follows shows noise to be harmless"},
      {"no_room", "memory was short before a proof came"},
      {"computed_weight", "computed from weights alone"},
      {"derivative", "results of derivatives are made of it"},
      {"in_backward", "saved while backward runs"},
      {"rule", "the option `rule` says so"},
      {"assigned", "its bits by sensitivity say so"},
      {"may_bear_noise", "nothing is coded (bits:off), or coding gains too little"},
  }};
  for (const auto& [name, words] : kWords)
    if (why == name) return words;
  return why;
}

void TextWriter::exact(const DeviceSummary& device) {
  if (device.exact.empty()) return;
  title("stored exactly, though floats, and why");
  TextTable table({{"size"},
                   {"tensors", Align::kRight, false, 1},
                   {"why", Align::kLeft, true},
                   {"operator", Align::kLeft, true},
                   {"line", Align::kLeft, true}});
  this->table(std::move(table), device.exact, [&](const trace::ExactLine& line) -> Row {
    return {size_text(line.bytes), count_text(line.records),
            bridge::printable(in_words(line.why), kMostWord), op(line.op), place(line.frame)};
  });
}

void TextWriter::proved(const DeviceSummary& device) {
  if (device.proved.empty()) return;
  title("may bear noise, and what shows it to be harmless");
  TextTable table({{"size"}, {"saves", Align::kRight, false, 1}, {"shown by", Align::kLeft, true}});
  this->table(std::move(table), device.proved, [](const trace::ProvedLine& line) -> Row {
    return {size_text(line.bytes), count_text(line.saves),
            line.by.empty() ? "-" : bridge::printable(line.by, kMostWord)};
  });
}

// Saved for backward by stock's means: storages that Pleat cannot or must not take over.
void TextWriter::left_alone(const DeviceSummary& device) {
  if (device.left.empty()) return;
  title("saved for backward and left alone, and why");
  TextTable table({{"size"},
                   {"tensors", Align::kRight, false, 1},
                   {"why", Align::kLeft, true},
                   {"line", Align::kLeft, true}});
  this->table(std::move(table), device.left, [&](const trace::LeftLine& line) -> Row {
    return {size_text(line.bytes), count_text(line.tensors), bridge::printable(line.why, kMostWord),
            place(line.frame)};
  });
}

void TextWriter::compression(const DeviceSummary& device) {
  const trace::CompressionSums& all = device.compression;
  if (all.saved == 0 && all.encoded == 0 && all.restored == 0) return;
  title("compression");
  const auto ratio = [](const trace::CompressionSums& sums) {
    if (sums.payload_bytes <= 0) return std::string("-");
    return fmt::format("{:.2f}x", static_cast<double>(sums.source_bytes) /
                                      static_cast<double>(sums.payload_bytes));
  };
  line("saved", fmt::format("{} tensors, {}", count_text(all.saved), size_text(all.saved_bytes)));
  line("compressed",
       fmt::format("{}, {} to {} ({})", count_text(all.encoded), size_text(all.source_bytes),
                   size_text(all.payload_bytes), ratio(all)));
  if (all.encode_ns > 0 || all.restore_ns > 0)
    line("time", fmt::format("{} to compress, {} to restore", milliseconds(all.encode_ns),
                             milliseconds(all.restore_ns)));
  line("restored", fmt::format("{}, {}", count_text(all.restored), size_text(all.restored_bytes)));
  for (const trace::HeldReason& held : device.held)
    line("left raw", fmt::format("{}, {}: {}", count_text(held.records), size_text(held.bytes),
                                 bridge::printable(in_words(held.reason), kMostWord)));
  TextTable table({{"saved"},
                   {"compressed"},
                   {"to"},
                   {"ratio"},
                   {"left raw", Align::kRight, false, 1},
                   {"restored", Align::kRight, false, 2},
                   {"time", Align::kRight, false, 3},
                   {"operator", Align::kLeft, true},
                   {"line", Align::kLeft, true}});
  const std::size_t rows = std::min(device.compression_lines.size(), request_.top);
  for (std::size_t i = 0; i < rows; ++i) {
    const trace::CompressionLine& line = device.compression_lines[i];
    const std::uint64_t spent = line.sums.encode_ns + line.sums.restore_ns;
    table.add({size_text(line.sums.saved_bytes), size_text(line.sums.source_bytes),
               size_text(line.sums.payload_bytes), ratio(line.sums),
               size_text(line.sums.held_bytes), size_text(line.sums.restored_bytes),
               spent == 0 ? "" : milliseconds(spent), op(line.op), place(line.frame)});
  }
  if (!table.empty()) this->table(table);
}

}  // namespace

std::string text_of(const TraceSummary& summary, trace::Lines& lines,
                    const TraceSummaryRequest& request) {
  return TextWriter(summary, lines, request).text();
}

}  // namespace pleat::cli

// The difference of two traces for a person: a few lines and tables for each device.
#include <fmt/format.h>

#include <algorithm>

#include "diff.h"
#include "tools/pleat/text_table.h"
#include "tools/pleat/trace_command/process.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::PlacePair;
using trace::PlaceSum;

class TextWriter {
 public:
  TextWriter(const TraceDiff& diff, const TraceDiffRequest& request)
      : diff_(diff), request_(request) {}

  [[nodiscard]] std::string text() {
    side("A", diff_.a);
    side("B", diff_.b);
    for (const DeviceDiff& device : diff_.devices) {
      name_ = device_text(device.device);
      moments(device);
      figures("highest", peak_figures(diff_, device));
      figures("made of", moment_figures(device));
      figures("saved for backward", saved_figures(device));
      places(device.by_line, true);
      places(device.by_operator, false);
    }
    if (diff_.devices.empty()) text_ += "\nnothing is known of any memory\n";
    return text_;
  }

 private:
  void side(const char* letter, const DiffSide& side);
  void moments(const DeviceDiff& device);
  // Rows of zeros are left out.
  void figures(const char* title, const std::vector<DiffFigure>& figures);
  void places(const std::vector<PlacePair>& pairs, bool by_line);
  template <class Iterator>
  void places(std::string_view title, Iterator first, Iterator last, bool by_line);

  const TraceDiff& diff_;
  const TraceDiffRequest& request_;
  std::string name_;
  std::string text_;
};

// ---- words --------------------------------------------------------------------------------------

std::string change_text(std::int64_t bytes) { return (bytes > 0 ? "+" : "") + size_text(bytes); }

std::string per_cent_text(std::int64_t from, std::int64_t to) {
  if (from <= 0) return "";
  return fmt::format("{:+.1f} %", 100 * (static_cast<double>(to) / static_cast<double>(from) - 1));
}

// "-": there is none.
template <class T, class Words>
std::string one_text(const std::optional<T>& one, Words&& words) {
  return one ? words(*one) : std::string("-");
}

// "a -> b"; one of them if they are the same, or the only one.
template <class Words>
std::string both_text(const PlacePair& pair, Words&& words) {
  const std::string a = one_text(pair.a, words);
  const std::string b = one_text(pair.b, words);
  if (!pair.a || a == b) return b;
  return pair.b ? a + " -> " + b : a;
}

std::string printed(std::string_view text) {
  return text.empty() ? "-" : bridge::printable(text, kMostWord);
}

// B's, and where A's is another line, that.
std::string line_text(const PlacePair& pair) {
  const PlaceSum& shown = pair.b ? *pair.b : *pair.a;
  std::string text = printed(shown.place.text());
  if (pair.a && pair.b && pair.a->place.line != pair.b->place.line && !pair.a->place.native)
    text += fmt::format(" (A: {})", pair.a->place.line);
  return text;
}

// ---- tables -------------------------------------------------------------------------------------

void TextWriter::side(const char* letter, const DiffSide& side) {
  const trace::Lives& lives = side.replay->lives();
  const std::string who = who_text(side.file->process());
  text_ += fmt::format("{}: {}{}{}\n", letter, shown_path(side.path), who.empty() ? "" : ": ", who);
  text_ += fmt::format("   {:.3f} s, {} steps, {} events\n", lives.seconds(lives.last_time_ns),
                       count_text(lives.counted_steps), count_text(lives.told()));
  for (const TraceNote& note :
       notes_of(*side.file, lives, side.summary.disagreements, request_.filter.most_events))
    text_ += fmt::format("   {}: {}\n", note.name, note.words);
}

void TextWriter::moments(const DeviceDiff& device) {
  text_ += fmt::format("\n{}:", name_);
  const auto add = [&](const char* letter, const DiffSide& side, const DeviceSummary* of) {
    text_ += fmt::format(" {} ", letter);
    if (of == nullptr || !of->at.taken) {
      text_ += of == nullptr ? "knows nothing of it" : "has nothing";
      return;
    }
    const trace::Lives& lives = side.replay->lives();
    text_ += fmt::format("at {:.3f} s", lives.seconds(of->at.time_ns));
    if (of->at.step != trace::kNoStep)
      text_ += fmt::format(", step {}", step_text(lives, of->at.step));
    text_ += fmt::format(", {}", trace::phase_name(of->at.phase));
  };
  add("A", diff_.a, device.a);
  text_ += ';';
  add("B", diff_.b, device.b);
  text_ += '\n';
}

void TextWriter::figures(const char* title, const std::vector<DiffFigure>& figures) {
  TextTable table({{title, Align::kLeft}, {"A"}, {"B"}, {"change"}, {"of A"}});
  for (const DiffFigure& one : figures) {
    if (one.a.value_or(0) == 0 && one.b.value_or(0) == 0) continue;
    table.add({one.name, one_text(one.a, size_text), one_text(one.b, size_text),
               change_text(one.change()), per_cent_text(one.a.value_or(0), one.b.value_or(0))});
  }
  if (!table.empty()) text_ += table.text(terminal_columns()) + '\n';
}

void TextWriter::places(const std::vector<PlacePair>& pairs, bool by_line) {
  const auto grew = [](const PlacePair& pair) { return pair.change() > 0; };
  const auto shrank = [](const PlacePair& pair) { return pair.change() < 0; };
  const auto end_of_growth = std::partition_point(pairs.begin(), pairs.end(), grew);
  const auto begin_of_shrinking =
      std::find_if(pairs.rbegin(), pairs.rend(), [&](const auto& pair) { return !shrank(pair); });
  const char* const by = by_line ? "line" : "operator";
  places(fmt::format("what grew, by {}", by), pairs.begin(), end_of_growth, by_line);
  places(fmt::format("what shrank, by {}", by), pairs.rbegin(), begin_of_shrinking, by_line);
}

template <class Iterator>
void TextWriter::places(std::string_view title, Iterator first, Iterator last, bool by_line) {
  if (first == last) return;
  const auto all = static_cast<std::size_t>(last - first);
  TextTable table({{"change"},
                   {"A"},
                   {"B"},
                   {"blocks", Align::kRight, false, 1},
                   {"class", Align::kLeft, false, 2},
                   {"operator", Align::kLeft, true},
                   {by_line ? "line" : "", Align::kLeft, true},
                   {"", Align::kLeft}});
  const auto bytes = [](const PlaceSum& sum) { return size_text(sum.all()); };
  const auto blocks = [](const PlaceSum& sum) { return count_text(sum.blocks); };
  const auto of_class = [](const PlaceSum& sum) {
    return std::string(trace::class_name(sum.largest()));
  };
  for (std::size_t i = 0; i < std::min(all, request_.top); ++i) {
    const PlacePair& pair = first[static_cast<std::ptrdiff_t>(i)];
    const PlaceSum& shown = pair.b ? *pair.b : *pair.a;
    table.add({change_text(pair.change()), one_text(pair.a, bytes), one_text(pair.b, bytes),
               both_text(pair, blocks), both_text(pair, of_class), printed(shown.place.op),
               by_line ? line_text(pair) : "",
               !pair.a   ? "new"
               : !pair.b ? "gone"
                         : ""});
  }
  text_ += fmt::format("{}, {}\n", name_, title) + table.text(terminal_columns());
  text_ += more_text(all, request_.top);
  text_ += '\n';
}

}  // namespace

std::string text_of(const TraceDiff& diff, const TraceDiffRequest& request) {
  std::string text = TextWriter(diff, request).text();
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace pleat::cli

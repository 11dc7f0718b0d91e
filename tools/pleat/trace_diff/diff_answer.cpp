// The difference of two traces: A and B, then lines and tables for each device. In JSON, bytes are
// whole numbers, and an absent value is null.
#include <fmt/format.h>

#include <algorithm>

#include "diff.h"
#include "tools/pleat/trace_command/describe.h"
#include "tools/pleat/trace_command/text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

using trace::PlacePair;
using trace::PlaceSum;

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

// B's, and where A's is another line, that.
std::string line_text(const PlacePair& pair) {
  const PlaceSum& shown = pair.b ? *pair.b : *pair.a;
  std::string text = word_text(shown.place.text());
  if (pair.a && pair.b && pair.a->place.line != pair.b->place.line && !pair.a->place.native)
    text += fmt::format(" (A: {})", pair.a->place.line);
  return text;
}

// ---- the two traces -----------------------------------------------------------------------------

Section side(const char* letter, const DiffSide& side, std::uint64_t most_events) {
  Section to;
  const trace::Lives& lives = side.replay->lives();
  const std::string who = who_text(side.file->process());
  put_run(to, side.path, *side.file, lives, side.summary.disagreements);
  to.text(fmt::format("{}: {}{}{}\n", letter, shown_path(side.path), who.empty() ? "" : ": ", who));
  to.text(fmt::format("   {:.3f} s, {} steps, {} events\n", lives.seconds(lives.last_time_ns),
                      count_text(lives.counted_steps), count_text(lives.told())));
  for (const TraceNote& note : notes_of(*side.file, lives, side.summary.disagreements, most_events))
    to.text(fmt::format("   {}: {}\n", note.name, note.words));
  return to;
}

void put_moment(Section& to, const char* key, const char* letter, const DiffSide& side,
                const DeviceSummary* device) {
  to.value(key, nullptr);
  to.text(fmt::format(" {} ", letter));
  if (device == nullptr || !device->at.taken)
    return to.text(device == nullptr ? "knows nothing of it" : "has nothing");
  const trace::Lives& lives = side.replay->lives();
  const trace::Snapshot& at = device->at;
  to.text("at " + moment_text(lives, at.time_ns, at.step, at.phase));
  to.value(key, {{"event", at.event},
                 {"seconds", lives.seconds(at.time_ns)},
                 {"step", or_null(lives.step_number(at.step))},
                 {"phase", trace::phase_name(at.phase)}});
}

// ---- tables -------------------------------------------------------------------------------------

// Text leaves rows of zeros out.
void put_figures(Section& to, const char* key, const char* title,
                 const std::vector<DiffFigure>& figures) {
  Table table({word_column(title), figure_column("A"), figure_column("B"), figure_column("change"),
               figure_column("of A")});
  Json values = Json::object();
  for (const DiffFigure& one : figures) {
    std::string name = one.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    values[name + "_bytes"] = {
        {"a", or_null(one.a)}, {"b", or_null(one.b)}, {"change", one.change()}};
    if (one.a.value_or(0) == 0 && one.b.value_or(0) == 0) continue;
    table.add({one.name, one_text(one.a, size_text), one_text(one.b, size_text),
               change_text(one.change()), per_cent_text(one.a.value_or(0), one.b.value_or(0))});
  }
  to.value(key, std::move(values));
  to.table("", "", table);
  if (!table.empty()) to.text("\n");
}

Json place_json(const std::optional<PlaceSum>& sum, bool by_line) {
  if (!sum) return {};
  Json json;
  if (by_line)
    json["line"] = sum->place.file.empty() ? Json() : Json(sum->place.text(/*whole_path=*/true));
  json["bytes"] = sum->all();
  json["blocks"] = sum->blocks;
  json["classes"] = Json::object();
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    if (sum->bytes[i] != 0) json["classes"][std::string(trace::kClassNames[i])] = sum->bytes[i];
  return json;
}

// Of `all` pairs from `first` on the first `most`.
template <class Iterator>
void put_pairs(Section& to, const char* key, const std::string& title, Iterator first,
               std::size_t all, bool by_line, std::size_t most) {
  Table table({figure_column("change", "change_bytes"), figure_column("A", "a"),
               figure_column("B", "b"), figure_column("blocks", "", 1), word_column("class", "", 2),
               name_column("operator", "op"), name_column(by_line ? "line" : ""), word_column("")});
  const auto bytes = [](const PlaceSum& sum) { return size_text(sum.all()); };
  const auto blocks = [](const PlaceSum& sum) { return count_text(sum.blocks); };
  const auto of_class = [](const PlaceSum& sum) {
    return std::string(trace::class_name(sum.largest()));
  };
  for (std::size_t i = 0; i < std::min(all, most); ++i, ++first) {
    const PlacePair& pair = *first;
    const std::string& op = (pair.b ? *pair.b : *pair.a).place.op;
    table.add({{pair.change(), change_text(pair.change())},
               {place_json(pair.a, by_line), one_text(pair.a, bytes)},
               {place_json(pair.b, by_line), one_text(pair.b, bytes)},
               both_text(pair, blocks),
               both_text(pair, of_class),
               {op.empty() ? Json() : Json(op), word_text(op)},
               by_line ? line_text(pair) : "",
               !pair.a   ? "new"
               : !pair.b ? "gone"
                         : ""});
  }
  put_table(to, key, title, table, all);
  if (!table.empty()) to.text("\n");
}

// Growing places come first, then shrinking ones; as many of both.
Section places(const DeviceDiff& device, bool by_line, std::size_t most) {
  const std::vector<PlacePair>& pairs = by_line ? device.by_line : device.by_operator;
  const auto count = [&](auto&& is_one) {
    return static_cast<std::size_t>(std::count_if(pairs.begin(), pairs.end(), is_one));
  };
  const std::string name = device_text(device.device);
  const char* const by = by_line ? "line" : "operator";
  Section to;
  put_pairs(to, "grew", fmt::format("{}, what grew, by {}\n", name, by), pairs.begin(),
            count([](const PlacePair& pair) { return pair.change() > 0; }), by_line, most);
  put_pairs(to, "shrank", fmt::format("{}, what shrank, by {}\n", name, by), pairs.rbegin(),
            count([](const PlacePair& pair) { return pair.change() < 0; }), by_line, most);
  return to;
}

Section device_section(const TraceDiff& diff, const DeviceDiff& device, std::size_t most) {
  Section to;
  to.value("device", device_text(device.device));
  Section moment;
  moment.text(fmt::format("\n{}:", device_text(device.device)));
  put_moment(moment, "a", "A", diff.a, device.a);
  moment.text(";");
  put_moment(moment, "b", "B", diff.b, device.b);
  moment.text("\n");
  to.section("moment", std::move(moment));
  put_figures(to, "peaks", "highest", peak_figures(diff, device));
  put_figures(to, "made_of", "made of", moment_figures(device));
  put_figures(to, "saved", "saved for backward", saved_figures(device));
  to.value(
      "listed_bytes",
      {{"a", device.bytes_a}, {"b", device.bytes_b}, {"change", device.bytes_b - device.bytes_a}});
  to.section("by_line", places(device, true, most));
  to.section("by_operator", places(device, false, most));
  return to;
}

}  // namespace

Section answer_of(const TraceDiff& diff, const TraceDiffRequest& request) {
  Section to;
  to.section("a", side("A", diff.a, request.filter.most_events));
  to.section("b", side("B", diff.b, request.filter.most_events));
  to.value("devices", Json::array());
  for (const DeviceDiff& device : diff.devices)
    to.element("devices", device_section(diff, device, request.top));
  if (diff.devices.empty()) to.text("\nnothing is known of any memory\n");
  to.trim();
  return to;
}

}  // namespace pleat::cli

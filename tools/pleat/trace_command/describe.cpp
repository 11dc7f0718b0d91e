#include "describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {

// ---- cells --------------------------------------------------------------------------------------

Cell size_cell(std::int64_t bytes) { return {bytes, size_text(bytes)}; }
std::string size_or_none(std::int64_t bytes) { return bytes == 0 ? "" : size_text(bytes); }
Cell count_cell(std::uint64_t count) { return {count, count_text(count)}; }

std::string word_text(std::string_view word) {
  return word.empty() ? "-" : bridge::printable(word, kMostWord);
}

Cell PlaceCells::op(std::uint32_t id) const {
  const std::string_view name = definitions_.string(id);
  return {id == 0 ? Json() : Json(name), word_text(name)};
}

Cell PlaceCells::line(std::uint32_t frame) const {
  if (frame == 0) return {Json(), "-"};
  return {lines_.long_text(frame), bridge::printable(lines_.text(frame), kMostWord)};
}

std::string moment_text(const trace::Lives& lives, std::uint64_t time_ns, std::uint32_t step,
                        std::uint8_t phase) {
  const std::string in_step = step == trace::kNoStep ? "" : ", step " + step_text(lives, step);
  return fmt::format("{:.3f} s{}, {}", lives.seconds(time_ns), in_step, trace::phase_name(phase));
}

std::string ratio_text(std::int64_t from, std::int64_t to) {
  return to <= 0 ? "-"
                 : fmt::format("{:.2f}x", static_cast<double>(from) / static_cast<double>(to));
}

std::string title_text(std::string_view device, std::string_view words) {
  return fmt::format("\n{}, {}\n", device, words);
}

void put_table(Section& to, std::string_view key, std::string_view title, const Table& table,
               std::size_t rows) {
  to.table(key, title, table);
  if (!table.empty() && rows > table.rows())
    to.text(fmt::format("  and {} more\n", count_text(rows - table.rows())));
}

// ---- a trace ------------------------------------------------------------------------------------

std::string who_text(const trace::Process& process) {
  std::string who;
  const auto add = [&who](std::string_view name, std::string_view value) {
    if (!value.empty())
      who += fmt::format("{}{} {}", who.empty() ? "" : ", ", name, bridge::printable(value));
  };
  if (process.rank >= 0)
    add("rank", process.world_size > 0 ? fmt::format("{} of {}", process.rank, process.world_size)
                                       : std::to_string(process.rank));
  add("torch", process.torch);
  add("pleat", process.pleat);
  if (process.pid != 0) add("process", std::to_string(process.pid));
  add("on", process.host);
  return who;
}

Json process_json(const trace::Process& process) {
  const auto known = [](std::int64_t number) { return number >= 0 ? Json(number) : Json(); };
  const auto said = [](const std::string& words) { return words.empty() ? Json() : Json(words); };
  return {{"pid", process.pid},
          {"host", said(process.host)},
          {"rank", known(process.rank)},
          {"local_rank", known(process.local_rank)},
          {"world_size", known(process.world_size)},
          {"torch", said(process.torch)},
          {"pleat", said(process.pleat)},
          {"options", said(process.options)},
          {"command", said(process.command)},
          {"part", std::max<std::uint64_t>(process.part, 1)},
          {"start_wall_ns", process.start_wall_ns}};
}

void put_run(Section& to, const std::string& path, const trace::File& file,
             const trace::Lives& lives, std::uint64_t disagreements) {
  to.value("file", path);
  to.value("process", process_json(file.process()));
  to.value("seconds", lives.seconds(lives.last_time_ns));
  to.value("steps", lives.counted_steps);
  to.value("events", lives.told());
  to.value("lost_events", lives.lost_events);
  to.value("incomplete", file.incomplete());
  to.value("damaged", file.problems().all() + lives.problems.all());
  to.value("disagreements", lives.disagreements + disagreements);
}

Json classes_json(const trace::ClassBytes& bytes) {
  auto json = Json::object();
  for (std::size_t i = 0; i < trace::kByteClasses; ++i)
    json[std::string(trace::kClassNames[i])] = bytes[i];
  return json;
}

std::vector<TraceNote> notes_of(const trace::File& file, const trace::Lives& lives,
                                std::uint64_t disagreements, std::uint64_t most_events) {
  std::vector<TraceNote> notes;
  if (file.incomplete())
    notes.push_back({"incomplete", "the trace was not ended: it has what came before the cut"});
  if (lives.events < file.records() && most_events == lives.events)
    notes.push_back({"not all", fmt::format("{} events more were not read",
                                            count_text(file.records() - lives.events))});
  if (lives.lost_events > 0)
    notes.push_back({"lost", fmt::format("{} events; what follows is less than the truth",
                                         count_text(lives.lost_events))});
  const std::uint64_t damaged = file.problems().all() + lives.problems.all();
  if (damaged > 0)
    notes.push_back(
        {"damaged", fmt::format("{} faults in the file, passed over", count_text(damaged))});
  disagreements += lives.disagreements;
  if (disagreements > 0)
    notes.push_back({"disagreement", fmt::format("{} events contradict what came before them",
                                                 count_text(disagreements))});
  return notes;
}

}  // namespace pleat::cli

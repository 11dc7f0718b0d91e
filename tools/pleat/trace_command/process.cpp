#include "process.h"

#include <fmt/format.h>

#include <algorithm>

#include "text.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {

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

nlohmann::ordered_json process_json(const trace::Process& process) {
  using Json = nlohmann::ordered_json;
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

nlohmann::ordered_json classes_json(const trace::ClassBytes& bytes) {
  auto json = nlohmann::ordered_json::object();
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

// Who wrote a trace, and how whole it is: in words, and for a program; bytes by class for a
// program.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/pleat/trace/class_bytes.h"
#include "tools/pleat/trace/lives.h"
#include "tools/pleat/trace/reader.h"

namespace pleat::cli {

// "rank 1 of 4, torch 2.11.0, pleat 0.1.0, process 4711, on host"; empty: the trace does not say.
[[nodiscard]] std::string who_text(const trace::Process& process);
// An unknown value is null.
[[nodiscard]] nlohmann::ordered_json process_json(const trace::Process& process);

// All of them, by name.
[[nodiscard]] nlohmann::ordered_json classes_json(const trace::ClassBytes& bytes);

// Something that a reader of figures has to know.
struct TraceNote {
  const char* name;
  std::string words;
};
// `disagreements`: of the second pass. `most_events`: reading was to end there.
[[nodiscard]] std::vector<TraceNote> notes_of(const trace::File& file, const trace::Lives& lives,
                                              std::uint64_t disagreements,
                                              std::uint64_t most_events);

}  // namespace pleat::cli

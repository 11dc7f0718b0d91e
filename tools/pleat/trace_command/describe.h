// Parts of an answer about a trace: who wrote it and how whole it is, cells of sizes and places,
// bytes by class.
#pragma once

#include <string>
#include <vector>

#include "tools/pleat/answer.h"
#include "tools/pleat/trace/class_bytes.h"
#include "tools/pleat/trace/definitions.h"
#include "tools/pleat/trace/lines.h"
#include "tools/pleat/trace/lives.h"
#include "tools/pleat/trace/reader.h"

namespace pleat::cli {

// ---- cells --------------------------------------------------------------------------------------

[[nodiscard]] Cell size_cell(std::int64_t bytes);
[[nodiscard]] std::string size_or_none(std::int64_t bytes);  // 0: empty
[[nodiscard]] Cell count_cell(std::uint64_t count);
// Printable, and of at most kMostWord characters; of none "-".
[[nodiscard]] std::string word_text(std::string_view word);

// Of numbers in a file's tables; 0: unknown.
class PlaceCells {
 public:
  PlaceCells(const trace::Definitions& definitions, trace::Lines& lines)
      : definitions_(definitions), lines_(lines) {}
  [[nodiscard]] Cell op(std::uint32_t id) const;
  [[nodiscard]] Cell line(std::uint32_t frame) const;

 private:
  const trace::Definitions& definitions_;
  trace::Lines& lines_;
};

// "12.345 s, step 4, forward".
[[nodiscard]] std::string moment_text(const trace::Lives& lives, std::uint64_t time_ns,
                                      std::uint32_t step, std::uint8_t phase);

[[nodiscard]] std::string ratio_text(std::int64_t from, std::int64_t to);  // "2.50x"; of 0: "-"

// Above a table: "\nhost, by line\n".
[[nodiscard]] std::string title_text(std::string_view device, std::string_view words);

// Adds a table of the first of `rows` rows: its text ends with the number of others.
void put_table(Section& to, std::string_view key, std::string_view title, const Table& table,
               std::size_t rows);

// ---- a trace ------------------------------------------------------------------------------------

// "rank 1 of 4, torch 2.11.0, pleat 0.1.0, process 4711, on host"; empty: the trace does not say.
[[nodiscard]] std::string who_text(const trace::Process& process);
// An unknown value is null.
[[nodiscard]] Json process_json(const trace::Process& process);
// Adds the file, its process, its length, and how whole it is. `disagreements`: of the second pass.
void put_run(Section& to, const std::string& path, const trace::File& file,
             const trace::Lives& lives, std::uint64_t disagreements);
// All of them, by name.
[[nodiscard]] Json classes_json(const trace::ClassBytes& bytes);

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

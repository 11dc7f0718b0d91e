// A request to a trace, and how the commands of `pleat trace` end.
#pragma once

#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "moment.h"
#include "tools/pleat/trace/filter.h"
#include "tools/pleat/trace/groups.h"

namespace pleat::cli {

// Which file, and which part of it.
struct TraceSelection {
  std::string file;
  std::optional<int> device;  // -1: the host; none: all
  double since_seconds = 0;
  std::optional<double> until_seconds;
  trace::Filter filter;  // but for its times
  bool symbols = true;   // names of native functions are looked up
  std::vector<trace::GroupRule> groups;
  bool modules = true;  // report modules, if the trace has them
};

// Exit codes: 0; 2, no trace or an output that cannot be written; 3, over a limit. Reasons are one
// line on stderr.
inline constexpr int kTraceTrouble = 2;
inline constexpr int kOverLimit = 3;
// Says the line, and returns kTraceTrouble.
int trouble(std::string_view line);
// Of a file.
int trouble(const std::string& path, std::string_view why);
// What `act` returns. Where memory does not last for it, that is the trouble of the file.
template <class Act>
int with_memory(const std::string& path, std::string_view why, Act&& act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    return trouble(path, why);
  }
}

}  // namespace pleat::cli

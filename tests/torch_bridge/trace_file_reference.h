// The file that a pattern means, once more, written another way: each part between slashes by
// itself, signs found from the right. It also holds the properties of every pattern and process.
// The unit tests and the fuzzer share it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "torch_bridge/trace/file.h"

namespace pleat::bridge::testing {

inline std::optional<std::string> sign_of(char letter, const ProcessIdentity& who) {
  switch (letter) {
    case '%':
      return "%";
    case 'h':
      return who.host;
    case 'l':
      return std::to_string(who.local_rank.value_or(0));
    case 'p':
      return std::to_string(who.process);
    case 'r':
      return std::to_string(who.rank.value_or(0));
    case 't':
      return std::to_string(who.started);
    default:
      return std::nullopt;
  }
}

// A part of a path, which has no slash, with its signs replaced. `refused`: one of them is no part
// of a name.
inline std::string part_with_signs(std::string_view part, const ProcessIdentity& who,
                                   bool& refused) {
  const std::size_t first = part.find('%');
  if (first == std::string_view::npos || first + 1 == part.size()) return std::string(part);
  const std::optional<std::string> sign = sign_of(part[first + 1], who);
  refused |= sign && (sign->empty() || sign->find('/') != std::string::npos || *sign == "." ||
                      *sign == "..");
  // A percent sign that begins no sign stays; a sign can follow it.
  const std::string put = sign.value_or("%");
  return std::string(part.substr(0, first)) + put +
         part_with_signs(part.substr(first + (sign ? 2 : 1)), who, refused);
}

inline bool asks_who(std::string_view pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '%') continue;
    if (pattern[i + 1] == 'r' || pattern[i + 1] == 'p') return true;
    if (std::string_view("%hlt").find(pattern[i + 1]) != std::string_view::npos) ++i;
  }
  return false;
}

inline std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(path.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
}

// Empty: all holds.
inline std::string what_is_wrong(std::string_view pattern, const ProcessIdentity& who) {
  std::string problem;
  const std::string file = trace_file(pattern, who, problem);
  std::string again_problem;
  if (file != trace_file(pattern, who, again_problem) || problem != again_problem)
    return "another file the second time";

  bool refused = false;
  std::string wanted;
  for (std::size_t begin = 0; begin <= pattern.size();) {
    const std::size_t end = std::min(pattern.find('/', begin), pattern.size());
    wanted += part_with_signs(pattern.substr(begin, end - begin), who, refused);
    if (end < pattern.size()) wanted += '/';
    begin = end + 1;
  }
  if (refused != !problem.empty()) return "refused: " + problem;
  if (refused) return file.empty() ? "" : "refused, and a file";
  if (pattern.empty() || file.empty()) {
    // Only of nothing comes nothing; in a process with a rank that is the rank.
    const std::string of_nothing = who.rank ? ".rank" + std::to_string(*who.rank) : "";
    return pattern.empty() && file == of_nothing ? "" : "an empty name";
  }
  if (file.find('\0') != std::string::npos) return "a name with a NUL";

  const std::string folder = folder_of(file);
  const bool in_the_folder = folder == folder_of(wanted);
  const bool in_one_that_is_there = folder == wanted + '/';
  if (!in_the_folder && !in_one_that_is_there) return "in another folder: " + file;
  const std::string name = file.substr(folder.size());
  const bool typed = pattern.substr(folder_of(pattern).size()) == name;  // it is no folder: no file
  if (name.empty() || ((name == "." || name == "..") && !typed)) return "no name: " + file;
  const bool gets_rank = who.rank && !asks_who(pattern);
  std::string plain = name;
  if (gets_rank) {
    const std::string part = ".rank" + std::to_string(*who.rank);
    const std::size_t at = plain.rfind(part);
    if (at == std::string::npos) return "no rank in " + file;
    plain.erase(at, part.size());
  }
  const std::string last = wanted.substr(folder_of(wanted).size());
  const std::string given = in_the_folder && !last.empty() ? last : "pleat.trace";
  if (plain != given) return "another name than " + given + ": " + file;

  const std::string taken = trace_file_of_process(file, who);
  if (folder_of(taken) != folder || taken == file ||
      taken.find(std::to_string(who.process)) == std::string::npos)
    return "where the file is taken: " + taken;
  return "";
}

}  // namespace pleat::bridge::testing

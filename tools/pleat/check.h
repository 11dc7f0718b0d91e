// `pleat check`: runs a program once and says how far noise changes its gradients.
#pragma once

#include <filesystem>

namespace pleat::cli {

struct CheckRequest {
  unsigned passes = 3;
  bool stop = false;           // end the program once the passes were looked at
  std::filesystem::path json;  // empty: none
  char** command = nullptr;    // ends with a null
};

// Exit codes: 0, no surprise; 1, a surprise; 2, the check was incomplete.
inline constexpr int kSurprise = 1;
inline constexpr int kCouldNotLook = 2;

// A file for the results of the passes, empty and for this user alone. Throws std::system_error.
[[nodiscard]] std::filesystem::path make_check_file();

// Runs the command in the environment that is set, which names `results` to the bridge; prints the
// table on stderr as soon as it is there, and removes the file. Returns the exit code.
[[nodiscard]] int check(const CheckRequest& request, const std::filesystem::path& results);

}  // namespace pleat::cli

#include "python_torch.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace pleat::cli {
namespace fs = std::filesystem;
namespace {

// The output of `command`, or nullopt if it cannot be started or fails. Its stderr is dropped.
std::optional<std::string> output_of(const std::vector<std::string>& command) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failure =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; failure == 0 && (got = ::read(pipe_ends[0], buffer, sizeof buffer)) != 0;) {
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  ::close(pipe_ends[0]);
  if (failure != 0) return std::nullopt;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
}

// The text between the quotes of `__version__ = '2.11.0+cu130'`.
std::string version_in(const fs::path& file) {
  constexpr std::string_view kMarker = "__version__";
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(kMarker)) continue;
    const std::size_t open = line.find_first_of("'\"");
    if (open == std::string::npos) continue;
    const std::size_t close = line.find(line[open], open + 1);
    if (close != std::string::npos) return line.substr(open + 1, close - open - 1);
  }
  return {};
}

constexpr const char* kPrintPath =
    "import sys; print(sys.version.split()[0]); print('\\n'.join(p for p in sys.path if p))";

}  // namespace

PythonTorch find_python_torch(const std::string& python) {
  PythonTorch result;
  std::optional<std::string> text;
  const std::vector<std::string> names =
      python.empty() ? std::vector<std::string>{"python", "python3"} : std::vector{python};
  for (const std::string& name : names) {
    result.python = name;
    if ((text = output_of({name, "-c", kPrintPath}))) break;
  }
  if (!text) return result;
  result.python_runs = true;
  std::istringstream lines(*text);
  std::getline(lines, result.python_version);
  for (std::string folder; std::getline(lines, folder);) {
    const fs::path torch = fs::path(folder) / "torch";
    std::error_code error;
    if (!fs::exists(torch / "__init__.py", error)) continue;
    result.folder = torch;
    result.version = version_in(torch / "version.py");
    break;
  }
  return result;
}

}  // namespace pleat::cli

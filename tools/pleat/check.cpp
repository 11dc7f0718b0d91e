#include "commands.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "program.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

// --- the program ------------------------------------------------------------------------------

constexpr std::array kPassedOn{SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr std::array kOfTerminal{SIGINT, SIGQUIT};

volatile sig_atomic_t program = 0;
struct sigaction pipe_before {};

void pass_on(int signal) {
  if (program > 0) ::kill(program, signal);
}

// A signal that ends the program is for the program: this process waits for its end, and reports.
void pass_signals_on() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  for (const int signal : kPassedOn) ::sigaction(signal, &action, nullptr);
  action.sa_handler = SIG_IGN;  // a terminal sends these to both
  for (const int signal : kOfTerminal) ::sigaction(signal, &action, nullptr);
  ::sigaction(SIGPIPE, &action, &pipe_before);  // the reader of our table may go
}

// Starts the program. False: errno says why not.
bool start(char** command) {
  sigset_t passed_on;  // one that comes before the program is known would be lost
  sigset_t before;
  sigemptyset(&passed_on);
  for (const int signal : kPassedOn) sigaddset(&passed_on, signal);
  ::sigprocmask(SIG_BLOCK, &passed_on, &before);
  const pid_t pid = ::fork();
  if (pid != 0) {
    program = pid;
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return pid > 0;
  }
  for (const int signal : kPassedOn) ::signal(signal, SIG_DFL);
  for (const int signal : kOfTerminal) ::signal(signal, SIG_DFL);
  ::sigaction(SIGPIPE, &pipe_before, nullptr);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::_exit(become(command));
}

// --- what the processes say -------------------------------------------------------------------

// The newest line of each process that has said anything, in the order of their first lines. Each
// line of the file is read once: there may be thousands.
class Results {
 public:
  explicit Results(fs::path file) : file_(std::move(file)) {}
  const std::vector<Json>& read() {
    std::ifstream stream(file_);
    stream.seekg(offset_);
    for (std::string line; std::getline(stream, line) && !stream.eof();) {  // whole ones
      offset_ = stream.tellg();
      Json result = Json::parse(line, nullptr, false);
      if (!result.is_object() || !result.contains("pid")) continue;  // the disk was full
      const auto [at, is_new] =
          of_process_.emplace(result["pid"].get<std::int64_t>(), newest_.size());
      if (is_new)
        newest_.push_back(std::move(result));
      else
        newest_[at->second] = std::move(result);
    }
    return newest_;
  }

 private:
  const fs::path file_;
  std::streamoff offset_ = 0;
  std::vector<Json> newest_;
  std::map<std::int64_t, std::size_t> of_process_;
};

bool is_complete(const Json& result) { return result["passes"] >= result["asked"]; }

// Of a process that loaded torch and did not train there is nothing to say.
bool says_anything(const Json& result) {
  return result["passes"] > 0 || !result["refused"].empty();
}

int code_of(const Json& result) {
  bool unsteady = result["passes"] == 0;
  for (const Json& parameter : result["parameters"]) {
    const std::string verdict = parameter["verdict"];
    if (verdict == "surprise") return kSurprise;
    unsteady = unsteady || verdict == "unsteady" || verdict == "not_finite";
  }
  return unsteady ? kCouldNotLook : 0;
}

// A message of somebody's, whatever is in it.
std::string one_line(std::string text) {
  constexpr std::size_t kMost = 400;
  if (text.size() > kMost) text.replace(kMost, std::string::npos, "...");
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

// --- the table --------------------------------------------------------------------------------

std::string percent(const Json& part) {
  return part.is_number() ? fmt::format("{:.2f} %", 100 * part.get<double>()) : "-";
}

constexpr std::array<std::pair<const char*, const char*>, 5> kVerdicts{
    {{"good", "good"},
     {"small", "too small to matter"},
     {"surprise", "SURPRISE"},
     {"unsteady", "differs from its own repetition"},
     {"not_finite", "no finite gradient"}}};

std::string words_of(const std::string& verdict) {
  for (const auto& [name, words] : kVerdicts)
    if (verdict == name) return words;
  return verdict;
}

void print_parameters(const Json& parameters) {
  std::size_t width = std::strlen("parameter");
  for (const Json& p : parameters)
    width = std::max(width, std::min<std::size_t>(p["name"].get<std::string>().size(), 56));
  say("  {:<{}}  {:>10}  {:>9}  {:>9}  {:>9}  {}\n", "parameter", width, "norm", "error",
      "yardstick", "batch", "verdict");
  for (const Json& p : parameters) {
    const Json& norm = p["norm"];
    say("  {:<{}}  {:>10}  {:>9}  {:>9}  {:>9}  {}\n",
        bridge::printable(p["name"].get<std::string>()), width,
        norm.is_number() ? fmt::format("{:.3g}", norm.get<double>()) : "-", percent(p["error"]),
        percent(p["yardstick"]), percent(p["batch"]), words_of(p["verdict"].get<std::string>()));
  }
}

// A norm that is small beside the largest may still be all that a module learns from.
void print_small(const Json& parameters) {
  constexpr double kMuch = 0.5;
  const auto wrong = std::count_if(parameters.begin(), parameters.end(), [](const Json& p) {
    return p["verdict"] == "small" && p["error"].is_number() && p["error"].get<double>() > kMuch;
  });
  if (wrong > 0)
    say("  {} of those too small to matter have errors over half of their norm\n", wrong);
}

double mega(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

// Exact tensors, largest first.
void print_exact(const Json& saved) {
  std::vector<Json> exact;
  std::int64_t all = 0;
  std::int64_t exact_bytes = 0;
  for (const Json& row : saved) {
    const std::int64_t bytes = row["bytes"];
    all += bytes;
    if (row["why"] != "may_bear_noise") {
      exact_bytes += bytes;
      exact.push_back(row);
    }
  }
  if (exact.empty()) return;
  std::stable_sort(exact.begin(), exact.end(), [](const Json& a, const Json& b) {
    return a["bytes"].get<std::int64_t>() > b["bytes"].get<std::int64_t>();
  });
  constexpr std::size_t kMost = 12;
  say("\n  {:.1f} of {:.1f} MB were stored without noise, for want of a proof or by "
      "the rule:\n",
      mega(exact_bytes), mega(all));
  for (std::size_t i = 0; i < std::min(exact.size(), kMost); ++i) {
    const Json& row = exact[i];
    say("  {:>9.2f} MB  {:<16} {}\n", mega(row["bytes"]), row["why"].get<std::string>(),
        row["place"].get<std::string>());
  }
  if (exact.size() > kMost) say("  and {} places more\n", exact.size() - kMost);
}

void print_result(const Json& result, bool several) {
  const std::string who =
      several ? fmt::format(" (process {})", result["pid"].get<std::int64_t>()) : "";
  const int passes = result["passes"];
  const std::string bits = passes == 0 ? ""
                           : result["bits"] == 0
                               ? ", lossless"
                               : fmt::format(", at {} bits", result["bits"].get<int>());
  say("\npleat check: {} of {} backward passes looked at{}{}\n", passes, result["asked"].get<int>(),
      bits, who);
  if (passes > 0) {
    print_parameters(result["parameters"]);
    print_small(result["parameters"]);
  }
  for (const Json& refusal : result["refused"])
    say("  {} pass{} could not be looked at: {}\n", refusal["passes"].get<int>(),
        refusal["passes"] == 1 ? "" : "es", one_line(refusal["why"].get<std::string>()));
  print_exact(result["saved"]);
}

// One line that says what the exit code says.
void print_verdict(int code, bool seen) {
  if (code == 0)
    say("\npleat check: nothing surprising\n");
  else if (code == kSurprise)
    say("\npleat check: noise is larger than it should be where it says SURPRISE; "
        "please report it. `bits:lossless` is exact\n");
  else
    say("\npleat check: {}\n", seen ? "could not look at all of it" : "no backward pass was seen");
}

// Prints what has come, once for each process. True if some process has looked at all it was asked
// to.
class Printer {
 public:
  explicit Printer(Results& results) : results_(results) {}
  bool print(bool all) {
    bool complete = false;
    const std::vector<Json>& results = results_.read();
    for (const Json& result : results) {
      const std::int64_t pid = result["pid"];
      const bool worth = is_complete(result) || (all && says_anything(result));
      if (worth && std::find(printed_.begin(), printed_.end(), pid) == printed_.end()) {
        print_result(result, results.size() > 1);
        printed_.push_back(pid);
      }
      complete = complete || is_complete(result);
    }
    return complete;
  }

 private:
  Results& results_;
  std::vector<std::int64_t> printed_;
};

// Of processes that trained: a surprise of one counts, then one that could not look.
int code_of_all(const std::vector<Json>& results) {
  bool any = false;
  bool all_good = true;
  for (const Json& result : results) {
    if (!says_anything(result)) continue;
    const int code = code_of(result);
    if (code == kSurprise) return code;
    any = true;
    all_good = all_good && code == 0;
  }
  return any && all_good ? 0 : kCouldNotLook;
}

}  // namespace

fs::path make_check_file() {
  // Absolute: the program may change its directory before it writes.
  std::string name = (fs::absolute(fs::temp_directory_path()) / "pleat-check-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) throw std::system_error(errno, std::generic_category(), name);
  ::close(file);
  return name;
}

int check(const CheckRequest& request, const fs::path& results) {
  pass_signals_on();
  if (!start(request.command)) {
    say("pleat: fork: {}\n", std::strerror(errno));
    return kCouldNotLook;
  }
  Results lines(results);
  Printer printer(lines);
  constexpr useconds_t kPause = 100'000;
  int status = 0;
  bool stopped = false;
  while (::waitpid(program, &status, WNOHANG) == 0) {
    ::usleep(kPause);
    if (printer.print(false) && request.stop && !stopped) {
      stopped = true;
      ::kill(program, SIGTERM);
    }
  }
  printer.print(true);
  const std::vector<Json>& found = lines.read();
  int code = code_of_all(found);
  const bool failed = !stopped && (!WIFEXITED(status) || WEXITSTATUS(status) != 0);
  if (failed) {
    say("\npleat check: the program ended with {} {}\n", WIFEXITED(status) ? "exit code" : "signal",
        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    code = code == kSurprise ? code : kCouldNotLook;
  }
  if (!failed || !found.empty())
    print_verdict(code, std::any_of(found.begin(), found.end(), says_anything));
  if (!request.json.empty()) {
    std::ofstream out(request.json);
    out << Json{{"code", code}, {"processes", found}}.dump(2, ' ', false,
                                                           Json::error_handler_t::replace)
        << '\n';
    if (!out) {
      say("pleat: {}: cannot be written\n", request.json.string());
      code = code == kSurprise ? code : kCouldNotLook;
    }
  }
  std::error_code ignored;
  fs::remove(results, ignored);
  return code;
}

}  // namespace pleat::cli

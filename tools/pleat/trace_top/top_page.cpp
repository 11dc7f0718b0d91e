#include "top.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "tools/pleat/trace/read_at.h"
#include "tools/pleat/trace_command/text.h"

namespace pleat::cli {
namespace {

using trace::TopPage;

constexpr int kTries = 200;  // a millisecond apart
constexpr const char* kWhoHasOne =
    "only a process with a trace has one (pleat trace record, PLEAT_CONF=trace:FILE or "
    "pleat.trace.start())";

bool is_sound(TopPage& page) {
  if (std::memcmp(page.magic, trace::kTopMagic, sizeof page.magic) != 0 ||
      page.version != trace::kTopVersion || page.page_bytes != sizeof page ||
      page.devices > trace::kTopDevices || page.lines > trace::kTopLines) {
    return false;
  }
  for (std::uint32_t i = 0; i < page.devices; ++i)
    if (page.device[i].device < -1 || page.device[i].device > 127) return false;
  for (std::uint32_t i = 0; i < page.lines; ++i) {
    trace::TopLine& line = page.line[i];
    if (line.of >= trace::kByteClasses) return false;
    line.op[sizeof line.op - 1] = line.line[sizeof line.line - 1] = '\0';
  }
  return true;
}

}  // namespace

std::optional<ProcessFacts> facts_of(pid_t pid) {
  struct stat folder {};
  const std::string path = fmt::format("/proc/{}", pid);
  std::ifstream file(path + "/stat");
  std::string text;
  if (::stat(path.c_str(), &folder) != 0 || !std::getline(file, text)) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) return std::nullopt;
    return ProcessFacts{0, folder.st_uid};
  }
  // Behind the name, which may hold anything: field 3, the state, and so on.
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string state, ignored;
  fields >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  for (int field = 4; field < 22; ++field) fields >> ignored;
  ProcessFacts facts{0, folder.st_uid};
  fields >> facts.start;
  return facts;
}

TopReader::~TopReader() {
  if (file_ >= 0) ::close(file_);
}

std::string TopReader::open(pid_t pid) {
  pid_ = pid;
  const std::optional<ProcessFacts> facts = facts_of(pid);
  if (!facts) return fmt::format("process {}: there is no such process", pid);
  std::string problem;
  for (unsigned which = 0; which < trace::kTopFolders; ++which) {
    std::array<char, 4096> folder;
    if (trace::top_folder(which, std::getenv("XDG_RUNTIME_DIR"), facts->user, folder.data(),
                          folder.size()) &&
        open_in(folder.data(), *facts, problem)) {
      return {};
    }
  }
  if (problem.empty()) problem = "it has no page to look at";
  return fmt::format("process {}: {}; {}", pid, problem, kWhoHasOne);
}

bool TopReader::open_in(const char* folder, const ProcessFacts& facts, std::string& problem) {
  std::array<char, 64> name;
  if (!trace::top_file(pid_, name.data(), name.size())) return false;
  const std::string path = fmt::format("{}/{}", folder, name.data());
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      problem = fmt::format("{}: {}", shown_path(path), std::strerror(errno));
    return false;
  }
  struct stat found {};
  const bool ours = ::fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                    found.st_uid == facts.user && (found.st_mode & 022) == 0;
  file_ = file;
  const std::optional<TopPage> page = ours ? read() : std::nullopt;
  if (page && page->pid == static_cast<std::uint64_t>(pid_) && page->ended == 0 &&
      (facts.start == 0 || page->process_start == 0 || page->process_start == facts.start)) {
    process_start_ = page->process_start;
    return true;
  }
  if (!page) problem = fmt::format("{} is no page that this version reads", shown_path(path));
  ::close(file);
  file_ = -1;
  return false;
}

std::optional<TopPage> TopReader::read() const {
  for (int i = 0; i < kTries; ++i) {
    TopPage page;
    std::uint64_t before = 0, after = 0;
    constexpr std::size_t kSequence = offsetof(TopPage, sequence);
    if (!trace::read_at(file_, kSequence, &before, sizeof before) ||
        !trace::read_at(file_, 0, &page, sizeof page) ||
        !trace::read_at(file_, kSequence, &after, sizeof after)) {
      return std::nullopt;
    }
    if (before == after && before % 2 == 0)
      return is_sound(page) ? std::optional(page) : std::nullopt;
    ::usleep(1000);
  }
  return std::nullopt;
}

bool TopReader::is_running() const {
  const std::optional<ProcessFacts> facts = facts_of(pid_);
  return facts && (facts->start == 0 || process_start_ == 0 || facts->start == process_start_);
}

}  // namespace pleat::cli

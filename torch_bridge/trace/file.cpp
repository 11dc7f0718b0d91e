#include "torch_bridge/trace/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

namespace pleat::bridge {
namespace {

// The first of these variables that holds a number.
std::optional<std::uint64_t> number_in(std::initializer_list<const char*> variables) {
  for (const char* const name : variables) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text(value);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return number;
  }
  return std::nullopt;
}

bool is_folder(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// Before the ending of the file's name, or at its end.
std::string with_part(const std::string& file, const std::string& part) {
  const std::size_t name = file.rfind('/') + 1;  // 0 where there is none
  const std::size_t dot = file.rfind('.');
  const std::size_t at = dot == std::string::npos || dot <= name ? file.size() : dot;
  return file.substr(0, at) + "." + part + file.substr(at);
}

}  // namespace

ProcessIdentity identify_process() {
  ProcessIdentity who;
  who.process = static_cast<std::uint64_t>(::getpid());
  who.started = static_cast<std::uint64_t>(::time(nullptr));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) who.host = host.data();
  who.rank = number_in({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  who.local_rank = number_in({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"});
  who.world_size = number_in({"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  return who;
}

std::string trace_file(std::string_view pattern, const ProcessIdentity& who, std::string& problem) {
  std::string file;
  bool has_rank = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char letter = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    std::string put;
    switch (letter) {
      case 'r':
        put = std::to_string(who.rank.value_or(0));
        has_rank = true;
        break;
      case 'l':
        put = std::to_string(who.local_rank.value_or(0));
        break;
      case 'p':
        put = std::to_string(who.process);
        has_rank = true;  // as good as one
        break;
      case 'h':
        put = who.host;
        break;
      case 't':
        put = std::to_string(who.started);
        break;
      case '%':
        put = "%";
        break;
      default:
        file += pattern[i];
        continue;
    }
    if (put.empty() || put.find('/') != std::string::npos || put == "." || put == "..") {
      problem = std::string("%") + letter + " is '" + put + "' here, which is no part of a name";
      return {};
    }
    file += put;
    ++i;
  }
  if (file.ends_with('/') || is_folder(file)) {
    file += file.ends_with('/') ? "pleat.trace" : "/pleat.trace";
  }
  if (who.rank && !has_rank) file = with_part(file, "rank" + std::to_string(*who.rank));
  return file;
}

std::string trace_file_of_process(const std::string& file, const ProcessIdentity& who,
                                  unsigned attempt) {
  std::string part = std::to_string(who.process);
  if (attempt > 1) part += "-" + std::to_string(attempt);
  return with_part(file, part);
}

}  // namespace pleat::bridge

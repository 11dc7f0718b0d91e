#include "record.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "tools/pleat/program.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kUsage = 2;

template <typename... Arguments>
int refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say("pleat: trace record: {}\n", fmt::format(format, std::forward<Arguments>(arguments)...));
  return kUsage;
}

bool names_bits(const Settings& settings) {
  const auto is_bits = [](const auto& setting) { return setting.first == "bits"; };
  if (std::any_of(settings.begin(), settings.end(), is_bits)) return true;
  const char* const set = std::getenv("PLEAT_CONF");
  std::string_view conf = set != nullptr ? set : "";
  while (const auto item = bridge::take_item(conf))
    if (item->key == "bits") return true;
  return false;
}

}  // namespace

int prepare_trace(const TraceRecordRequest& request, Settings& settings) {
  std::error_code error;
  if (request.output.empty()) return refuse("no file was named");
  fs::path file = fs::absolute(request.output, error);
  if (error) return refuse("{}: {}", bridge::printable(request.output), error.message());
  const std::string shown = bridge::printable(file.string());
  // Signs like %p are known in the process only: there nothing is replaced either.
  if (request.output.find('%') == std::string::npos) {
    if (fs::is_directory(file, error) || request.output.ends_with('/')) file /= "pleat.trace";
    const fs::path folder = file.parent_path();
    if (!fs::is_directory(folder, error))
      return refuse("{}: no such folder", bridge::printable(folder.string()));
    if (::access(folder.c_str(), W_OK | X_OK) != 0)
      return refuse("{}: no file can be made there", bridge::printable(folder.string()));
    const fs::file_status there = fs::symlink_status(file, error);
    if (fs::exists(there)) {
      if (!request.force) return refuse("{} exists; --force replaces it", shown);
      if (!fs::is_regular_file(there)) return refuse("{} is no file that can be replaced", shown);
      if (!fs::remove(file, error)) return refuse("{}: {}", shown, error.message());
    }
  }
  settings.emplace_back("trace", file.string());
  if (!names_bits(settings)) settings.emplace_back("bits", "off");
  ::setenv("PLEAT_TRACE_RECORD", "1", 1);
  if (request.with_command) ::setenv("PLEAT_TRACE_COMMAND", "1", 1);
  return 0;
}

}  // namespace pleat::cli

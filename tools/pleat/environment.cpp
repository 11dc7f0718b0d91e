#include "environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "program.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find_first_of(separators), text.size());
    if (length > 0) parts.emplace_back(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return parts;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> preload_entries(std::string_view value) { return split(value, " :"); }

bool is_sanitizer_runtime(std::string_view entry) {
  const std::string_view name = file_name(entry);
  for (const std::string_view runtime :
       {"libasan.", "libtsan.", "liblsan.", "libhwasan.", "libclang_rt."})
    if (name.starts_with(runtime)) return true;
  return false;
}

std::string merge_preload(std::string_view existing, const std::filesystem::path& library) {
  std::vector<std::string> first;
  std::vector<std::string> rest;
  for (std::string& entry : preload_entries(existing)) {
    if (file_name(entry) == file_name(library.native())) continue;
    std::vector<std::string>& group = is_sanitizer_runtime(entry) ? first : rest;
    if (std::find(group.begin(), group.end(), entry) == group.end())
      group.push_back(std::move(entry));
  }
  first.push_back(library.string());
  first.insert(first.end(), rest.begin(), rest.end());
  return fmt::format("{}", fmt::join(first, ":"));
}

bool fits_preload(const std::filesystem::path& library) {
  return library.native().find_first_of(" :") == std::string::npos;
}

std::string merge_conf(std::string_view existing, const Settings& settings) {
  struct Item {
    std::string key;
    std::string text;
    bool good = true;
  };
  std::vector<Item> items;
  while (const auto item = bridge::take_item(existing))
    items.push_back({std::string(item->key), std::string(item->written),
                     item->mistake == bridge::QuoteMistake::kNone});
  for (const auto& [key, value] : settings) {
    std::erase_if(items, [&](const Item& item) { return item.key == key; });
    items.push_back({key, key + ":" + bridge::spelled(value)});
  }
  // An unclosed quote would swallow the items after it.
  std::stable_partition(items.begin(), items.end(), [](const Item& item) { return item.good; });
  std::string conf;
  for (const Item& item : items) conf += (conf.empty() ? "" : ",") + item.text;
  return conf;
}

int become(char** command) {
  ::execvp(command[0], command);
  const int error = errno;
  say("pleat: {}: {}\n", command[0], std::strerror(error));
  return error == ENOENT ? kNotFound : kNotExecutable;
}

std::string shell_quoted(std::string_view text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("/._-+:,@%=").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace pleat::cli

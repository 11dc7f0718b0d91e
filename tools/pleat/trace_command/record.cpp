#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "interpose/trace/format.h"
#include "options.h"
#include "text.h"
#include "tools/pleat/commands.h"
#include "tools/pleat/program.h"
#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/options.h"

namespace pleat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kUsage = 2;

constexpr const char* kExamples =
    R"text(The program runs in this very process, with its pid, signals and exit code. Nothing is compressed unless
--bits or PLEAT_CONF says so. Each process of a job has a file of its own: ranks are run.rank0.trace,
run.rank1.trace; other processes that find the name taken put their number in it. In FILE, %r is the
rank, %l the local rank, %p the process, %h the host, %t the time. With --max-size the file is set aside
as FILE.1 when half of that is full, and another part begins, which can be read alone. A program that
never loads torch has no trace.

Examples:
  pleat trace record -- python train.py
  pleat trace record -o run.trace --max-size 1GiB -- python train.py
  pleat trace record -o run.trace --bits 4 --stacks both -- python train.py --epochs 1
  pleat trace record --with-command -- python train.py --lr 1e-3
  pleat trace record --modules 1 -- python train.py
  pleat trace record -o traces/ -- torchrun --nproc-per-node 8 train.py
  pleat trace summary run.trace)text";

template <typename... Arguments>
int complain(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say("pleat: trace record: {}\n", fmt::format(format, std::forward<Arguments>(arguments)...));
  return kUsage;
}

// The user's text is a pattern; the current folder before it is literal.
std::string as_pattern(const fs::path& absolute, const fs::path& typed) {
  const std::string all = absolute.string();
  const std::size_t typed_at = typed.is_absolute() ? 0 : fs::current_path().string().size();
  std::string pattern;
  for (std::size_t i = 0; i < all.size(); ++i)
    pattern.append(i < typed_at && all[i] == '%' ? 2 : 1, all[i]);
  return pattern;
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

bool is_trace(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(file, error))) return false;
  char magic[sizeof trace::kMagic] = {};
  return std::ifstream(file, std::ios::binary).read(magic, sizeof magic) &&
         std::memcmp(magic, trace::kMagic, sizeof magic) == 0;
}

std::optional<std::uint64_t> parse_trace_size(std::string_view text) {
  const std::optional<std::uint64_t> bytes = parse_size(text);
  return bytes && *bytes >= bridge::kLeastTraceBytes ? bytes : std::nullopt;
}

// Removes an existing file, if that was asked for and `may_go`. 0: the path is free.
int make_way(const fs::path& file, bool force, bool may_go) {
  std::error_code error;
  const std::string shown = shown_path(file.string());
  if (!fs::exists(fs::symlink_status(file, error))) return 0;
  if (!force) return complain("{} exists; --force replaces it", shown);
  if (!may_go) return complain("{} is no file that can be replaced", shown);
  return fs::remove(file, error) ? 0 : complain("{}: {}", shown, error.message());
}

// For FILE, and for FILE.1, which a trace of bounded size needs; elsewhere one of an earlier trace
// goes with it.
int make_way(const fs::path& file, const TraceRecordRequest& request) {
  std::error_code error;
  const bool regular = fs::is_regular_file(fs::symlink_status(file, error));
  if (const int code = make_way(file, request.force, regular); code != 0) return code;
  const fs::path former = file.string() + ".1";
  const bool is_part = is_trace(former);
  if (!request.most_bytes && !(request.force && is_part)) return 0;
  return make_way(former, request.force, is_part);
}

}  // namespace

CLI::App* add_trace_record(CLI::App& trace, TraceRecordRequest& request) {
  CLI::App* const command = trace.add_subcommand(
      "record",
      "Run a program and write down where its memory goes: pleat trace record [OPTIONS] [--] CMD "
      "...");
  command->footer(kExamples);
  command->add_option("-o,--output", request.output, "file, or folder [pleat.trace]")
      ->type_name("FILE");
  command->add_flag("--force", request.force, "replace a file that exists");
  command->add_flag("--with-command", request.with_command,
                    "write the command line into the trace; it may hold secrets");
  add_parsed(*command, "--max-size", "the trace takes no more: it is kept in two parts [any]",
             "SIZE", "sizes like 1GiB, of 1MiB at least", parse_trace_size,
             [&](std::uint64_t bytes) { request.most_bytes = bytes; });
  return command;
}

int prepare_trace(const TraceRecordRequest& request, Settings& settings) {
  std::error_code error;
  if (request.output.empty()) return complain("no file was named");
  fs::path file = fs::absolute(request.output, error);
  if (error) return complain("{}: {}", shown_path(request.output), error.message());
  // Signs like %p are known in the process only: there nothing is replaced either.
  if (request.output.find('%') == std::string::npos) {
    if (fs::is_directory(file, error) || request.output.ends_with('/')) file /= "pleat.trace";
    const fs::path folder = file.parent_path();
    if (!fs::is_directory(folder, error))
      return complain("{}: no such folder", shown_path(folder.string()));
    if (::access(folder.c_str(), W_OK | X_OK) != 0)
      return complain("{}: no file can be made there", shown_path(folder.string()));
    if (const int code = make_way(file, request); code != 0) return code;
  }
  settings.emplace_back("trace", as_pattern(file, request.output));
  if (request.most_bytes) settings.emplace_back("trace_size", std::to_string(*request.most_bytes));
  if (!names_bits(settings)) settings.emplace_back("bits", "off");
  ::setenv("PLEAT_TRACE_RECORD", "1", 1);
  if (request.with_command) ::setenv("PLEAT_TRACE_COMMAND", "1", 1);
  return 0;
}

}  // namespace pleat::cli

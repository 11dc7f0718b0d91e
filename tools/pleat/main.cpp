// The `pleat` command: starts programs under libpleat.so, says whether that would work, how far it
// changes gradients, and the contents of a profile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "commands.h"
#include "environment.h"
#include "installation.h"
#include "profile.h"
#include "program.h"
#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/options.h"
#include "trace_command/options.h"
#include "trace_command/text.h"

namespace pleat::cli {
namespace {

// Exit codes as of env(1), with those of environment.h. All others are the program's own.
constexpr int kTrouble = 1;
constexpr int kUsage = 2;

constexpr const char* kRunExamples = R"text(Examples:
  pleat run -- python train.py
  pleat run --bits 2.5 --verbose 1 -- python train.py --epochs 3
  pleat run -- torchrun --nproc-per-node 8 train.py
  PLEAT_CONF=bits:lossless pleat run -- ./libtorch_program)text";
constexpr const char* kEnvExamples = R"text(Examples:
  eval "$(pleat env)"                     in a job script, before the program starts
  srun --export=ALL bash -c 'eval "$(pleat env --bits 4)"; exec python train.py')text";
constexpr const char* kCheckExamples =
    R"text(Runs the program once, as `pleat run` would. At each of its first backward passes, extra passes over
the same graph find out how far noise would change each parameter's gradient; the pass itself, and
so the training, has no noise until the last of them is over. That takes the memory of a run without
Pleat and that of one with it, and four more passes a step. Functions in Python and hooks on
gradients run in these passes too.

  error      of the gradient with noise, in per cent of the gradient's norm, over all passes
  yardstick  the same with noise only where nobody doubts that it is harmless (operands beside a
             weight, inputs of normalisations), and in each value only as much as its own size and
             its 16 neighbours give
  batch      the difference of the exact gradients of two consecutive passes: the noise that the
             training has anyway
  SURPRISE   an error over a fifth of the norm, and over 3.5 times the yardstick; or over half of
             the norm

Exit code: 0, nothing surprising; 1, a surprise; 2, it could not look (no backward pass, a graph of
gradients, passes that differ from their own repetition), or the program failed.

Examples:
  pleat check -- python train.py
  pleat check --steps 10 --stop --json check.json -- python train.py)text";
constexpr const char* kDoctorExamples = R"text(Examples:
  pleat doctor
  pleat doctor --python ./venv/bin/python --json)text";
constexpr const char* kProfileExamples =
    R"text(A profile is the file that a run under Pleat keeps of its saved tensors: what each of them costs at
each width, and how far its noise changes the gradient. A row is one unit, all tensors of one place.

  sensitivity  error of the gradient, squared, over the gradient's squared norm, with 4 bits for this
               unit alone
  share        of the noise of all units, with the widths that are assigned
  uniform      one width for all units instead
  new          not measured yet: it gets the uniform width
  distrusted   a check found more noise than was predicted: it gets the uniform width

Exit code of check: 0, good; 1, of use, with warnings; 2, of no use. Of diff: 1, different models.
Of all: 2, a file is no profile, or an output cannot be written.

Examples:
  pleat profile show model.profile --sort share --bits 3 --why
  pleat profile curve model.profile --html model.html
  pleat profile diff before.profile after.profile
  pleat profile check model.profile && echo good)text";

template <typename... Arguments>
int complain(int exit_code, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  say("pleat: {}\n", fmt::format(format, std::forward<Arguments>(arguments)...));
  return exit_code;
}

int print_help(const CLI::App& command) {
  std::fputs(command.help("pleat").c_str(), stdout);
  return 0;
}

// --- options as flags -------------------------------------------------------------------------

std::string flag_name(std::string_view key) {
  std::string name = "--" + std::string(key);
  std::replace(name.begin() + 2, name.end(), '_', '-');
  return name;
}

// One flag per row of the option table, each checked by the parser of PLEAT_CONF. --help has those
// that is_shown() says, --help-all the others too. `records`: of `pleat trace record`, which has
// flags of its own in place of two rows, and other defaults.
void add_option_flags(CLI::App& command, Settings& settings, bool records = false) {
  std::vector<CLI::Option*> hidden;
  for (const bridge::OptionRow& row : bridge::option_table()) {
    if (row.audience == bridge::Audience::kCheck) continue;
    if (records && (row.key == "trace" || row.key == "trace_size")) continue;
    const std::string_view by_default = records && row.key == "bits" ? "off" : row.default_value;
    const auto take = [&settings, &row](const std::string& value) {
      bridge::Options options;
      std::vector<std::string> problems;
      bridge::parse_options(std::string(row.key) + ":" + bridge::spelled(value), options, problems);
      if (!problems.empty())
        throw CLI::ValidationError(
            flag_name(row.key),
            fmt::format("'{}': allowed are {}", bridge::printable(value), row.allowed));
      settings.emplace_back(row.key, value);
    };
    CLI::Option* const option = command.add_option_function<std::string>(
        flag_name(row.key), take, fmt::format("{} [{}]", row.help, by_default));
    option->type_name(std::string(row.allowed))->trigger_on_parse();
    if (bridge::is_shown(row)) continue;
    option->group("");
    hidden.push_back(option);
  }
  const auto show_all = [hidden = std::move(hidden)](std::int64_t /*count*/) {
    for (CLI::Option* const option : hidden) option->group("Ways out");
    throw CLI::CallForHelp();
  };
  command
      .add_flag_function("--help-all", show_all, "Print this help with the ways out too, and exit")
      ->trigger_on_parse();
}

// --- run, env ---------------------------------------------------------------------------------

struct Launch {
  std::string preload;
  std::string conf;  // empty: none set
};

// Fills `launch`. A return value other than 0 is the exit code; the reason is on stderr.
int prepare(const Settings& settings, Launch& launch) {
  const Installation installation = find_installation();
  if (installation.library.empty())
    return complain(kTrouble, "{}", missing_library_message(installation));
  if (!fits_preload(installation.library))
    return complain(kTrouble,
                    "LD_PRELOAD cannot hold {}, which has a space or a colon; set "
                    "PLEAT_LIB_DIR to a link without one",
                    installation.library.string());
  if (installation.bridges.empty() && variable("PLEAT_BRIDGE").empty())
    complain(0, "{}; the program runs without Pleat", missing_bridges_message(installation));
  launch.preload = merge_preload(variable("LD_PRELOAD"), installation.library);
  launch.conf = merge_conf(variable("PLEAT_CONF"), settings);
  return 0;
}

// Programs that start from now on are under Pleat.
void put_in_environment(const Launch& launch) {
  ::setenv("LD_PRELOAD", launch.preload.c_str(), 1);
  if (!launch.conf.empty()) ::setenv("PLEAT_CONF", launch.conf.c_str(), 1);
}

int run(const Settings& settings, char** command) {
  Launch launch;
  if (const int code = prepare(settings, launch); code != 0) return code;
  put_in_environment(launch);
  return become(command);
}

int run_check(Settings settings, const CheckRequest& request) {
  std::filesystem::path results;
  try {
    results = make_check_file();
  } catch (const std::system_error& error) {
    return complain(kUsage, "no room for results: {}", error.what());
  }
  settings.emplace_back("check", std::to_string(request.passes));
  settings.emplace_back("check_file", results.string());
  Launch launch;
  if (prepare(settings, launch) != 0) {
    std::error_code ignored;
    std::filesystem::remove(results, ignored);
    return kCouldNotLook;
  }
  put_in_environment(launch);
  return check(request, results);
}

int print_env(const Settings& settings) {
  Launch launch;
  if (const int code = prepare(settings, launch); code != 0) return code;
  fmt::print("export LD_PRELOAD={}\n", shell_quoted(launch.preload));
  if (!launch.conf.empty()) fmt::print("export PLEAT_CONF={}\n", shell_quoted(launch.conf));
  return 0;
}

// --- profile ----------------------------------------------------------------------------------

void add_profile_file(CLI::App& command, const char* name, std::string& file) {
  command.add_option(name, file, "a profile")->required()->type_name("");
}

void add_profile_sort(CLI::App& command, std::string& sort) {
  const std::string known = fmt::format("{}", fmt::join(kProfileSorts, ", "));
  CLI::Option* const option =
      command.add_option("--sort", sort, "order of the rows: " + known + " [backward]");
  offer(*option, {kProfileSorts.begin(), kProfileSorts.end()});
  option
      ->check([known](const std::string& key) {
        const bool is_known =
            std::find(kProfileSorts.begin(), kProfileSorts.end(), key) != kProfileSorts.end();
        return is_known ? std::string()
                        : fmt::format("'{}': allowed are {}", bridge::printable(key), known);
      })
      ->type_name("KEY");
}

void add_profile_bits(CLI::App& command, std::optional<double>& bits) {
  const auto take = [&bits](const std::string& text) {
    const std::optional<double> number = bridge::number_of<double>(text);
    if (!number || !(*number >= 1 && *number <= 8))
      throw CLI::ValidationError("--bits",
                                 fmt::format("'{}': allowed are 1..8", bridge::printable(text)));
    bits = number;
  };
  command.add_option_function<std::string>("--bits", take, "to assign [those of the profile]")
      ->type_name("1..8");
}

void add_profile_commands(CLI::App& app, Work& work, ProfileRequest& request) {
  CLI::App& all = *app.add_subcommand("profile", "Say what a profile knows, and what it is worth");
  all.footer(kProfileExamples);
  on_parsed(all, work, [&all] { return print_help(all); });
  const auto add = [&](const char* name, const char* help, auto* act, const char* file = "FILE") {
    CLI::App& command = *all.add_subcommand(name, help);
    add_profile_file(command, file, request.file);
    command.add_flag("--json", request.as_json, "machine-readable");
    command.footer(kProfileExamples);
    on_parsed(command, work, [act, &request] { return act(request); });
    return &command;
  };
  CLI::App* const show = add("show", "Print the units and their widths", show_profile);
  CLI::App* const curve =
      add("curve", "Print noise over bits: which are enough?", show_profile_curve);
  CLI::App* const diff = add("diff", "Print what two profiles differ in", diff_profiles, "A");
  add("check", "Say whether a profile is a good one", check_profile);
  add_profile_file(*diff, "B", request.other);
  add_profile_sort(*diff, request.sort);
  add_profile_sort(*show, request.sort);
  add_profile_bits(*show, request.bits);
  show->add_flag("--why", request.why, "how each unit came to its width when it was written");
  for (CLI::App* command : {show, curve})
    command->add_option("--html", request.html, "write a page with pictures to this file, too")
        ->type_name("OUT");
}

// --- command line -----------------------------------------------------------------------------

// The index of CMD in `pleat run [options] [--] CMD ...`, or of another that runs a program, whose
// words begin at `first`; `argc` if there is none. All words from there on are the program's, even
// "--" and flags named like ours.
int command_start(const CLI::App& subcommand, int first, int argc, char** argv) {
  for (int i = first; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--" || !word.starts_with('-')) return i;
    const CLI::Option* const option = subcommand.get_option_no_throw(std::string(word));
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;  // its value
  }
  return argc;
}

// The words after argv[0], last one first, as CLI11 asks for them. "--key=" is split into "--key"
// and an empty word: CLI11 would take the next word for its value.
std::vector<std::string> reversed_words(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    std::string word = argv[i];
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      words.emplace_back();
      word.pop_back();
    }
    words.push_back(std::move(word));
  }
  return words;
}

int main(int argc, char** argv) {
  CLI::App app("Trains PyTorch programs in a fraction of their memory, with no change to them.",
               "pleat");
  app.set_version_flag("--version", "pleat " PLEAT_VERSION);
  app.require_subcommand(1);
  app.footer(kRunExamples);

  Work work;
  Settings settings;
  CLI::App& run_command = *app.add_subcommand(
      "run", "Run a program under Pleat, in this very process: pleat run [OPTIONS] [--] CMD ...");
  add_option_flags(run_command, settings);
  run_command.footer(kRunExamples);

  CheckRequest request;
  CLI::App& check_command = *app.add_subcommand("check",
                                                "Run a program and say how far noise changes its "
                                                "gradients: pleat check [OPTIONS] [--] CMD ...");
  check_command.add_option("--steps", request.passes, "backward passes to look at [3]")
      ->check(CLI::Range(1, 1000));
  check_command.add_flag("--stop", request.stop,
                         "end the program (SIGTERM) once they were looked at");
  check_command.add_option("--json", request.json, "write what was found to this file, too");
  add_option_flags(check_command, settings);
  check_command.footer(kCheckExamples);

  CLI::App& env_command = *app.add_subcommand("env", "Print the variables `run` would set");
  add_option_flags(env_command, settings);
  env_command.footer(kEnvExamples);
  on_parsed(env_command, work, [&] { return print_env(settings); });

  std::string python;
  bool as_json = false;
  CLI::App& doctor_command = *app.add_subcommand("doctor", "Say whether `run` would work, and why");
  doctor_command.add_option("--python", python, "interpreter to look at [python in PATH]");
  doctor_command.add_flag("--json", as_json, "machine-readable");
  add_option_flags(doctor_command, settings);
  doctor_command.footer(kDoctorExamples);
  on_parsed(doctor_command, work, [&] { return doctor(python, settings, as_json); });

  ProfileRequest profile;
  add_profile_commands(app, work, profile);

  CLI::App& trace = *app.add_subcommand("trace", "Say where a program's memory went");
  on_parsed(trace, work, [&trace] { return print_help(trace); });
  for (const auto add : {add_trace_summary, add_trace_export, add_trace_report, add_trace_diff,
                         add_trace_merge, add_trace_top})
    add(trace, work);

  TraceRecordRequest record;
  CLI::App& record_command = *add_trace_record(trace, record);
  add_option_flags(record_command, settings, /*records=*/true);

  add_completion_commands(app, work, {&run_command, &check_command, &record_command});

  const auto is = [&](int at, const char* name) {
    return argc > at && std::strcmp(argv[at], name) == 0;
  };
  const bool records = is(1, "trace") && is(2, "record");
  const int own_words = is(1, "run")     ? command_start(run_command, 2, argc, argv)
                        : is(1, "check") ? command_start(check_command, 2, argc, argv)
                        : records        ? command_start(record_command, 3, argc, argv)
                                         : argc;
  try {
    app.parse(reversed_words(own_words, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return complain(kUsage, "{}; see `pleat --help`", error.what());
  }
  if (work) return work();

  char** command = argv + own_words;
  if (*command != nullptr && std::strcmp(*command, "--") == 0) ++command;
  if (*command == nullptr) {
    const char* const name = check_command.parsed() ? "check" : records ? "trace record" : "run";
    return complain(kUsage, "{0}: no program given; see `pleat {0} --help`", name);
  }
  request.command = command;
  if (records) {
    if (const int code = prepare_trace(record, settings); code != 0) return code;
  }
  return check_command.parsed() ? run_check(settings, request) : run(settings, command);
}

}  // namespace
}  // namespace pleat::cli

int main(int argc, char** argv) { return pleat::cli::main(argc, argv); }

#include "commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "answer.h"
#include "environment.h"
#include "torch_bridge/core/option_text.h"

namespace pleat::cli {
namespace {

constexpr const char* kExamples =
    R"text(An installed Pleat has the script in share/bash-completion/completions, where bash-completion looks for
it. A Pleat that is run from its build folder has not: there it can be installed for one user, or be
read by one shell.

Examples:
  source <(pleat completion bash)
  mkdir -p ~/.local/share/bash-completion/completions
  pleat completion bash > ~/.local/share/bash-completion/completions/pleat)text";

// The half that does not depend on commands. $command is the command so far, with its subcommands;
// bash splits "--bits=4" into three words.
constexpr const char* kCompletionScript = R"bash(
# Offers those of the lines $1 that begin with what is typed.
_pleat_offer() {
  local typed=$current choice
  case $typed in \"* | \'*) typed=${typed:1} ;; *) typed=${typed//\\/} ;; esac
  while IFS= read -r choice; do
    [[ -n $choice && $choice == "$typed"* ]] || continue
    case $current in
      \"* | \'*) COMPREPLY+=("$choice") ;;
      *) COMPREPLY+=("$prefix$(printf %q "$choice")") ;;
    esac
  done <<<"$1"
}

# The program's own words begin at $1.
_pleat_program() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "$current")
  fi
}

_pleat() {
  local current=${COMP_WORDS[COMP_CWORD]} command=pleat prefix= choices= word index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; ++index)); do
    word=${COMP_WORDS[index]}
    if [[ $word == -- ]]; then
      _pleat_is_program "$command" && _pleat_program $((index + 1))
      return
    elif [[ $word == -* ]]; then
      _pleat_values "$command" "$word" || continue
      [[ ${COMP_WORDS[index + 1]} == = ]] && ((++index))
      ((++index < COMP_CWORD)) && continue
      [[ $current == = ]] && current=
      _pleat_offer "$choices"
      return
    elif [[ $'\n'$(_pleat_subcommands "$command")$'\n' == *$'\n'"$word"$'\n'* ]]; then
      command+=" $word"
    elif _pleat_is_program "$command"; then
      _pleat_program "$index"
      return
    fi
  done
  if [[ $current == --*=* ]] && _pleat_values "$command" "${current%%=*}"; then
    prefix=${current%%=*}=
    current=${current#*=}
    _pleat_offer "$choices"
  elif [[ $current == -* ]]; then
    _pleat_offer "$(_pleat_options "$command")"
  elif _pleat_is_program "$command"; then
    _pleat_program "$COMP_CWORD"
  else
    _pleat_offer "$(_pleat_subcommands "$command")"
  fi
}

complete -o bashdefault -o default -F _pleat pleat
)bash";

// ---- choices ------------------------------------------------------------------------------------

// A validator that lets everything pass keeps the values with their option.
constexpr std::string_view kMark = "choices:";

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(by);
    parts.emplace_back(bridge::trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_choice(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

std::vector<std::string> choices_of(CLI::Option& option) {
  try {
    for (int i = 0;; ++i) {
      const std::string name = option.get_validator(i)->get_name();
      if (name.starts_with(kMark)) return split(std::string_view(name).substr(kMark.size()), '\n');
    }
  } catch (const CLI::OptionNotFound&) {  // that were all validators
  }
  std::vector<std::string> words = split(option.get_type_name(), '|');
  if (words.size() < 2) return {};
  std::erase_if(words, [](const std::string& word) { return !is_choice(word); });
  return words;
}

// ---- the script ---------------------------------------------------------------------------------

std::string lines(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "\n"));
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

class BashScript {
 public:
  explicit BashScript(const std::vector<const CLI::App*>& programs) : programs_(programs) {}

  void add(CLI::App& command, const std::string& path) {
    std::vector<std::string> children;
    for (CLI::App* const child : command.get_subcommands({})) {
      children.push_back(child->get_name());
      add(*child, path + " " + child->get_name());
    }
    if (!children.empty()) subcommands_ += row(path, lines(children));
    std::vector<std::string> options;
    for (CLI::Option* const option : command.get_options({})) {
      const std::vector<std::string> names = names_of(*option);
      const bool is_hidden = option->get_group().empty();  // from --help; its values are offered
      if (!is_hidden) options.insert(options.end(), names.begin(), names.end());
      if (option->get_items_expected_max() == 0) continue;
      for (const std::string& name : names)
        values_ += fmt::format("    {}) choices={} ;;\n", shell_quoted(path + " " + name),
                               shell_quoted(lines(choices_of(*option))));
    }
    options_ += row(path, lines(options));
    if (std::find(programs_.begin(), programs_.end(), &command) != programs_.end())
      runs_ += fmt::format("    {}) return 0 ;;\n", shell_quoted(path));
  }

  [[nodiscard]] std::string text() const {
    const std::string no = "    *) return 1 ;;\n";
    return "# Completion of `pleat` for bash, written by `pleat completion bash` of "
           "Pleat " PLEAT_VERSION ".\n" +
           function("subcommands", "", "$1", subcommands_) +
           function("options", "", "$1", options_) +
           function("values", " Sets $choices; fails if option $2 of command $1 takes no value.",
                    "$1 $2", values_ + no) +
           function("is_program", " Whether a program follows.", "$1", runs_ + no) +
           kCompletionScript;
  }

 private:
  static std::string row(const std::string& path, const std::string& words) {
    return fmt::format("    {}) echo {} ;;\n", shell_quoted(path), shell_quoted(words));
  }
  static std::string function(const char* name, const char* comment, const char* of,
                              const std::string& rows) {
    return fmt::format("\n_pleat_{}() {{{}\n  case \"{}\" in\n{}  esac\n}}\n", name,
                       *comment == '\0' ? std::string() : std::string("  #") + comment, of, rows);
  }

  const std::vector<const CLI::App*>& programs_;
  std::string subcommands_, options_, values_, runs_;
};

}  // namespace

void offer(CLI::Option& option, const std::vector<std::string>& values) {
  const auto pass = [](std::string& /*value*/) { return std::string(); };
  option.check(CLI::Validator(pass, "", std::string(kMark) + lines(values)));
}

void add_completion_commands(CLI::App& app, Work& work,
                             const std::vector<const CLI::App*>& programs) {
  CLI::App& all = *app.add_subcommand("completion", "Print a script that completes command lines");
  CLI::App& bash =
      *all.add_subcommand("bash", "Print a script that completes command lines in bash");
  all.footer(kExamples);
  bash.footer(kExamples);
  on_parsed(all, work, [&all] { return put(all.help("pleat")) ? 0 : 2; });
  on_parsed(bash, work, [&app, programs] {
    BashScript script(programs);
    script.add(app, app.get_name());
    return put(script.text()) ? 0 : 2;
  });
}

}  // namespace pleat::cli

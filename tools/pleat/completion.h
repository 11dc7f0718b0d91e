// `pleat completion bash`: a script that completes the command line, made of the command line's own
// description, so that it knows whatever that knows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pleat::cli {

// The values that complete the option. Where its type is written like "peak|end|SECONDS", the words
// in small letters are known without this; without values, files are completed.
void offer(CLI::Option& option, const std::vector<std::string>& values);

struct CompletionCommands {
  CLI::App* all = nullptr;
  CLI::App* bash = nullptr;
};
void add_completion_commands(CLI::App& app, CompletionCommands& commands);

// The script. `programs`: commands of `app` that are followed by a program and its arguments.
[[nodiscard]] std::string bash_completion(CLI::App& app,
                                          const std::vector<const CLI::App*>& programs);
// Prints what was parsed. Returns the exit code: 0, or 2 if stdout cannot be written.
[[nodiscard]] int print_completion(const CompletionCommands& commands, CLI::App& app,
                                   const std::vector<const CLI::App*>& programs);

}  // namespace pleat::cli

// `pleat completion bash`: a script that completes the command line, made of the command line's own
// description, so that it knows whatever that knows.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "trace_commands.h"

namespace pleat::cli {

// The values that complete the option. Where its type is written like "peak|end|SECONDS", the words
// in small letters are known without this; without values, files are completed.
void offer(CLI::Option& option, const std::vector<std::string>& values);

// Exit code: 0, or 2 if stdout cannot be written. `programs`: commands of `app` that are followed
// by a program and its arguments.
void add_completion_commands(CLI::App& app, Work& work,
                             const std::vector<const CLI::App*>& programs);

}  // namespace pleat::cli

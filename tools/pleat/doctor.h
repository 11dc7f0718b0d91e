// `pleat doctor`: reports whether `pleat run` works here and now, and if not, the remedy.
#pragma once

#include <string>

#include "environment.h"

namespace pleat::cli {

// Prints to stdout. Returns the exit code: 0 if `pleat run` would work, 1 if not.
//   python    the interpreter to look at; empty: the one in PATH
//   settings  options given as flags, on top of PLEAT_CONF
int doctor(const std::string& python, const Settings& settings, bool as_json);

}  // namespace pleat::cli

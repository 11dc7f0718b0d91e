// Finds the torch that a Python interpreter would import, without importing it: the interpreter
// prints its module path, then torch/version.py is read. This takes a tenth of a second instead of
// several.
#pragma once

#include <filesystem>
#include <string>

namespace pleat::cli {

struct PythonTorch {
  std::string python;  // as asked for, or the one found
  bool python_runs = false;
  std::string python_version;    // "3.11.2"
  std::filesystem::path folder;  // .../site-packages/torch; empty: there is none
  std::string version;           // "2.11.0+cu130"; empty: not readable
};

// `python`: a path or a name to look up in PATH; empty: `python`, then `python3`.
[[nodiscard]] PythonTorch find_python_torch(const std::string& python);

}  // namespace pleat::cli

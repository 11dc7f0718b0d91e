// Runs tests, or what a test has started again in a process of its own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "tests/interpose/recorder_fixture.h"

namespace pleat::recorder_testing {

static std::map<std::string, Mode>& modes() {
  static std::map<std::string, Mode> all;
  return all;
}
NamedMode::NamedMode(const char* name, Mode mode) { modes()[name] = mode; }

}  // namespace pleat::recorder_testing

int main(int argc, char** argv) {
  const auto& modes = pleat::recorder_testing::modes();
  const auto mode = argc == 3 ? modes.find(argv[1]) : modes.end();
  if (mode != modes.end()) {
    mode->second(argv[2]);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  // Pages of jobs that are killed stay in a folder of the tests' own.
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "recorder_test_run.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr || ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1) != 0)
    return 1;
  const int result = RUN_ALL_TESTS();
  fs::remove_all(folder);
  return result;
}

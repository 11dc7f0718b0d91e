// What the tests of libpleat_recorder.so share: the library as a bridge calls it, and a folder for
// its files.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/pleat/trace/reader.h"
#include "torch_bridge/c_abi.h"

namespace pleat::recorder_testing {

namespace fs = std::filesystem;
using pleat::trace::File;

inline const PleatRecorder& recorder() {
  static const PleatRecorder* const one = [] {
    void* const library = ::dlopen(PLEAT_TEST_RECORDER, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(::dlerror());
    return reinterpret_cast<pleat_recorder_fn>(::dlsym(library, "pleat_recorder"))(
        PLEAT_RECORDER_VERSION);
  }();
  return *one;
}

inline std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline PleatTraceEvent event_of(std::uint64_t number, PleatTraceKind kind = PLEAT_TRACE_OTHER) {
  PleatTraceEvent event{};
  event.time_ns = now_ns();
  event.kind = static_cast<std::uint8_t>(kind);
  event.device = -1;
  event.key = number;
  return event;
}
// An event as it is now: the time is added.
inline void tell_of(PleatTraceEvent event) {
  event.time_ns = now_ns();
  recorder().event(&event);
}
inline void tell(std::uint64_t number) { tell_of(event_of(number)); }

// Empty, or why there is no trace.
inline std::string start(const fs::path& file, unsigned stacks = PLEAT_TRACE_STACKS_NONE,
                         const char* process = "{}", std::uint64_t most_bytes = 0) {
  const std::string path = file.string();
  PleatTraceRequest request{};
  request.struct_size = sizeof request;
  request.stacks = stacks;
  request.path = path.c_str();
  request.process = process;
  request.most_bytes = most_bytes;
  std::array<char, 256> error{};
  return recorder().start(&request, error.data(), error.size()) == 0 ? "" : error.data();
}

inline bool by_the_recorder(const PleatTraceEvent& event) {
  return event.kind >= PLEAT_TRACE_RESIDENT;
}

// What was told, in the order of the file.
inline std::vector<PleatTraceEvent> told(const File& file) {
  std::vector<PleatTraceEvent> events;
  file.for_each([&](const PleatTraceEvent& event) {
    if (!by_the_recorder(event)) events.push_back(event);
  });
  return events;
}
inline std::uint64_t lost(const File& file) {
  std::uint64_t lost = 0;
  file.for_each([&](const PleatTraceEvent& event) {
    if (event.kind == PLEAT_TRACE_LOST) lost += event.bytes;
  });
  return lost;
}

class Recorder : public testing::Test {
 protected:
  Recorder() {
    std::string folder = (fs::temp_directory_path() / "recorder_test.XXXXXX").string();
    if (::mkdtemp(folder.data()) != nullptr) folder_ = folder;
  }
  ~Recorder() override {
    recorder().stop();
    fs::remove_all(folder_);
  }

  static std::unique_ptr<File> open(const fs::path& path) {
    std::string error;
    std::unique_ptr<File> file = File::open(path.string(), error);
    EXPECT_NE(file, nullptr) << error;
    return file;
  }

  fs::path folder_;
};

// What this program does, started again as `program NAME ARGUMENT`, instead of running tests.
using Mode = void (*)(const char* argument);
struct NamedMode {
  NamedMode(const char* name, Mode mode);
};

// This program as `program NAME ARGUMENT`, in a process of its own, where `prepare` runs first.
template <class Prepare>
pid_t start_again(const char* name, const fs::path& argument, const Prepare& prepare) {
  const std::string self = fs::canonical("/proc/self/exe").string();
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    ::execl(self.c_str(), self.c_str(), name, argument.c_str(), nullptr);
    ::_exit(4);
  }
  return child;
}
inline pid_t start_again(const char* name, const fs::path& argument) {
  return start_again(name, argument, [] {});
}

// Waits for a child: what waitpid() says of its end.
inline int status_of(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace pleat::recorder_testing

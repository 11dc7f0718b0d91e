// The functions behind the Python package and LibTorch programs (c_abi.h); none throws.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/options.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/core/statistics.h"
#include "torch_bridge/hooks/passes.h"
#include "torch_bridge/install/export.h"
#include "torch_bridge/trace/out_of_memory_report.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {
namespace {

size_t copy_out(const std::string& text, char* buffer, size_t buffer_bytes) noexcept {
  if (buffer != nullptr && buffer_bytes > 0) {
    const size_t n = std::min(text.size(), buffer_bytes - 1);
    std::memcpy(buffer, text.data(), n);
    buffer[n] = '\0';
  }
  return text.size();
}

}  // namespace
}  // namespace pleat::bridge

using pleat::bridge::Runtime;

PLEAT_EXPORT int pleat_is_installed(void) noexcept { return Runtime::get() != nullptr ? 1 : 0; }

PLEAT_EXPORT int pleat_enable(const char* conf, char* error, size_t error_bytes) noexcept {
  using namespace pleat::bridge;
  try {
    Runtime* const runtime = Runtime::get();
    if (runtime == nullptr) {
      copy_out("Pleat is not installed in this process", error, error_bytes);
      return 1;
    }
    Options options = runtime->options();
    std::vector<std::string> problems;
    parse_options(conf != nullptr ? conf : "", options, problems);
    if (const char* const of_tests = secure_getenv("PLEAT_TEST_CONF"))
      parse_options(of_tests, options, problems, ConfSource::kTests);
    if (!problems.empty()) {
      constexpr std::string_view kPrefix = "pleat: PLEAT_CONF: ";
      std::string& first = problems.front();
      copy_out(first.starts_with(kPrefix) ? first.substr(kPrefix.size()) : first, error,
               error_bytes);
      return 1;
    }
    runtime->set_options(options);
    runtime->set_enabled(true);
    return 0;
  } catch (const std::exception& e) {
    copy_out(e.what(), error, error_bytes);
    return 1;
  }
}

PLEAT_EXPORT void pleat_disable(void) noexcept {
  if (Runtime* const runtime = Runtime::get()) {
    runtime->set_enabled(false);
  }
}

PLEAT_EXPORT int pleat_is_enabled(void) noexcept {
  const Runtime* const runtime = Runtime::get();
  return runtime != nullptr && runtime->enabled() ? 1 : 0;
}

PLEAT_EXPORT size_t pleat_stats_json(char* buffer, size_t buffer_bytes) noexcept {
  try {
    Runtime* const runtime = Runtime::get();
    return pleat::bridge::copy_out(
        runtime != nullptr ? pleat::bridge::stats_json(*runtime) : std::string("{}"), buffer,
        buffer_bytes);
  } catch (...) {
    return 0;
  }
}

PLEAT_EXPORT size_t pleat_profile_json(char* buffer, size_t buffer_bytes) noexcept {
  try {
    Runtime* const runtime = Runtime::get();
    return pleat::bridge::copy_out(runtime != nullptr
                                       ? pleat::sensitivity::to_json(runtime->sensitivity.profile())
                                       : std::string("{}"),
                                   buffer, buffer_bytes);
  } catch (...) {
    return 0;
  }
}

PLEAT_EXPORT size_t pleat_report_text(char* buffer, size_t buffer_bytes) noexcept {
  try {
    Runtime* const runtime = Runtime::get();
    return pleat::bridge::copy_out(runtime != nullptr
                                       ? pleat::bridge::report_text(*runtime)
                                       : std::string("pleat: not installed in this process\n"),
                                   buffer, buffer_bytes);
  } catch (...) {
    return 0;
  }
}

PLEAT_EXPORT void pleat_reset_peaks(void) noexcept {
  if (Runtime* const runtime = Runtime::get()) {
    runtime->statistics.reset_peaks();
  }
}

PLEAT_EXPORT int pleat_trace_start(const char* path, char* error, size_t error_bytes) noexcept {
  using namespace pleat::bridge;
  try {
    Runtime* const runtime = Runtime::get();
    std::string problem;
    if (runtime == nullptr || path == nullptr) {
      problem = "Pleat is not installed in this process";
    } else if (start_trace(*runtime, path, Taken::kIsAnError, problem)) {
      return 0;
    }
    copy_out(problem, error, error_bytes);
  } catch (const std::exception& e) {
    copy_out(e.what(), error, error_bytes);
  }
  return 1;
}

PLEAT_EXPORT int pleat_trace_stop(void) noexcept {
  Runtime* const runtime = Runtime::get();
  return runtime != nullptr && pleat::bridge::stop_trace(*runtime) ? 1 : 0;
}

PLEAT_EXPORT void pleat_trace_dump(const char* title) noexcept {
  pleat::bridge::report_memory(title);
}

PLEAT_EXPORT size_t pleat_trace_path(char* buffer, size_t buffer_bytes) noexcept {
  try {
    return pleat::bridge::copy_out(pleat::bridge::trace_path(), buffer, buffer_bytes);
  } catch (...) {
    return 0;
  }
}

PLEAT_EXPORT int pleat_trust_class(const void* python_class, int closes) noexcept {
  using pleat::bridge::Trust;
  try {
    Runtime* const runtime = Runtime::get();
    if (runtime == nullptr) {
      return 1;
    }
    runtime->proofs.trust_class(python_class, closes != 0 ? Trust::kCloses : Trust::kPasses);
    return 0;
  } catch (...) {
    return 1;
  }
}

PLEAT_EXPORT void pleat_exempt_enter(void) noexcept { Runtime::exempt_enter(); }
PLEAT_EXPORT void pleat_exempt_exit(void) noexcept { Runtime::exempt_exit(); }
PLEAT_EXPORT void pleat_backward_enter(void) noexcept { pleat::bridge::backward_enter(); }
PLEAT_EXPORT void pleat_backward_exit(void) noexcept { pleat::bridge::backward_exit(); }

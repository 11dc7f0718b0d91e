// The C ABI: installation into a process, and the functions behind the Python package.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/entry/engine.h"
#include "torch_bridge/memory/cpu_allocator.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/policy/node_class.h"

#define PLEAT_EXPORT extern "C" __attribute__((visibility("default")))

namespace pleat::bridge {
namespace {

// ATen's own intra-op pool; serial inside a parallel region, and in a thread that has none and only
// happens to free a tensor: OpenMP would start a team for it.
void aten_executor(std::size_t items, std::size_t grain,
                   const std::function<void(std::size_t, std::size_t)>& body) {
  if (items == 0) {
    return;
  }
  if (items <= grain || !Runtime::thread_computes() || at::in_parallel_region() ||
      at::get_num_threads() == 1) {
    body(0, items);
    return;
  }
  // Whoever is free takes the next part: in halves, all would wait for the thread that the machine
  // holds up or a page fault.
  const std::size_t parts = (items + grain - 1) / grain;
  const std::size_t threads = std::min(static_cast<std::size_t>(at::get_num_threads()), parts);
  std::atomic<std::size_t> next{0};
  at::parallel_for(0, static_cast<std::int64_t>(threads), 1, [&](std::int64_t, std::int64_t) {
    for (;;) {
      const std::size_t begin = next.fetch_add(1, std::memory_order_relaxed) * grain;
      if (begin >= items) {
        return;
      }
      body(begin, std::min(begin + grain, items));
    }
  });
}

const char* configuration() noexcept { return secure_getenv("PLEAT_CONF"); }

// A payload must survive the way there and back before anything is put in force.
bool self_test(Runtime& runtime) {
  constexpr std::size_t kElements = 4096;
  allocator::Block* const block = runtime.pool.allocate(kElements * sizeof(float));
  if (block == nullptr) {
    return false;
  }
  auto* const values = reinterpret_cast<float*>(block->begin);
  for (std::size_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(i % 256) / 16.0f - 8.0f;
  }
  const std::vector<float> before(values, values + kElements);
  const compress::Span span{values, kElements, compress::ElementType::kFloat32};
  const compress::CodecSpec spec{4, false};
  alignas(64) static unsigned char payload[kElements * 2];
  const compress::EncodeResult encoded = compress::encode(span, spec, 1, payload, sizeof payload,
                                                          compress::serial_executor(), nullptr);
  bool good = encoded.status == compress::Status::kOk &&
              compress::decode(payload, encoded.payload_bytes, values, kElements * sizeof(float),
                               compress::serial_executor()) == compress::Status::kOk;
  for (std::size_t i = 0; good && i < kElements; ++i) {
    good = std::abs(values[i] - before[i]) <= 16.0f / 15.0f;
  }
  runtime.pool.free(block);
  return good;
}

void print_report_at_exit() {
  if (Runtime* const runtime = Runtime::get()) {
    if (!runtime->residency.stopped() && runtime->options().verbose >= 1) {
      std::fputs(report_text(*runtime).c_str(), stderr);
    }
    runtime->retire();
  }
}

void before_fork() {
  Runtime::get()->lock_for_fork();
  lock_kept_storages_for_fork();
  lock_node_classes_for_fork();
}

void after_fork(allocator::ForkSide side) {
  unlock_node_classes_after_fork();
  unlock_kept_storages_after_fork();
  Runtime::get()->unlock_after_fork(side);
}

Runtime* build_runtime() {
  Options options;
  std::vector<std::string> problems;
  if (const char* const conf = configuration()) {
    parse_options(conf, options, problems);
  }
  for (const std::string& problem : problems) {
    std::fprintf(stderr, "%s\n", problem.c_str());
  }
  auto* const runtime = new Runtime(options, aten_executor);  // leaked: runtime.h says why
  if (!self_test(*runtime)) {
    std::fprintf(stderr, "pleat: the self-test failed; running without Pleat\n");
    return nullptr;
  }
  return runtime;
}

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

PLEAT_EXPORT int pleat_bridge_install(const PleatHostFunctions* host,
                                      PleatBridgeFunctions* functions) noexcept {
  using namespace pleat::bridge;
  static std::mutex mutex;
  static bool refused = false;
  static PleatBridgeFunctions installed{};
  const std::lock_guard<std::mutex> guard(mutex);
  try {
    if (host == nullptr || functions == nullptr || host->abi_version != PLEAT_ABI_VERSION ||
        host->struct_size != sizeof(PleatHostFunctions)) {
      std::fprintf(stderr,
                   "pleat: the bridge and its loader are of different versions; "
                   "running without Pleat\n");
      return 1;
    }
    if (refused) {
      return 1;
    }
    if (Runtime::get() != nullptr) {
      rewrap_engine(host->engine_stub);
      *functions = installed;
      return 0;
    }
    Runtime* const runtime = build_runtime();
    if (runtime == nullptr) {
      refused = true;
      return 1;
    }
    install_engine(*runtime, *host, installed);
    Runtime::publish(runtime);
    install_cpu_allocator(*runtime);
    pthread_atfork(
        before_fork, [] { after_fork(pleat::allocator::ForkSide::kParent); },
        [] {
          after_fork(pleat::allocator::ForkSide::kChild);
          Runtime::get()->retire();
        });
    std::atexit(print_report_at_exit);
    *functions = installed;
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pleat: %s; running without Pleat\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "pleat: an unknown failure at installation; running without Pleat\n");
  }
  refused = true;
  return 1;
}

PLEAT_EXPORT const char* pleat_bridge_built_for(void) noexcept { return TORCH_VERSION; }

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

PLEAT_EXPORT void pleat_exempt_enter(void) noexcept { Runtime::exempt_enter(); }
PLEAT_EXPORT void pleat_exempt_exit(void) noexcept { Runtime::exempt_exit(); }
PLEAT_EXPORT void pleat_backward_enter(void) noexcept { pleat::bridge::backward_enter(); }
PLEAT_EXPORT void pleat_backward_exit(void) noexcept { pleat::bridge::backward_exit(); }

// Installation from Python or C++ after torch is up: no jumps through a preload library.
PLEAT_EXPORT int pleat_install_late(void) noexcept {
  if (Runtime::get() != nullptr) {
    return 0;
  }
  PleatHostFunctions host{};
  host.abi_version = PLEAT_ABI_VERSION;
  host.struct_size = sizeof host;
  PleatBridgeFunctions functions{};
  const int status = pleat_bridge_install(&host, &functions);
  if (status == 0) {
    torch::autograd::set_default_engine_stub(
        reinterpret_cast<torch::autograd::EngineStub>(functions.engine_stub));
  }
  return status;
}

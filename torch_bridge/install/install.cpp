// Puts Pleat in force in a process that has loaded torch, once and permanently: options, self-test,
// engine, allocator, fork and the end of the process. The library is linked with -z nodelete: after
// a dlclose torch still calls its hooks, and the process still calls its fork and exit handlers.
#include <pthread.h>
#include <torch/version.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "torch_bridge/c_abi.h"
#include "torch_bridge/core/fork_locks.h"
#include "torch_bridge/core/runtime.h"
#include "torch_bridge/core/statistics.h"
#include "torch_bridge/entry/entry_points.h"
#include "torch_bridge/install/aten_executor.h"
#include "torch_bridge/install/export.h"
#include "torch_bridge/memory/backends.h"
#include "torch_bridge/memory/cpu_allocator.h"
#include "torch_bridge/memory/torch_record.h"
#include "torch_bridge/torch_access/pass_state.h"
#include "torch_bridge/torch_access/torch_version.h"
#include "torch_bridge/trace/trace.h"

namespace pleat::bridge {
namespace {

// A payload must survive encoding and decoding before Pleat is put in force.
bool self_test(Runtime& runtime) {
  constexpr std::size_t kElements = 4096;
  constexpr std::size_t kBytes = kElements * sizeof(float);
  allocator::Block* const block = runtime.pool.allocate(kBytes);
  allocator::Block* const payload = runtime.pool.allocate(kBytes);
  bool good = block != nullptr && payload != nullptr;
  if (good) {
    auto* const values = reinterpret_cast<float*>(block->begin);
    for (std::size_t i = 0; i < kElements; ++i) {
      values[i] = static_cast<float>(i % 256) / 16.0f - 8.0f;
    }
    const std::vector<float> before(values, values + kElements);
    const compress::Executor& serial = compress::serial_executor();
    const compress::EncodeResult encoded =
        compress::encode({values, kElements, compress::ElementType::kFloat32}, {4, false}, 1,
                         payload->begin, kBytes, serial, nullptr);
    good = encoded.status == compress::Status::kOk &&
           compress::decode(payload->begin, encoded.payload_bytes, values, kBytes, serial) ==
               compress::Status::kOk;
    for (std::size_t i = 0; good && i < kElements; ++i) {
      good = std::abs(values[i] - before[i]) <= 16.0f / 15.0f;
    }
  }
  for (allocator::Block* const taken : {block, payload}) {
    if (taken != nullptr) {
      runtime.pool.free(taken);
    }
  }
  return good;
}

Runtime* build_runtime() {
  Options options;
  std::vector<std::string> problems;
  if (const char* const conf = secure_getenv("PLEAT_CONF")) {
    parse_options(conf, options, problems);
  }
  if (const char* const conf = secure_getenv("PLEAT_TEST_CONF")) {
    parse_options(conf, options, problems, ConfSource::kTests);
  }
  for (const std::string& problem : problems) {
    std::fprintf(stderr, "%s\n", problem.c_str());
  }
  auto* const runtime = new Runtime(options, aten_executor);  // leaked: runtime.h has the reason
  if (!self_test(*runtime)) {
    std::fprintf(stderr, "pleat: the self-test failed; running without Pleat\n");
    return nullptr;
  }
  return runtime;
}

void take_locks_around_fork() {
  pthread_atfork([] { fork_locks().lock_all(); },
                 [] { fork_locks().unlock_all(allocator::ForkSide::kParent); },
                 [] {
                   fork_locks().unlock_all(allocator::ForkSide::kChild);
                   Runtime::get()->retire();
                   Runtime::get()->heaps.for_each(
                       [](allocator::Heap& heap) { heap.events().forget_other_threads(); });
                   abandon_trace(*Runtime::get());
                   forget_other_threads_passes();
                 });
}

void begin_trace(Runtime& runtime) {
  std::string problem;
  const std::string pattern = runtime.options().trace;
  if (!pattern.empty() && !start_trace(runtime, pattern, Taken::kUseAnother, problem)) {
    std::fprintf(stderr, "pleat: %s; there is no trace\n", problem.c_str());
  }
}

void print_report_at_exit() {
  if (Runtime* const runtime = Runtime::get()) {
    if (!runtime->retired()) {
      finish_trace(*runtime);
      runtime->check.finish();
      runtime->sensitivity.write();
      if (runtime->options().verbose >= 1) {
        std::fputs(report_text(*runtime).c_str(), stderr);
      }
    }
    runtime->retire();
  }
}

class Installation {
 public:
  // False: Pleat stays inactive, and has printed the reason.
  bool ask(const PleatHostFunctions* host, PleatBridgeFunctions* functions) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    try {
      if (host == nullptr || functions == nullptr || host->abi_version != PLEAT_ABI_VERSION ||
          host->struct_size != sizeof(PleatHostFunctions)) {
        std::fprintf(stderr,
                     "pleat: the bridge and its loader are of different versions; "
                     "running without Pleat\n");
        return false;
      }
      if (Runtime::get() != nullptr) {
        rewrap_engine(host->engine_stub);
      } else if (refused_ || !put_in_force(*host)) {
        refused_ = true;
        return false;
      }
      *functions = functions_;
      return true;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "pleat: %s; running without Pleat\n", error.what());
    } catch (...) {
      std::fprintf(stderr, "pleat: an unknown failure at installation; running without Pleat\n");
    }
    refused_ = true;
    return false;
  }

 private:
  bool put_in_force(const PleatHostFunctions& host) {
    Runtime* const runtime = build_runtime();
    if (runtime == nullptr) {
      return false;
    }
    functions_.abi_version = PLEAT_ABI_VERSION;
    functions_.struct_size = sizeof functions_;
    functions_.engine_stub = wrap_engine(host.engine_stub);
    const bool sees_saves = install_entry_points(host, functions_);
    runtime->interposed = host.interposed != 0 && sees_saves;
    runtime->sensitivity.set_torch(TORCH_VERSION);
    set_host_backend(*new HostBackend(*runtime));  // leaked, like the runtime
    runtime->host.heap().set_caches(&drop_kept_storages_of);
    Runtime::publish(runtime);
    install_cpu_allocator();
    if (runtime->options().cuda) {
      std::string why;
      open_cuda(*runtime, why);
      if (!why.empty()) {
        std::fprintf(stderr, "pleat: %s\n", why.c_str());
      }
    }
    take_locks_around_fork();
    std::atexit(print_report_at_exit);
    begin_trace(*runtime);
    return true;
  }

  std::mutex mutex_;
  ForkLock fork_lock_{ForkPlace::kInstall, mutex_};
  bool refused_ = false;
  PleatBridgeFunctions functions_{};
};

Installation& installation() {
  static auto* const one = new Installation;  // leaked: a child can call it until it ends
  return *one;
}

}  // namespace
}  // namespace pleat::bridge

using pleat::bridge::Runtime;

PLEAT_EXPORT int pleat_bridge_install(const PleatHostFunctions* host,
                                      PleatBridgeFunctions* functions) noexcept {
  return pleat::bridge::installation().ask(host, functions) ? 0 : 1;
}

PLEAT_EXPORT const char* pleat_bridge_built_for(void) noexcept { return TORCH_VERSION; }

// Installation from Python or C++ with torch loaded: without the jumps of a preload library.
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

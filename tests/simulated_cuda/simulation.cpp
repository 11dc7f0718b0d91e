#include "tests/simulated_cuda/simulation.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

#include "tests/simulated_cuda/kernels.h"
#include "tests/simulated_cuda/memory.h"
#include "tests/simulated_cuda/streams.h"

namespace pleat::simulated {
namespace {

std::atomic<CallCount*> all_counts{nullptr};
bool in_child = false;       // true in a fork of a process that had used the simulation
bool deinitialized = false;  // at the process's end
thread_local bool in_host_function = false;

// Forbidden calls by a forked child; shared with the parent, which reports them.
std::atomic<std::uint64_t>* calls_in_children = nullptr;

// A real driver, found by its device or its library. The simulation's file name differs.
const char* real_driver() {
  if (access("/dev/nvidiactl", F_OK) == 0) return "/dev/nvidiactl";
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return nullptr;
  char line[4096];
  bool found = false;
  while (std::fgets(line, sizeof line, maps) != nullptr)
    found |= std::strstr(line, "/libcuda.so.") != nullptr;
  std::fclose(maps);
  return found ? "a mapped libcuda.so" : nullptr;
}

[[gnu::constructor]] void refuse_beside_a_real_driver() {
  if (const char* const driver = real_driver())
    give_up("refuses to start beside a real driver", driver);
  // Torch would keep its compiled kernels for processes with a real driver, too.
  setenv("USE_PYTORCH_KERNEL_CACHE", "0", 1);
}

void print_string(std::FILE* file, const std::string& text) {
  std::fputc('"', file);
  for (const char c : text)
    if (c == '"' || c == '\\')
      std::fprintf(file, "\\%c", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      std::fprintf(file, "\\u%04x", c);
    else
      std::fputc(c, file);
  std::fputc('"', file);
}

}  // namespace

Caller caller_of(const void* return_address) {
  static auto* const known = new std::unordered_map<const void*, Caller>;
  const auto [at, is_new] = known->try_emplace(return_address, kOther);
  Dl_info info;
  if (is_new && dladdr(return_address, &info) != 0 && info.dli_fname != nullptr) {
    const std::string file = info.dli_fname;
    if (file.find("libpleat") != file.npos)
      at->second = kPleat;
    else if (file.find("/torch/lib/") != file.npos)
      at->second = kTorch;
  }
  return at->second;
}

CallCount::CallCount(const char* function) : name(function), next(all_counts.load()) {
  while (!all_counts.compare_exchange_weak(next, this)) {
  }
}

std::recursive_mutex& lock() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

Simulation& simulation() {
  static auto* const one = new Simulation;
  return *one;
}

int& last_error() {
  thread_local int error = kSuccess;
  return error;
}

void* driver_function(const char* name) {
  for (const char* const version : {"_v3", "_v2", ""})
    if (void* const function = dlsym(RTLD_DEFAULT, (std::string(name) + version).c_str()))
      return function;
  return nullptr;
}

std::uint64_t Simulation::draw_lag() {
  return settings.lag == 0 ? 0 : random() % (settings.lag + 1);
}

void start() {
  Simulation& all = simulation();
  if (all.started) return;
  all.started = true;
  all.random.seed(all.settings.seed);
  calls_in_children = static_cast<std::atomic<std::uint64_t>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_atfork(nullptr, nullptr, [] { in_child = true; });
  std::atexit([] { deinitialized = true; });
  reserve_addresses();
  std::fputs("SIMULATED CUDA\n", stderr);
}

Entry::Entry(CallCount& count, const void* return_address) {
  if (in_child) {  // a thread that the child does not have can hold the lock
    if (caller_of(return_address) == kPleat) ++*calls_in_children;
    error = kNotInitialized;
    return;
  }
  lock().lock();
  locked_ = true;
  const Caller caller = caller_of(return_address);
  ++count.calls[caller];
  Simulation& all = simulation();
  if (deinitialized) {
    error = kDeinitialized;
    if (caller == kPleat) {  // too late for a report: the exit code shows it
      std::fprintf(stderr, "SIMULATED CUDA oracle: Pleat calls %s after DEINITIALIZED\n",
                   count.name);
      std::fflush(stderr);
      _exit(3);
    }
    return;
  }
  if (in_host_function) {
    error = kNotPermitted;
    return;
  }
  if (all.sticky != kSuccess) {
    error = remember(all.sticky);
    return;
  }
  ++all.now;
  land_host_writes(all.now);
}

Entry::~Entry() {
  if (locked_) lock().unlock();
}

InHostFunction::InHostFunction() { in_host_function = true; }
InHostFunction::~InHostFunction() { in_host_function = false; }

void give_up(const char* what, const char* name) {
  std::fprintf(stderr, "SIMULATED CUDA: %s: %s\n", what, name);
  std::fflush(stderr);
  std::abort();
}

void unknown_function(const char* name) { give_up("the function is not simulated", name); }

}  // namespace pleat::simulated

namespace sim = pleat::simulated;

SIMULATED_EXPORT void simulated_cuda_unknown(const char* name) { sim::unknown_function(name); }

// For functions of the libraries of mathematics that only queue work: counts the call.
SIMULATED_EXPORT void* simulated_cuda_count(const char* name) { return new sim::CallCount(name); }
SIMULATED_EXPORT void simulated_cuda_called(void* count) {
  ++static_cast<sim::CallCount*>(count)->calls[sim::kTorch];
}
// A handle without an object.
SIMULATED_EXPORT void* simulated_cuda_handle() {
  static char handles[1 << 16];
  static std::atomic<std::size_t> next{0};
  return handles + next.fetch_add(8) % sizeof handles;
}

// Must be called before the first use of a device; false afterwards.
SIMULATED_EXPORT bool simulated_cuda_configure(int devices, std::size_t memory_bytes,
                                               std::uint64_t lag, std::uint64_t seed,
                                               bool true_values) {
  const std::lock_guard guard(sim::lock());
  if (sim::simulation().started || devices < 0 || devices > sim::kMostDevices) return false;
  sim::simulation().settings = {devices, memory_bytes, lag, seed, true_values};
  return true;
}

SIMULATED_EXPORT std::size_t simulated_cuda_objections() {
  const std::lock_guard guard(sim::lock());
  return sim::simulation().ledger.objections() +
         (sim::calls_in_children != nullptr ? sim::calls_in_children->load() : 0);
}

SIMULATED_EXPORT void simulated_cuda_object(const char* report) {
  const std::lock_guard guard(sim::lock());
  sim::simulation().ledger.object(report);
}

SIMULATED_EXPORT bool simulated_cuda_write_json(const char* path) {
  const std::lock_guard guard(sim::lock());
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return false;
  std::fputs("{\"oracle_reports\": [", file);
  const char* comma = "";
  for (const std::string& report : sim::simulation().ledger.reports()) {
    std::fputs(comma, file);
    sim::print_string(file, report);
    comma = ", ";
  }
  if (sim::calls_in_children != nullptr && sim::calls_in_children->load() != 0)
    std::fprintf(file, "%s\"Pleat calls the driver %llu times in a forked child\"", comma,
                 static_cast<unsigned long long>(sim::calls_in_children->load()));
  std::fputs("], \"calls\": {", file);
  comma = "";
  for (const sim::CallCount* count = sim::all_counts; count != nullptr; count = count->next) {
    unsigned long long calls[sim::kCallers], all = 0;
    for (int c = 0; c < sim::kCallers; ++c) all += calls[c] = count->calls[c];
    if (all == 0) continue;
    std::fprintf(file, "%s\"%s\": {\"torch\": %llu, \"Pleat\": %llu, \"other\": %llu}", comma,
                 count->name, calls[sim::kTorch], calls[sim::kPleat], calls[sim::kOther]);
    comma = ", ";
  }
  std::fputs("}, \"launches\": {", file);
  comma = "";
  for (const auto& [kernel, launches] : sim::launches()) {
    std::fputs(comma, file);
    sim::print_string(file, kernel);
    std::fprintf(file, ": %llu", static_cast<unsigned long long>(launches));
    comma = ", ";
  }
  std::fputs("}, \"peaks\": {\"devices\": [", file);
  for (int device = 0; device < sim::simulation().settings.devices; ++device)
    std::fprintf(file, "%s%zu", device == 0 ? "" : ", ", sim::memory_use(device).peak);
  std::fprintf(file, "], \"pinned\": %zu}}\n", sim::pinned_use().peak);
  return std::fclose(file) == 0;
}

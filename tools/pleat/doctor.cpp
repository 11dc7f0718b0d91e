#include "commands.h"

#include <dlfcn.h>
#include <fmt/color.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "answer.h"
#include "installation.h"
#include "python_torch.h"
#include "torch_bridge/core/option_text.h"
#include "torch_bridge/core/options.h"

namespace pleat::cli {
namespace fs = std::filesystem;
namespace {

enum class Status {
  kGood,
  kNote,    // worth knowing; Pleat works all the same
  kBroken,  // `pleat run` would run the program without Pleat, or not at all
};

struct Check {
  Status status;
  std::string name;
  std::string finding;
  std::string remedy;  // the advice, unless the state is good
};

struct Diagnosis {
  Installation installation;
  PythonTorch torch;
  bridge::Options options;
  std::vector<Check> checks;
  std::string verdict;
  bool works = true;

  void add(Status status, std::string name, std::string finding, std::string remedy = {}) {
    works = works && status != Status::kBroken;
    checks.push_back({status, std::move(name), std::move(finding), std::move(remedy)});
  }
};

// --- the checks, in the order they are printed ------------------------------------------------

void check_library(Diagnosis& diagnosis) {
  const fs::path& library = diagnosis.installation.library;
  if (library.empty())
    diagnosis.add(Status::kBroken, "library", missing_library_message(diagnosis.installation));
  else if (!fits_preload(library))
    diagnosis.add(Status::kBroken, "library", library.string(),
                  "LD_PRELOAD cannot hold a path with a space or a colon; set PLEAT_LIB_DIR to a "
                  "link without one");
  else
    diagnosis.add(Status::kGood, "library", library.string());
}

void check_bridges(Diagnosis& diagnosis) {
  const Installation& installation = diagnosis.installation;
  if (installation.library.empty()) return;
  if (installation.bridges.empty()) {
    diagnosis.add(Status::kBroken, "bridges", missing_bridges_message(installation));
    return;
  }
  std::vector<std::string> releases;
  for (const TorchRelease release : installation.bridges) releases.push_back(to_string(release));
  diagnosis.add(Status::kGood, "bridges", fmt::format("for torch {}", fmt::join(releases, ", ")));
}

void check_torch(Diagnosis& diagnosis) {
  const PythonTorch& torch = diagnosis.torch;
  if (!torch.python_runs) {
    diagnosis.add(Status::kBroken, "python", torch.python + " does not run",
                  "name an interpreter with --python, or activate the environment that has torch");
    return;
  }
  diagnosis.add(Status::kGood, "python", torch.python + " " + torch.python_version);
  if (torch.folder.empty()) {
    diagnosis.add(Status::kBroken, "torch", torch.python + " has no torch",
                  "name the interpreter that has it with --python");
    return;
  }
  const std::optional<TorchRelease> release = parse_release(torch.version);
  if (!release) {
    diagnosis.add(Status::kBroken, "torch", torch.folder.string(),
                  "its version.py names no version; a torch built in place is not supported");
    return;
  }
  diagnosis.add(Status::kGood, "torch",
                fmt::format("{} in {}", torch.version, torch.folder.string()));
  const std::vector<TorchRelease>& bridges = diagnosis.installation.bridges;
  if (bridges.empty()) return;
  if (std::find(bridges.begin(), bridges.end(), *release) != bridges.end())
    diagnosis.add(Status::kGood, "fit", bridge_file_name(*release));
  else
    diagnosis.add(Status::kBroken, "fit",
                  fmt::format("no bridge for torch {}", to_string(*release)),
                  "run `pip install --no-build-isolation .` in Pleat's sources with this "
                  "interpreter, or use a torch that a bridge fits");
}

void check_switches(Diagnosis& diagnosis) {
  const std::string disable = variable("PLEAT_DISABLE");
  if (!disable.empty() && disable != "0")
    diagnosis.add(Status::kBroken, "switch", "PLEAT_DISABLE=" + disable, "unset PLEAT_DISABLE");
  if (const std::string named = variable("PLEAT_BRIDGE"); !named.empty()) {
    std::error_code error;
    const bool there = fs::exists(named, error);
    diagnosis.add(there ? Status::kNote : Status::kBroken, "switch", "PLEAT_BRIDGE=" + named,
                  there ? "this bridge is used whatever torch is loaded; meant for development"
                        : "no such file; unset PLEAT_BRIDGE");
  }
}

#ifdef PLEAT_HAVE_DEVICE_CODE
constexpr bool kHasKernels = true;
#else
constexpr bool kHasKernels = false;
#endif

// Names of the devices that the driver shows, with their architectures; or the problem.
std::vector<std::string> cuda_devices(std::string& problem) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    problem = "no driver (libcuda.so.1)";
    return {};
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  const auto attribute =
      reinterpret_cast<int (*)(int*, int, int)>(::dlsym(driver, "cuDeviceGetAttribute"));
  if (init == nullptr || count == nullptr || name == nullptr || attribute == nullptr) {
    problem = "the driver lacks a function";
    return {};
  }
  int devices = 0;
  if (int error = init(0); error != 0 || (error = count(&devices)) != 0) {
    problem = fmt::format("the driver answers with error {}", error);
    return {};
  }
  std::vector<std::string> found;
  for (int device = 0; device < devices; ++device) {
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
    char text[256] = "";
    int major = 0, minor = 0;
    (void)name(text, sizeof text - 1, device);
    (void)attribute(&major, kMajor, device);
    (void)attribute(&minor, kMinor, device);
    found.push_back(fmt::format("cuda:{} {} (sm_{}{})", device, text, major, minor));
  }
  if (found.empty()) problem = "no device";
  return found;
}

// Treatment of CUDA tensors. No finding here keeps a job from running.
void check_cuda(Diagnosis& diagnosis) {
  std::error_code error;
  const fs::path lib = diagnosis.torch.folder / "lib";
  if (diagnosis.torch.folder.empty() || !fs::exists(lib / "libc10_cuda.so", error)) return;
  const std::optional<TorchRelease> release = parse_release(diagnosis.torch.version);
  if (!release || diagnosis.installation.library.empty()) return;
  if (!diagnosis.options.cuda) {
    diagnosis.add(Status::kNote, "cuda", "CUDA tensors are left to stock (cuda:0)");
    return;
  }
  std::string part = bridge_file_name(*release);
  constexpr std::string_view kBridge = "pleat_bridge_";
  part.replace(part.find(kBridge), kBridge.size(), "pleat_cuda_");
  if (!fs::exists(diagnosis.installation.library.parent_path() / part, error)) {
    diagnosis.add(Status::kNote, "cuda", "no " + part + ": CUDA tensors are left to stock",
                  "install Pleat where CUDA's headers are (torch's own wheels have them)");
    return;
  }
  if (!kHasKernels) {
    diagnosis.add(Status::kNote, "cuda", "built without kernels: CUDA tensors are left to stock",
                  "install Pleat where an nvcc of CUDA 12.8 or newer is");
    return;
  }
  std::string problem;
  const std::vector<std::string> devices = cuda_devices(problem);
  if (problem.empty())
    diagnosis.add(Status::kGood, "cuda", fmt::format("{}", fmt::join(devices, ", ")));
  else
    diagnosis.add(Status::kNote, "cuda", problem, "works; there are no CUDA tensors here");
}

std::string first_line(const char* path) {
  std::string line;
  std::ifstream stream(path);
  std::getline(stream, line);
  return line;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

std::string huge_pages() {
  const std::string line = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1)
                                                    : "unknown";
}

// 0: no limit.
std::uint64_t address_space_limit() {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? limit.rlim_cur : 0;
}

void check_machine(Diagnosis& diagnosis) {
  if (has_avx512() || has_avx2())
    diagnosis.add(Status::kGood, "processor", has_avx512() ? "AVX-512" : "AVX2");
  else
    diagnosis.add(Status::kNote, "processor", "neither AVX2 nor AVX-512",
                  "works, but compression takes a larger share of each step");
  const std::string pages = huge_pages();
  if (pages == "never")
    diagnosis.add(Status::kNote, "huge pages", pages,
                  "works; `madvise` would save page faults on large blocks");
  else
    diagnosis.add(Status::kGood, "huge pages", pages);
  if (const std::uint64_t limit = address_space_limit(); limit == 0)
    diagnosis.add(Status::kGood, "address space", "no limit");
  else
    diagnosis.add(Status::kNote, "address space", fmt::format("limited to {} MiB", limit >> 20),
                  "the limit (ulimit -v) is respected, and counts reserved memory too");
}

void check_preload(Diagnosis& diagnosis) {
  const std::vector<std::string> entries = preload_entries(variable("LD_PRELOAD"));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string& entry = entries[i];
    const std::string name = fs::path(entry).filename().string();
    std::error_code error;
    if (name == "libpleat.so") {
      const fs::path& ours = diagnosis.installation.library;
      const bool same = fs::equivalent(entry, ours, error) && !error;
      diagnosis.add(same ? Status::kGood : Status::kNote, "LD_PRELOAD", entry,
                    same ? "" : "another libpleat.so; `pleat run` puts its own in its place");
    } else if (is_sanitizer_runtime(entry)) {
      diagnosis.add(i == 0 ? Status::kGood : Status::kNote, "LD_PRELOAD", entry,
                    i == 0 ? "" : "must come first; `pleat run` puts it there");
    } else if (entry.find('/') != std::string::npos && !fs::exists(entry, error)) {
      diagnosis.add(Status::kNote, "LD_PRELOAD", entry, "no such file; the loader will complain");
    } else {
      diagnosis.add(Status::kGood, "LD_PRELOAD",
                    entry + (name.find("malloc") != std::string::npos
                                 ? " (serves what Pleat's pool leaves to malloc)"
                                 : " (kept)"));
    }
  }
}

void check_library_path(Diagnosis& diagnosis) {
  std::string folders = variable("LD_LIBRARY_PATH");
  std::replace(folders.begin(), folders.end(), ':', '\n');
  std::istringstream lines(folders);
  for (std::string folder; std::getline(lines, folder);) {
    std::error_code error;
    const fs::path path = fs::path(folder).lexically_normal();
    const fs::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
    if (last == "stubs" &&
        (fs::exists(path / "libcuda.so", error) || fs::exists(path / "libcuda.so.1", error)))
      diagnosis.add(Status::kNote, "LD_LIBRARY_PATH", folder,
                    "holds the stub libcuda, which answers error 34 to every call; take it out");
  }
}

void check_options(Diagnosis& diagnosis, const Settings& settings) {
  std::vector<std::string> problems;
  bridge::parse_options(merge_conf(variable("PLEAT_CONF"), settings), diagnosis.options, problems);
  for (std::string& problem : problems) {
    constexpr std::string_view kPrefix = "pleat: PLEAT_CONF: ";
    if (problem.starts_with(kPrefix)) problem.erase(0, kPrefix.size());
    diagnosis.add(Status::kNote, "PLEAT_CONF", problem);
  }
}

std::string verdict(const Diagnosis& diagnosis) {
  if (!diagnosis.works) {
    const bool starts =
        !diagnosis.installation.library.empty() && fits_preload(diagnosis.installation.library);
    return starts ? "`pleat run` would start the program, but without Pleat"
                  : "`pleat run` would refuse to start";
  }
  const std::string bits = bridge::option_value(diagnosis.options, "bits");
  const std::string effect = diagnosis.options.mode == bridge::Mode::kOff
                                 ? "compress nothing (bits:off)"
                             : diagnosis.options.mode == bridge::Mode::kLossless
                                 ? "compress saved tensors without loss"
                                 : "compress saved tensors to at most " + bits + " bits an element";
  return fmt::format("`pleat run -- {} ...` would {} (torch {})", diagnosis.torch.python, effect,
                     diagnosis.torch.version);
}

Diagnosis diagnose(const std::string& python, const Settings& settings) {
  Diagnosis diagnosis;
  diagnosis.installation = find_installation();
  diagnosis.torch = find_python_torch(python);
  check_library(diagnosis);
  check_bridges(diagnosis);
  check_torch(diagnosis);
  check_switches(diagnosis);
  check_machine(diagnosis);
  check_preload(diagnosis);
  check_library_path(diagnosis);
  check_options(diagnosis, settings);
  check_cuda(diagnosis);
  diagnosis.verdict = verdict(diagnosis);
  return diagnosis;
}

// --- output -----------------------------------------------------------------------------------

Section answer_of(const Diagnosis& diagnosis) {
  constexpr std::array kNames{"ok", "note", "broken"};  // by Status
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Section to;
  to.text(fmt::format("pleat {}\n\n", PLEAT_VERSION));
  to.value("ok", diagnosis.works);
  to.value("verdict", diagnosis.verdict);
  to.value("version", PLEAT_VERSION);
  to.value("library", or_null(diagnosis.installation.library.string()));
  Json bridges = Json::array();
  for (const TorchRelease release : diagnosis.installation.bridges)
    bridges.push_back(to_string(release));
  to.value("bridges", std::move(bridges));
  to.value("python", or_null(diagnosis.torch.python_runs ? diagnosis.torch.python : ""));
  to.value("torch", or_null(diagnosis.torch.version));
  to.value("torch_folder", or_null(diagnosis.torch.folder.string()));
  to.value("cpu", {{"avx2", has_avx2()}, {"avx512", has_avx512()}});
  to.value("transparent_huge_pages", huge_pages());
  const std::uint64_t limit = address_space_limit();
  to.value("address_space_limit_bytes", limit == 0 ? Json() : Json(limit));
  Json checks = Json::array();
  for (const Check& check : diagnosis.checks) {
    const char* const status = kNames[static_cast<std::size_t>(check.status)];
    to.text(fmt::format("  {:<7} {:<15} {}\n", status, check.name, check.finding));
    if (!check.remedy.empty()) to.text(fmt::format("  {:<7} {:<15} -> {}\n", "", "", check.remedy));
    checks.push_back({{"status", status},
                      {"name", check.name},
                      {"finding", check.finding},
                      {"remedy", or_null(check.remedy)}});
  }
  to.value("checks", std::move(checks));
  to.text(fmt::format("\n  {:<10} {:<12} {:<12} {}\n", "option", "in force", "default", "allowed"));
  Json options = Json::array();
  for (const bridge::OptionRow& row : bridge::option_table()) {
    const std::string value = bridge::option_value(diagnosis.options, row.key);
    if (bridge::is_shown(row) || value != row.default_value)
      to.text(fmt::format("  {:<10} {:<12} {:<12} {}\n  {:<10} {}\n", row.key,
                          bridge::printable(bridge::spelled(value)), row.default_value, row.allowed,
                          "", row.help));
    if (row.audience != bridge::Audience::kCheck)
      options.push_back({{"key", row.key},
                         {"value", value},
                         {"default", row.default_value},
                         {"allowed", row.allowed},
                         {"help", row.help}});
  }
  to.value("options", std::move(options));
  to.text(fmt::format("\n{}\n", diagnosis.verdict));
  return to;
}

}  // namespace

int doctor(const std::string& python, const Settings& settings, bool as_json) {
  const Diagnosis diagnosis = diagnose(python, settings);
  return put(answer_of(diagnosis), as_json) && diagnosis.works ? 0 : 1;
}

}  // namespace pleat::cli

// compress_golden --write FILE | --check FILE [--isa=scalar|avx2|avx512|cuda]
// The committed file is tests/compress/golden.txt. A new back end becomes checkable by a Backend.
// cuda: exits 77 where there is no GPU, or the kernels were not built.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/compress/golden.h"
#include "tests/gpu/golden_gpu.h"

using namespace pleat::compress;

int main(int argc, char** argv) {
  const char* file = nullptr;
  bool write = false, cuda = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if ((argument == "--write" || argument == "--check") && i + 1 < argc) {
      write = argument == "--write";
      file = argv[++i];
      continue;
    }
    bool known = argument == "--isa=cuda";
    cuda |= known;
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
      if (argument != std::string("--isa=") + isa_name(isa)) continue;
      if (!isa_supported(isa)) {
        std::fprintf(stderr, "compress_golden: this CPU has no %s\n", isa_name(isa));
        return 2;
      }
      set_isa(isa);
      known = true;
    }
    if (!known) file = nullptr, i = argc;
  }
  if (file == nullptr || (write && cuda)) {
    std::fprintf(stderr, "usage: compress_golden --write|--check FILE [--isa=NAME]\n");
    return 2;
  }
  if (cuda) {
    const golden::Compared all =
        golden::compare_device(golden::gpu_backend(), golden::read_lines(file));
    std::printf("%u cases on cuda, %u differ\n", all.cases, all.differ);
    return all.differ == 0 ? 0 : 1;
  }
  const std::vector<std::string> now = golden::library_lines();
  if (write) {
    std::ofstream out(file);
    for (const std::string& line : now) out << line << '\n';
    return out.good() ? 0 : 1;
  }
  const std::vector<std::string> then = golden::read_lines(file);
  int differing = 0;
  for (std::size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    const std::string a = i < then.size() ? then[i] : "(no line)";
    const std::string b = i < now.size() ? now[i] : "(no case)";
    if (a == b) continue;
    if (++differing <= 10) std::printf("expected %s\n     got %s\n", a.c_str(), b.c_str());
  }
  std::printf("%zu cases on %s, %d differ\n", now.size(), isa_name(active_isa()), differing);
  return differing == 0 ? 0 : 1;
}

// PLEAT_PLANTED selects the active bug when the library is loaded.
#include "planted_names.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

int (*planted_at_end)(void** context) = nullptr;

namespace {

int find_bug() {
  const char* const name = std::getenv("PLEAT_PLANTED");
  if (name == nullptr || *name == '\0') return 0;
  for (std::size_t i = 1; i < std::size(kPlantedBugs); ++i)
    if (std::strcmp(kPlantedBugs[i], name) == 0) return static_cast<int>(i);
  std::fprintf(stderr, "no bug is called \"%s\"\n", name);
  std::abort();
}

// The library is loaded before the first use of a device, so this destructor runs after the
// driver's.
struct AtEnd {
  ~AtEnd() {
    void* context = nullptr;
    if (planted_at_end != nullptr) planted_at_end(&context);
  }
} at_end;

}  // namespace

extern int planted_bug;
int planted_bug = find_bug();

// The libFuzzer entry for PLEAT_CONF: the parser against the reference of the unit tests.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/tools/option_reference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string wrong =
      pleat::bridge::testing::what_is_wrong({reinterpret_cast<const char*>(data), size});
  if (!wrong.empty()) {
    std::fprintf(stderr, "wrong: %s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}

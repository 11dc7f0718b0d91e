// The libFuzzer entry for the name of a trace's file: a letter of ranks, the host's name, and the
// pattern, a line each.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/torch_bridge/trace_file_reference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view all(reinterpret_cast<const char*>(data), size);
  const auto line = [&all] {
    const std::string_view text = all.substr(0, all.find('\n'));
    all.remove_prefix(text.size() < all.size() ? text.size() + 1 : text.size());
    // Both are strings of C.
    return std::string(text.substr(0, text.find('\0')));
  };
  const std::string ranks = line();
  pleat::bridge::ProcessIdentity who;
  who.process = 4711;
  who.started = 1'700'000'000;
  if (!ranks.empty()) {
    const auto letter = static_cast<unsigned char>(ranks[0]);
    if ((letter & 1u) != 0) who.rank = letter;
    if ((letter & 2u) != 0) who.local_rank = ~std::uint64_t{0} / letter;
  }
  who.host = line();
  const std::string pattern(all.substr(0, all.find('\0')));
  const std::string wrong = pleat::bridge::testing::what_is_wrong(pattern, who);
  if (!wrong.empty()) {
    std::fprintf(stderr, "wrong: %s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}

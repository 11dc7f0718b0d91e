#include "torch_bridge/torch_access/memory_error.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

namespace pleat::bridge {
namespace {

// The text of stock's own error, whose wording differs between releases: an allocation beyond any
// machine fails at once. Empty if it fails in another way.
std::string stock_text(std::size_t bytes) {
  constexpr std::size_t kTooMany = PTRDIFF_MAX & ~std::size_t{4095};
  try {
    c10::free_cpu(c10::alloc_cpu(kTooMany));
  } catch (const c10::Error& error) {
    std::string text = error.what_without_backtrace();
    const std::string number = std::to_string(kTooMany);
    if (const auto at = text.find(number); at != std::string::npos) {
      text.replace(at, number.size(), std::to_string(bytes));
      return text + "\n";
    }
  }
  return {};
}

}  // namespace

void throw_out_of_memory(std::size_t bytes, const char* purpose) {
  c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, false, stock_text(bytes), "Pleat: out of memory while ",
                   purpose, " of ", bytes, " bytes");
}

}  // namespace pleat::bridge

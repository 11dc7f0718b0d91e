#include "compress/parts.h"

#include <cstring>

#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/kernels.h"

namespace pleat::compress {

const Executor& serial_executor() noexcept {
  // Leaked: payloads may be decoded while the process is being torn down.
  static const Executor* const serial =
      new Executor([](std::size_t items, std::size_t,
                      const std::function<void(std::size_t, std::size_t)>& body) {
        if (items != 0) body(0, items);
      });
  return *serial;
}

namespace internal {
void run_parts_erased(const Executor& executor, std::size_t items, std::size_t grain,
                      const void* body,
                      void (*call)(const void*, std::size_t, std::size_t)) noexcept {
  if (items == 0) return;
  if (!executor || items <= grain) {
    const FloatEnvironment environment;
    call(body, 0, items);
    return;
  }
  struct Context {
    const void* body;
    void (*call)(const void*, std::size_t, std::size_t);
  } const context{body, call};
  executor(items, grain, [&context](std::size_t begin, std::size_t end) {  // one pointer: no heap
    const FloatEnvironment environment;
    context.call(context.body, begin, end);
  });
}
}  // namespace internal

bool worth_streaming(const void* target, std::size_t bytes) noexcept {
  return bytes >= stream_threshold() && reinterpret_cast<std::uintptr_t>(target) % 64 == 0;
}

bool is_escaped(ElementType type, const void* metadata, std::size_t g) noexcept {
  return with_type(type, [&]<class T>() {
    typename T::Word words[2];
    std::memcpy(words, static_cast<const std::uint8_t*>(metadata) + g * sizeof words, sizeof words);
    return words[0] == words[1] && (words[1] & kSignBit<T>) != 0;
  });
}

}  // namespace pleat::compress

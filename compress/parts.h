// How the loops over blocks of elements are cut into parts for threads. Internal to compress/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/format.h"
#include "compress/types.h"

namespace pleat::compress {

// Runs body(begin, end) over [0, items) on the executor, each part in the fixed float environment.
// An empty executor means the serial one. Passes `Body` by reference, so no memory is allocated.
template <class Body>
void run_parts(const Executor& executor, std::size_t items, std::size_t grain, const Body& body);

// Smallest part for a thread, in blocks of kBlockElements. 32 Ki elements take 7 us; a second
// thread pays from twice as many on.
inline constexpr std::size_t kGrainBlocks = 2;

// Smallest part for a thread, in bytes, where elements are only packed or compared; and the same in
// blocks of the type.
inline constexpr std::size_t kGrainBytes = 512 * 1024;
[[nodiscard]] inline std::size_t packing_grain(ElementType type) noexcept {
  return kGrainBytes / (kBlockElements * element_size(type));
}

// Runs body(first, count) over the elements of a span, a block at a time, in parts of at least
// `grain` blocks.
template <class Body>
void by_blocks(const Executor& executor, std::size_t elements, std::size_t grain, const Body& body);

// True if so many bytes are worth writing past the caches: see stream_threshold() (kernels.h).
[[nodiscard]] bool worth_streaming(const void* target, std::size_t bytes) noexcept;

// True if group `g` is marked escaped; `metadata` is that of group 0.
[[nodiscard]] bool is_escaped(ElementType type, const void* metadata, std::size_t g) noexcept;

// ---- implementation of the template ----

namespace internal {
void run_parts_erased(const Executor& executor, std::size_t items, std::size_t grain,
                      const void* body,
                      void (*call)(const void* body, std::size_t begin, std::size_t end)) noexcept;
}

template <class Body>
void run_parts(const Executor& executor, std::size_t items, std::size_t grain, const Body& body) {
  internal::run_parts_erased(executor, items, grain, &body,
                             [](const void* erased, std::size_t begin, std::size_t end) {
                               (*static_cast<const Body*>(erased))(begin, end);
                             });
}

template <class Body>
void by_blocks(const Executor& executor, std::size_t elements, std::size_t grain,
               const Body& body) {
  run_parts(executor, ceil_divide(elements, kBlockElements), grain,
            [&](std::size_t begin, std::size_t end) {
              for (std::size_t block = begin; block < end; ++block) {
                const std::size_t first = block * kBlockElements;
                body(first, elements - first < kBlockElements ? elements - first : kBlockElements);
              }
            });
}

}  // namespace pleat::compress

#include "compress/booleans/booleans.h"

#include <atomic>
#include <cstring>

#include "compress/kernels.h"

namespace pleat::compress {
namespace {

// True if good(source, first, count) holds for every block of the span's elements.
template <class Good>
bool all_blocks(const Span& span, const Executor& executor, const Good& good) noexcept {
  std::atomic<bool> all{true};
  by_blocks(executor, span.elements, packing_grain(ElementType::kBool),
            [&](std::size_t first, std::size_t count) {
              if (all.load(std::memory_order_relaxed) &&
                  !good(static_cast<const std::uint8_t*>(span.data) + first, first, count))
                all.store(false, std::memory_order_relaxed);
            });
  return all.load();
}

// A byte other than 0 is true.
void pack_any_bytes(const std::uint8_t* source, std::size_t elements, std::uint8_t* bits) noexcept {
  std::memset(bits, 0, packed_bytes(elements, 1));
  for (std::size_t e = 0; e < elements; ++e)
    bits[e / 8] |= static_cast<std::uint8_t>((source[e] != 0) << e % 8);
}

}  // namespace

bool are_booleans(const Span& span, const Executor& executor) noexcept {
  return all_blocks(span, executor, [](const std::uint8_t* source, std::size_t, std::size_t count) {
    return kernels().are_booleans(source, count);
  });
}

bool encode_booleans(const Request& request, const Executor& executor, std::uint8_t* payload,
                     std::size_t capacity, EncodeResult* result) noexcept {
  const std::size_t bytes = kHeaderBytes + packed_bytes(request.span.elements, 1);
  *result = kDoesNotFit;
  if (bytes > capacity) return true;  // raw is no smaller
  std::uint8_t* const bits = payload + kHeaderBytes;
  if (!all_blocks(request.span, executor,
                  [&](const std::uint8_t* source, std::size_t first, std::size_t count) {
                    if (kernels().pack_booleans(source, count, bits + first / 8)) return true;
                    if (request.spec.any_byte) pack_any_bytes(source, count, bits + first / 8);
                    return request.spec.any_byte;
                  }))
    return false;
  *result = finish_header(request.header(PayloadKind::kBoolean), bytes, payload);
  return true;
}

Status decode_booleans(const Header& header, const std::uint8_t* payload, void* target,
                       const Executor& executor) noexcept {
  if (static_cast<ElementType>(header.type) != ElementType::kBool ||
      header.payload_bytes - kHeaderBytes != packed_bytes(header.elements, 1))
    return Status::kCorrupt;
  const bool stream = worth_streaming(target, header.elements);
  by_blocks(executor, header.elements, packing_grain(ElementType::kBool),
            [&](std::size_t first, std::size_t count) {
              kernels().unpack_booleans(payload + kHeaderBytes + first / 8, count,
                                        static_cast<std::uint8_t*>(target) + first, stream);
            });
  return Status::kOk;
}

}  // namespace pleat::compress

#include "torch_bridge/core/codec_totals.h"

namespace pleat::bridge {

using compress::ElementType;
using compress::block::Kept;

void CodecTotals::add(const compress::block::BlockSpec& spec, std::uint64_t elements,
                      std::uint64_t payload_bytes,
                      const compress::SpanStatistics& statistics) noexcept {
  const auto relaxed = std::memory_order_relaxed;
  Class* into = &raw;
  if (spec.kept == Kept::kNothing) {
    into = &nothing;
    elements /= compress::element_size(spec.type);
  } else if (spec.kept == Kept::kSides) {
    into = &sides;
  } else if (spec.bits != 0) {
    into = spec.type == ElementType::kFloat32 ? &lossy_fp32 : &lossy_16bit;
  } else if (compress::is_floating(spec.type)) {
    into = &lossless_float;
  } else if (spec.type == ElementType::kBool) {
    into = &boolean;
  } else if (spec.type != ElementType::kBytes) {
    into = &integer;
  }
  into->payloads.fetch_add(1, relaxed);
  into->source_bytes.fetch_add(elements * compress::element_size(spec.type), relaxed);
  into->payload_bytes.fetch_add(payload_bytes, relaxed);
  into->elements.fetch_add(elements, relaxed);
  groups.fetch_add(statistics.groups, relaxed);
  two_valued_groups.fetch_add(statistics.two_valued_groups, relaxed);
  escaped_groups.fetch_add(statistics.escaped_groups, relaxed);
}

}  // namespace pleat::bridge

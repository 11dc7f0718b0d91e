// Totals of the bytes that went through a codec, by class, for the report. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "compress/block/block_spec.h"
#include "compress/types.h"

namespace pleat::bridge {

// Relaxed atomics.
struct CodecTotals {
  struct Class {
    std::atomic<std::uint64_t> payloads{0}, source_bytes{0}, payload_bytes{0}, elements{0};
  };
  Class lossy_fp32, lossy_16bit, lossless_float, boolean, integer, raw;
  Class sides;    // of whose values only the sides are kept
  Class nothing;  // of which nothing but the size is
  std::atomic<std::uint64_t> two_valued_groups{0}, escaped_groups{0}, groups{0};
  std::atomic<std::uint64_t> kept_raw{0}, kept_raw_bytes{0};

  // The classes, as reports name them.
  struct NamedClass {
    const char* name;
    const Class& value;
  };
  [[nodiscard]] std::array<NamedClass, 8> classes() const noexcept {
    return {{{"lossy_fp32", lossy_fp32},
             {"lossy_16bit", lossy_16bit},
             {"lossless_float", lossless_float},
             {"boolean", boolean},
             {"integer", integer},
             {"sides", sides},
             {"nothing", nothing},
             {"raw", raw}}};
  }

  // A payload of so many elements of `spec`; of bytes, where none of them are kept.
  void add(const compress::block::BlockSpec& spec, std::uint64_t elements,
           std::uint64_t payload_bytes, const compress::SpanStatistics& statistics) noexcept;
  void add_kept_raw(std::size_t bytes) noexcept {
    kept_raw.fetch_add(1, std::memory_order_relaxed);
    kept_raw_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
};

}  // namespace pleat::bridge

#include "interpose/trace/book_figures.h"

#include <algorithm>
#include <cstdio>

#include "interpose/trace/payload_width.h"

namespace pleat::trace {
namespace {

// Of a record, with elements of `bits`; -1: nothing is known.
std::int64_t payload_at(const BookRecord& record, int bits) noexcept {
  std::int64_t payload = -1;
  if (record.encoded) {
    payload = record.payload_bytes;
  } else if (record.has_plan && record.plan == PLEAT_TRACE_PLAN_CODED) {
    payload = static_cast<std::int64_t>(record.planned);
  } else if (record.has_plan) {
    return record.plan == PLEAT_TRACE_PLAN_RECOMPUTED ? 0 : record.bytes;
  }
  const auto elements = static_cast<std::int64_t>(
      std::min<std::uint64_t>(record.noisy_elements, std::uint64_t{1} << 50));
  return payload_at_width(payload, {elements, record.bits, record.least}, bits, record.bytes);
}

}  // namespace

SavedBytes saved_bytes(BookDevice& device) noexcept {
  SavedBytes all;
  device.records.for_each([&](std::uint64_t /*id*/, const BookRecord& record) {
    std::int64_t now = record.payload_bytes;
    if (!record.encoded) {
      const BookBlock* const block = record.released ? device.blocks.find(record.block) : nullptr;
      if (block == nullptr || block->use != Use::kSavedRaw) return;
      now = block->bytes;
    }
    const std::int64_t at_8 = payload_at(record, 8), at_4 = payload_at(record, 4);
    all.now += now;
    all.at_8_bits += at_8 >= 0 ? at_8 : now;
    all.at_4_bits += at_4 >= 0 ? at_4 : now;
    if (at_4 < 0) all.not_known += now;
  });
  return all;
}

void write_size(std::int64_t bytes, std::span<char> text) noexcept {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const bool negative = bytes < 0;
  const std::uint64_t size =
      negative ? 0 - static_cast<std::uint64_t>(bytes) : static_cast<std::uint64_t>(bytes);
  unsigned unit = 0;
  while (unit < 6 && size >> (10 * unit) >= 1024) ++unit;
  const char* const sign = negative ? "-" : "";
  if (unit == 0) {
    std::snprintf(text.data(), text.size(), "%s%llu B", sign,
                  static_cast<unsigned long long>(size));
    return;
  }
  // In hundredths of the unit, from its thousandth part on, so that nothing overflows.
  const std::uint64_t below = size >> (10 * (unit - 1));  // in units that are 1024 times smaller
  std::uint64_t hundredths = (below * 100 + 512) / 1024;
  if (hundredths >= 102'400 && unit < 6) {  // what would be printed as 1024 is one of the next unit
    hundredths = 100;
    ++unit;
  }
  std::snprintf(text.data(), text.size(), "%s%llu.%02llu %s", sign,
                static_cast<unsigned long long>(hundredths / 100),
                static_cast<unsigned long long>(hundredths % 100), kUnits[unit]);
}

}  // namespace pleat::trace

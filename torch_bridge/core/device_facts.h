// Facts about a device for the report, in addition to those of the host. Torch-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/heap.h"
#include "compress/block/block_payload.h"
#include "torch_bridge/core/codec_totals.h"
#include "torch_bridge/core/reasons.h"

namespace pleat::bridge {

// Why a block is held raw.
enum class DeviceHold : std::uint8_t {
  kNoForm,    // its type has no shorter form, or it is too small for one
  kNotYet,    // the last payload of its key was refused
  kRefused,   // the device has refused it
  kNoWords,   // more payloads wait for their verdicts than there are words for
  kNoDevice,  // the driver took no work
  kCount,
};
[[nodiscard]] constexpr const char* device_hold_name(DeviceHold hold) noexcept {
  constexpr std::array kNames{"no_form", "not_yet", "refused", "no_words", "no_device"};
  static_assert(kNames.size() == static_cast<std::size_t>(DeviceHold::kCount));
  return hold < DeviceHold::kCount ? kNames[static_cast<std::size_t>(hold)] : "?";
}

// Of a device's codec. Relaxed atomics.
struct DeviceCounts {
  CodecTotals totals;
  Counts<DeviceHold> holds;
  // Payloads whose sources were given back before the device said that they had needed more care.
  std::atomic<std::uint64_t> surprises{0};
};

// A device that has saved blocks. Constant, and lives as long as the process.
struct DeviceFacts {
  std::string name;  // as torch has it: cuda:0
  const allocator::Heap& heap;
  const DeviceCounts& counts;
};

// The devices of a process. One may be added while others are read; none is removed.
class DeviceTable {
 public:
  void add(const DeviceFacts& facts) noexcept {
    const std::size_t at = count_.fetch_add(1, std::memory_order_relaxed);
    if (at < devices_.size()) devices_[at].store(&facts, std::memory_order_release);
  }
  // Calls visit(const DeviceFacts&) for each, the first to be added first.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& slot : devices_) {
      if (const DeviceFacts* const facts = slot.load(std::memory_order_acquire)) visit(*facts);
    }
  }

 private:
  std::atomic<std::size_t> count_{0};
  std::array<std::atomic<const DeviceFacts*>, allocator::HeapTable::kMostDevices> devices_{};
};

// The place of a span's codes in a payload on a device.
struct CodedSpan {
  std::size_t offset = 0, bytes = 0;  // within the payload
  std::size_t span_bytes = 0;
  compress::block::BlockForm form;  // as if they were the payload of a block, which the host reads
  std::size_t beside_bytes = 0;     // what stands beside them: sides, lines, elements near zero
};

}  // namespace pleat::bridge

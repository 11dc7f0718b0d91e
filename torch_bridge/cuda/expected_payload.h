// A payload that is being written on a device, and whose verdicts are still to come. It interprets
// the verdicts and updates the lessons of its key. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/store/block_codec.h"
#include "compress/block/block_spec.h"
#include "torch_bridge/cuda/device_form.h"
#include "torch_bridge/cuda/key_lessons.h"

namespace pleat::bridge::cuda {

struct ExpectedPayload {
  allocator::TensorKey key;
  allocator::CodecWords choice;  // what was asked of the key
  compress::block::BlockSpec spec;
  DeviceForm form;
  bool gated = false;
  allocator::StreamId stream;
  std::uint64_t elements = 0;
  std::size_t source_bytes = 0, room = 0;
  std::vector<SpanPlace> spans;
  // Words in pinned memory that the device writes (DeviceWords).
  std::vector<void*> codes, lines, near_zero;
  std::optional<bool> good;  // once it is judged

  template <class Body>
  void each_slot(Body&& body) const {
    for (const auto* slots : {&codes, &lines, &near_zero}) {
      for (void* const slot : *slots) body(slot);
    }
  }
  // Whether all verdicts are there. The rest may be asked only then.
  [[nodiscard]] bool decided() const noexcept;

  // The verdicts together.
  struct Found {
    bool done = true;
    std::uint32_t too_wide = 0, leaving = 0;  // groups
    std::uint32_t lines = 0, near_zero = 0;   // that had to be kept
    float widest = 0;                         // step
    double frames = 0;                        // largest share of a span's bytes
    std::uint64_t needed_bytes = 0;           // that would have held what did not fit; 0: unknown
  };
  [[nodiscard]] Found found() const noexcept;
  // Whether the payload is what was asked for.
  [[nodiscard]] bool is_good(const Found& found) const noexcept;
  void teach(KeyLesson& lesson, const Found& found) const noexcept;
  // Its size: with several spans the room that they have.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  [[nodiscard]] bool is_lossy() const noexcept { return form.kind == FormKind::kLossy; }
  void teach_exact_floats(KeyLesson& lesson, const Found& found) const noexcept;
  void teach_widths(KeyLesson& lesson, const Found& found) const noexcept;
  [[nodiscard]] std::uint8_t width_for(std::uint64_t bytes) const noexcept;
};

}  // namespace pleat::bridge::cuda

// Encode and decode spans in device memory. Work is queued on a stream and nothing is waited for:
// what became of a span stands in its verdict once the stream has passed it. The payloads are those
// of docs/payload_format.md, uncompacted.
//
// Lossless floats (0 bits) come in two forms, of which the CPU tries one after the other. A device
// is told which: the grouped one suits masks and the like and has a size that is known beforehand;
// frames suit other floats, and their size is found with the data. Predict it, e.g. from the last
// step's verdict, and keep the source on a miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/cuda/jobs.h"
#include "compress/kernel_launcher.h"
#include "compress/types.h"

namespace pleat::compress::cuda {

// One span. All pointers are the device's.
struct DeviceTask {
  const void* source = nullptr;  // encode: the elements; decode: the payload, 64-byte aligned
  void* target = nullptr;        // encode: the payload, 64-byte aligned; decode: the elements
  std::size_t elements = 0;      // at least one
  ElementType type = ElementType::kFloat32;
  std::uint8_t bits = 0;                   // as CodecSpec has it
  Transform transform = Transform::kNone;  // likewise; of floats of at least one bit
  std::uint64_t nonce = 0;                 // encode
  // Encode, integers: they are predicted to lie in [minimum, minimum + 2^width); width is 1, 2, 4,
  // 8, 16 or 32. If one does not, the outcome is kKeepRaw, and the verdict tells what would have
  // done.
  std::int64_t minimum = 0;
  unsigned width = 0;
  // Floats of 0 bits: in frames, not in groups.
  bool framed = false;
  // Decode of floats: bytes of `source`, 64 at least, none beyond which is read. Encode of framed
  // floats: bytes of `target`, none beyond which is written; device_payload_bytes() at least. What
  // needs more, or is not smaller than raw, is kKeepRaw, and its verdict says how many it needs.
  std::size_t capacity = 0;
  Verdict* verdict = nullptr;    // device or device-visible host memory; its outcome is set to
                                 // kPending by the caller, before
  Counters* counters = nullptr;  // device memory; zero. Tasks that may run at once have one each.
                                 // Framed floats: not used
  // In place, and framed floats both ways: device memory, 64-byte aligned, device_scratch_bytes().
  // Framed: zero, which every launch leaves it, so it may serve the stream's next call for as many
  // elements or fewer; tasks of one call have one each. In use until the stream has passed the
  // launch, not only until the verdict is there.
  void* scratch = nullptr;
};

[[nodiscard]] constexpr bool is_transformed(const DeviceTask& task) noexcept {
  return is_floating(task.type) && task.transform != Transform::kNone;
}

[[nodiscard]] constexpr bool is_framed(const DeviceTask& task) noexcept {
  return is_floating(task.type) && task.framed;
}

// Whether the device has a kernel for this task, and its form is smaller than the source.
[[nodiscard]] bool device_can_encode(const DeviceTask& task) noexcept;
// What a task's target must hold: the payload with the most escaped groups there can be. Without
// escapes it has device_payload_bytes(), which is what a caller may cut it down to at once. Of
// framed floats: what their target may hold, given its capacity; and the least that there can be.
[[nodiscard]] std::size_t device_payload_bound(const DeviceTask& task) noexcept;
[[nodiscard]] std::size_t device_payload_bytes(const DeviceTask& task) noexcept;

// The device code built into this library; empty if it was built without nvcc.
[[nodiscard]] DeviceImage device_image() noexcept;

// Queue tasks on `stream`: one launch for up to kMostJobs of one type, width, transform and form,
// in the tasks' order. After a failure the tasks from the failing launch on have not been queued;
// *queued says how many were. Sources and targets of the tasks of one call must not overlap.
[[nodiscard]] LaunchStatus encode_on_device(KernelLauncher& launcher,
                                            std::span<const DeviceTask> tasks, StreamHandle stream,
                                            std::size_t* queued) noexcept;
[[nodiscard]] LaunchStatus decode_on_device(KernelLauncher& launcher,
                                            std::span<const DeviceTask> tasks, StreamHandle stream,
                                            std::size_t* queued) noexcept;

// In place: the payload begins where its source does. `target` and `source` are the same, 64-byte
// aligned; behind the payload the block is the caller's again. The source is read twice, so that
// what cannot be coded is found before anything is overwritten: the outcome is kKeepRaw then, and
// the source untouched. It must not change meanwhile. Of scratch memory nothing need be set, and it
// may serve the next task of the stream. For quantised floats that are not transformed.
[[nodiscard]] bool device_can_encode_in_place(const DeviceTask& task) noexcept;
// Also of framed floats, for which see DeviceTask.
[[nodiscard]] std::size_t device_scratch_bytes(const DeviceTask& task) noexcept;
[[nodiscard]] LaunchStatus encode_in_place_on_device(KernelLauncher& launcher,
                                                     const DeviceTask& task,
                                                     StreamHandle stream) noexcept;

}  // namespace pleat::compress::cuda

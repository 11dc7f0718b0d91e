// Encodes and decodes spans in device memory. Work is queued on a stream, and the host waits for
// nothing: once the stream has passed the work, the verdict of each span holds the outcome. The
// payloads are those of docs/payload_format.md, uncompacted.
//
// Lossless floats (0 bits) have two forms. The CPU tries one after the other; a device is told
// which to use. The grouped form suits masks and the like, and its size is known beforehand. Frames
// suit other floats, but their size depends on the data: predict it, e.g. from the last step's
// verdict, and keep the source on a miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "compress/device/jobs.h"
#include "compress/kernel_launcher.h"
#include "compress/types.h"

namespace pleat::compress::cuda {

// One span. All pointers are the device's.
struct DeviceTask {
  const void* source = nullptr;  // encode: the elements; decode: the payload, 64-byte aligned
  void* target = nullptr;        // encode: the payload, 64-byte aligned; decode: the elements
  std::size_t elements = 0;      // at least one
  ElementType type = ElementType::kFloat32;
  std::uint8_t bits = 0;  // as CodecSpec has it
  // Likewise; only for floats of at least one bit. Rotated groups of 1 and 2 bits are scaled ones.
  Transform transform = Transform::kNone;
  std::uint64_t nonce = 0;  // encode
  // Encode, integers: all are predicted to lie in [minimum, minimum + 2^width); width is 1, 2, 4,
  // 8, 16 or 32. If one does not, the outcome is kKeepRaw, and the verdict says which payload would
  // have held them.
  std::int64_t minimum = 0;
  unsigned width = 0;
  // Floats: if there are any, only their sides are coded, as CodecSpec has it. To decode such a
  // payload only the number of the sides matters.
  Sides sides{};
  // Encode of quantised floats, not in place: the thresholds of the counts in the verdict. Such
  // groups are coded all the same.
  float widest_step = std::numeric_limits<float>::infinity();  // above 0
  Sides beside{};  // as sides_beside_values() gives them
  // Quantised floats, not in place: as CodecSpec has them. A table is 8-byte aligned, is only for
  // encode, and is copied into the payload, unless it is in its place there. Rows have at least
  // kFewestOfPart elements.
  Exponents exponents{};
  bool zeros = false;
  // Encode of booleans: every byte other than 0 is true, so no span is refused. Else a span that
  // has others than 0 and 1 is.
  bool any_byte = false;
  // Floats of 0 bits: coded in frames instead of groups.
  bool framed = false;
  // Decode of floats: the bytes of `source`, at least 64; no byte beyond is read. Encode of framed
  // floats: the bytes of `target`, at least device_payload_bytes(); no byte beyond is written. A
  // span that needs more, or is not smaller than raw, is kKeepRaw, and its verdict holds the number
  // of bytes that it needs.
  std::size_t capacity = 0;
  Verdict* verdict = nullptr;  // device or device-visible host memory; the caller sets its outcome
                               // to kPending before the call
  Counters* counters = nullptr;  // device memory, zero. Tasks that may run at once have one each.
                                 // Framed floats: not used
  // For in-place encoding, and for framed floats both ways: device_scratch_bytes() of device
  // memory, 64-byte aligned. Framed floats: zero before a launch and after it, so it may serve the
  // stream's next call for as many elements or fewer; tasks of one call have one each. In use until
  // the stream has passed the launch, even if the verdict came before.
  void* scratch = nullptr;
};

[[nodiscard]] constexpr bool is_transformed(const DeviceTask& task) noexcept {
  return is_floating(task.type) && task.transform != Transform::kNone;
}

[[nodiscard]] constexpr bool is_sided(const DeviceTask& task) noexcept {
  return is_floating(task.type) && task.sides.any();
}

[[nodiscard]] constexpr bool is_framed(const DeviceTask& task) noexcept {
  return is_floating(task.type) && task.framed && !is_sided(task);
}

// True if the device has a kernel for this task and the form is smaller than the source.
[[nodiscard]] bool device_can_encode(const DeviceTask& task) noexcept;
// device_payload_bound(): the bytes that a task's target must hold, those of the payload with the
// most escaped groups. From 3 bits on none is escaped: the outcome is always kDone, and both
// functions give the size of the payload. device_payload_bytes(): the bytes of the payload without
// escapes, to which a caller may cut the target at once. For framed floats: the most that the
// target may hold, given its capacity, and the smallest payload possible.
[[nodiscard]] std::size_t device_payload_bound(const DeviceTask& task) noexcept;
[[nodiscard]] std::size_t device_payload_bytes(const DeviceTask& task) noexcept;

// The device code built into this library; empty if it was built without nvcc.
[[nodiscard]] DeviceImage device_image() noexcept;

// Queues tasks on `stream`, in their order: one launch for up to kMostJobs tasks of one type,
// width, transform and form (sides: of one type), to encode with another one before it if some have
// exponents, which are found first. After a failure, the tasks from the failing
// launch on are not queued; *queued says how many were. Sources and targets of the tasks of one
// call must not overlap.
[[nodiscard]] LaunchStatus encode_on_device(KernelLauncher& launcher,
                                            std::span<const DeviceTask> tasks, StreamHandle stream,
                                            std::size_t* queued) noexcept;
[[nodiscard]] LaunchStatus decode_on_device(KernelLauncher& launcher,
                                            std::span<const DeviceTask> tasks, StreamHandle stream,
                                            std::size_t* queued) noexcept;

// Sides beside values, after the decode of these: moves each element of `target` that is on another
// side than the payload of sides at `source` says to the nearest value of its own side, as
// restore_sides() does. The payload is what encode_on_device() makes of a task with these `sides`,
// which are as sides_beside_values() gives them. kCorrupt if it is damaged; some elements are moved
// then.
[[nodiscard]] LaunchStatus move_to_sides_on_device(KernelLauncher& launcher,
                                                   std::span<const DeviceTask> tasks,
                                                   StreamHandle stream,
                                                   std::size_t* queued) noexcept;

// In place: the payload begins where its source does. `target` equals `source`, 64-byte aligned;
// the memory behind the payload is the caller's again. For quantised floats that are not
// transformed. The source is read twice, so that data that cannot be coded are found before
// anything is overwritten; the outcome is then kKeepRaw, and the source untouched. The source must
// not change meanwhile. Scratch memory need not be set, and may serve the next task of the stream.
[[nodiscard]] bool device_can_encode_in_place(const DeviceTask& task) noexcept;
// Bytes of DeviceTask::scratch, for in-place encoding and for framed floats.
[[nodiscard]] std::size_t device_scratch_bytes(const DeviceTask& task) noexcept;
[[nodiscard]] LaunchStatus encode_in_place_on_device(KernelLauncher& launcher,
                                                     const DeviceTask& task,
                                                     StreamHandle stream) noexcept;

}  // namespace pleat::compress::cuda

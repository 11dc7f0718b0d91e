// Sections next to the codes of a span in device memory, so that some elements come back exact or
// on their side. A section lies behind the payload or elsewhere. Only a device writes and reads
// sections, never the CPU. Work is queued as by device_codec.h: the tasks of one call in their
// order, *queued says how many were queued, and the host does not wait.
//
// After the decode of a span they are put back in this order: elements near zero, sides, lines.
//
// - Lines (compress/lines/lines.h): flat lines and rows of zeros, found by the steps of the groups
// that an
//   encode has just written.
// - Elements near zero (compress/near_zero/near_zero.h): those above -1.
// - Sides beside values (compress/sides/sides.h) are a payload of sides, which encode_on_device()
// writes
//   and move_to_sides_on_device() reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "compress/cuda/device_codec.h"
#include "compress/device/jobs.h"
#include "compress/kernel_launcher.h"
#include "compress/lines/lines.h"
#include "compress/types.h"

namespace pleat::compress::cuda {

// One span whose lines are kept or restored. All pointers are the device's.
struct LineTask {
  const void* source = nullptr;  // keep: the elements
  const void* codes = nullptr;   // keep: their payload, 64-byte aligned. The same stream encodes it
  void* target = nullptr;        // restore: the elements, decoded before
  void* section = nullptr;       // line_section_bytes(), 64-byte aligned
  std::size_t elements = 0;      // at least one
  ElementType type = ElementType::kFloat32;  // of floats
  // Keep: as the DeviceTask that made `codes` has them.
  std::uint8_t bits = 0;
  Transform transform = Transform::kNone;
  Lines lines{};
  std::uint32_t most = 0;  // lines that the section has room for, zeros not counted
  // Keep: kDone, and `kept` says how many lines there are that have to be kept, lines of zeros not
  // counted. If they are more than `most`, those with the lowest numbers are kept. payload_bytes
  // are those of a section with room for all. Restore: kDone, or kCorrupt for a section that is not
  // the task's, of which nothing is restored.
  Verdict* verdict = nullptr;
  Counters* counters = nullptr;  // as DeviceTask has them
  // Keep: line_scratch_bytes() of device memory, 64-byte aligned; null if those are 0. Need not be
  // set. In use until the stream has passed the launches; tasks of one call have one each.
  void* scratch = nullptr;
};

// A multiple of 64, of any task: a header, marks of lines, and `most` lines.
[[nodiscard]] std::size_t line_section_bytes(Lines lines, std::size_t elements, ElementType type,
                                             std::uint32_t most) noexcept;
[[nodiscard]] std::size_t line_scratch_bytes(Lines lines, std::size_t elements,
                                             ElementType type) noexcept;

// One launch for rows; two for columns, as what a column is held against is known only when the
// steps of all groups have been read.
[[nodiscard]] LaunchStatus keep_lines_on_device(KernelLauncher& launcher,
                                                std::span<const LineTask> tasks,
                                                StreamHandle stream, std::size_t* queued) noexcept;
// After the decode. One launch.
[[nodiscard]] LaunchStatus restore_lines_on_device(KernelLauncher& launcher,
                                                   std::span<const LineTask> tasks,
                                                   StreamHandle stream,
                                                   std::size_t* queued) noexcept;

// One span whose elements near zero are kept or restored. The codes are those of a plain encode.
struct NearZeroTask {
  const void* source = nullptr;              // keep: the elements
  void* target = nullptr;                    // restore: the elements, decoded before
  void* section = nullptr;                   // near_zero_section_bytes(), 64-byte aligned
  std::size_t elements = 0;                  // at least one
  ElementType type = ElementType::kFloat32;  // of floats
  std::uint32_t most = 0;                    // elements that the section has room for
  // Keep: kDone, and `kept` says how many elements near zero there are, at most 2^32 - 1. If they
  // are more than `most`, the first are kept. Restore: kDone, or kCorrupt for a section that is not
  // the task's or names elements that the span has not.
  Verdict* verdict = nullptr;
  Counters* counters = nullptr;  // as DeviceTask has them
};

// A multiple of 64.
[[nodiscard]] std::size_t near_zero_section_bytes(ElementType type, std::uint32_t most) noexcept;
[[nodiscard]] LaunchStatus keep_near_zero_on_device(KernelLauncher& launcher,
                                                    std::span<const NearZeroTask> tasks,
                                                    StreamHandle stream,
                                                    std::size_t* queued) noexcept;
// After the decode. One launch.
[[nodiscard]] LaunchStatus restore_near_zero_on_device(KernelLauncher& launcher,
                                                       std::span<const NearZeroTask> tasks,
                                                       StreamHandle stream,
                                                       std::size_t* queued) noexcept;

// One span whose elements get noise that the codec could have made: compress/block/disturb.h. For
// that it is encoded, spread, encoded again, from `coded` to `codes`, decoded, from there to
// `decoded`, and mixed. Elements that a payload would keep exact stay as they are, and so does all
// of a span whose encode was refused.
struct MixTask {
  void* target = nullptr;    // the elements
  void* codes = nullptr;     // their payload, 64-byte aligned
  void* values = nullptr;    // mix_values_bytes(), 64-byte aligned: `coded`, and from the middle on
                             // `decoded`
  std::size_t elements = 0;  // at least one
  ElementType type = ElementType::kFloat32;  // of floats
  // As the DeviceTasks that make `codes` have them.
  std::uint8_t bits = 0;
  Transform transform = Transform::kNone;
  Exponents exponents{};
  float amplitude = 0;  // -1 to 1
  // Groups whose step is wider stay as they are.
  float widest_step = std::numeric_limits<float>::infinity();
  bool near_zero = false;  // elements near zero stay as they are
  Sides beside{};          // which elements stay on, as sides_beside_values() gives them
  // kDone; kKeepRaw if the encode was refused.
  Verdict* verdict = nullptr;
  Counters* counters = nullptr;  // as DeviceTask has them
};
[[nodiscard]] std::size_t mix_values_bytes(std::size_t elements, ElementType type) noexcept;
// After the first encode. Elements of groups that are restored without dither are spread around the
// few values that they have where they were restored before. One launch.
[[nodiscard]] LaunchStatus spread_on_device(KernelLauncher& launcher,
                                            std::span<const MixTask> tasks, StreamHandle stream,
                                            std::size_t* queued) noexcept;
// After the decode. One launch.
[[nodiscard]] LaunchStatus mix_on_device(KernelLauncher& launcher, std::span<const MixTask> tasks,
                                         StreamHandle stream, std::size_t* queued) noexcept;

}  // namespace pleat::compress::cuda

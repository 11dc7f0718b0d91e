// Sketches (compress/sketch/sketch.h) of vectors in device memory. Work is queued as by
// device_codec.h: the tasks of one call in their order, *queued says how many were queued, and the
// host does not wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/kernel_launcher.h"
#include "compress/sketch/sketch.h"
#include "compress/types.h"

namespace pleat::compress::cuda {

struct SketchTask {
  const void* values = nullptr;              // the elements, in the device's memory
  double* parts = nullptr;                   // kSketchPart for each of sketch_parts(), likewise
  std::size_t elements = 0;                  // at least one
  ElementType type = ElementType::kFloat32;  // of floats
  std::uint64_t seed = 0;
};
[[nodiscard]] LaunchStatus sketch_on_device(KernelLauncher& launcher,
                                            std::span<const SketchTask> tasks, StreamHandle stream,
                                            std::size_t* queued) noexcept;

}  // namespace pleat::compress::cuda

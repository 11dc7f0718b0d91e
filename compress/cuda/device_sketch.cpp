#include "compress/cuda/device_sketch.h"

#include "compress/cuda/launch_tasks.h"
#include "compress/sketch/sketch_core.h"

namespace pleat::compress::cuda {
namespace {

constexpr Names kSketch = {"pleat_sketch_float32", "pleat_sketch_bfloat16", "pleat_sketch_float16"};

Job job_of(const SketchTask& task) noexcept {
  Job job{};
  job.source = task.values;
  job.target = task.parts;
  job.elements = task.elements;
  job.nonce = task.seed;
  return job;
}

}  // namespace

LaunchStatus sketch_on_device(KernelLauncher& launcher, std::span<const SketchTask> tasks,
                              StreamHandle stream, std::size_t* queued) noexcept {
  return launch_all<Batch, kMostJobs>(
      launcher, kSketch, tasks, stream,
      [](const SketchTask& task) { return parts_of_sketch(task.elements); },
      [](const SketchTask& task) { return job_of(task); }, queued);
}

}  // namespace pleat::compress::cuda

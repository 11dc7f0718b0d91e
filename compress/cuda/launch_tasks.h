// Queues tasks, as many of one type as a batch holds in one launch. Internal to the host side of
// the CUDA path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/cuda/device_codec.h"
#include "compress/device/jobs.h"
#include "compress/kernel_launcher.h"

namespace pleat::compress::cuda {

// By type of floats, as kernels.cu names them.
using Names = const char* const[3];

// Queues the tasks from *queued on that have one type, as many as a batch holds.
//   AnyBatch          what the kernel takes
//   tiles_of(task)    0: the task has no part in this launch
//   job_of(task)
// `count` is how many tasks were looked at.
template <class AnyBatch, std::size_t kMost, class Task, class Tiles, class MakeJob>
LaunchStatus launch_some(KernelLauncher& launcher, Names names, std::span<const Task> tasks,
                         StreamHandle stream, const Tiles& tiles_of, const MakeJob& job_of,
                         std::size_t* count) noexcept {
  AnyBatch batch{};
  std::uint64_t tiles = 0;
  *count = 0;
  for (const Task& task : tasks) {
    const std::uint64_t more = tiles_of(task);
    if (*count == kMost || task.type != tasks[0].type ||
        (tiles != 0 && tiles + more > UINT32_MAX / 2))
      break;
    ++*count;
    if (more == 0) continue;
    batch.job[batch.jobs] = job_of(task);
    batch.job[batch.jobs++].first_tile = static_cast<std::uint32_t>(tiles);
    tiles += more;
  }
  batch.tiles = static_cast<std::uint32_t>(tiles);
  if (tiles == 0) return LaunchStatus::kOk;
  return launcher.launch(device_image(), names[static_cast<unsigned>(tasks[0].type)], batch.tiles,
                         kThreads, &batch, stream);
}

// Queues all tasks. Where a launch fails, *queued are queued.
template <class AnyBatch, std::size_t kMost, class Task, class Tiles, class MakeJob>
LaunchStatus launch_all(KernelLauncher& launcher, Names names, std::span<const Task> tasks,
                        StreamHandle stream, const Tiles& tiles_of, const MakeJob& job_of,
                        std::size_t* queued) noexcept {
  *queued = 0;
  while (*queued < tasks.size()) {
    std::size_t some = 0;
    const LaunchStatus status = launch_some<AnyBatch, kMost>(
        launcher, names, tasks.subspan(*queued), stream, tiles_of, job_of, &some);
    if (status != LaunchStatus::kOk) return status;
    *queued += some;
  }
  return LaunchStatus::kOk;
}

}  // namespace pleat::compress::cuda

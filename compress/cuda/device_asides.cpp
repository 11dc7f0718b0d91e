#include "compress/cuda/device_asides.h"

#include "compress/cuda/launch_tasks.h"
#include "compress/cuda/mix_core.h"
#include "compress/format.h"
#include "compress/lines/lines_core.h"
#include "compress/near_zero/near_zero_core.h"

namespace pleat::compress::cuda {
namespace {

constexpr Names kLookAtColumns = {"pleat_look_at_columns_float32", "pleat_look_at_columns_bfloat16",
                                  "pleat_look_at_columns_float16"};
constexpr Names kKeepLines = {"pleat_keep_lines_float32", "pleat_keep_lines_bfloat16",
                              "pleat_keep_lines_float16"};
constexpr Names kRestoreLines = {"pleat_restore_lines_float32", "pleat_restore_lines_bfloat16",
                                 "pleat_restore_lines_float16"};
constexpr Names kSpread = {"pleat_spread_float32", "pleat_spread_bfloat16", "pleat_spread_float16"};
constexpr Names kMix = {"pleat_mix_float32", "pleat_mix_bfloat16", "pleat_mix_float16"};
constexpr Names kKeepNearZero = {"pleat_keep_near_zero_float32", "pleat_keep_near_zero_bfloat16",
                                 "pleat_keep_near_zero_float16"};
constexpr Names kRestoreNearZero = {"pleat_restore_near_zero_float32",
                                    "pleat_restore_near_zero_bfloat16",
                                    "pleat_restore_near_zero_float16"};

LineShape shape_of(const LineTask& task) noexcept {
  return {task.elements, task.lines.length, task.most, task.lines.look,
          static_cast<unsigned>(element_size(task.type))};
}

LineJob job_of(const LineTask& task, bool restores) noexcept {
  LineJob job{};
  if (restores)
    job.target = task.target;
  else
    job.source = task.source;
  job.section = task.section;
  job.scratch = task.scratch;
  job.verdict = task.verdict;
  job.counters = task.counters;
  job.elements = task.elements;
  job.length = task.lines.length;
  job.most = task.most;
  job.look = static_cast<std::uint8_t>(task.lines.look);
  job.codes = task.codes;
  job.bits = static_cast<std::uint8_t>(supported_bits(task.bits));
  job.transformed = task.transform != Transform::kNone ? 1 : 0;
  job.scaled = task.transform == Transform::kHadamardScaled && has_scaled_groups(job.bits) ? 1 : 0;
  return job;
}

LineJob job_of(const MixTask& task) noexcept {
  LineJob job{};
  job.target = task.target;
  job.codes = task.codes;
  job.section = task.values;
  job.bounds[0] = task.beside.low;
  job.bounds[1] = task.beside.high;
  job.verdict = task.verdict;
  job.counters = task.counters;
  job.elements = task.elements;
  job.amplitude = task.amplitude;
  job.widest_step = task.widest_step;
  job.look = mix_look(task.beside, task.near_zero);
  job.bits = static_cast<std::uint8_t>(supported_bits(task.bits));
  job.transformed = task.transform != Transform::kNone ? 1 : 0;
  if (task.exponents.any()) {
    const GroupedLayout layout(task.type, job.bits, task.elements, job.transformed != 0,
                               task.exponents);
    job.row = task.exponents.row;
    job.channels = task.exponents.channels;
    job.inner = task.exponents.inner;
    job.parts = static_cast<const std::int8_t*>(task.codes) + layout.end_of_codes();
  }
  return job;
}

Job job_of(const NearZeroTask& task, bool restores) noexcept {
  Job job{};
  job.source = restores ? task.section : task.source;
  job.target = restores ? task.target : task.section;
  job.verdict = task.verdict;
  job.counters = task.counters;
  job.elements = !restores ? task.elements : task.most == 0 ? 1 : task.most;
  job.capacity = task.elements;
  job.width = task.most;
  return job;
}

}  // namespace

std::size_t line_section_bytes(Lines lines, std::size_t elements, ElementType type,
                               std::uint32_t most) noexcept {
  return LineShape(elements, lines.length, most, lines.look,
                   static_cast<unsigned>(element_size(type)))
      .section_bytes();
}

std::size_t line_scratch_bytes(Lines lines, std::size_t elements, ElementType type) noexcept {
  if (lines.look != Look::kColumns) return 0;
  return LineShape(elements, lines.length, 0, lines.look, static_cast<unsigned>(element_size(type)))
      .scratch_bytes();
}

LaunchStatus keep_lines_on_device(KernelLauncher& launcher, std::span<const LineTask> tasks,
                                  StreamHandle stream, std::size_t* queued) noexcept {
  const auto make = [](const LineTask& task) { return job_of(task, false); };
  *queued = 0;
  while (*queued < tasks.size()) {
    const std::span<const LineTask> rest = tasks.subspan(*queued);
    std::size_t looked = 0;
    // The first launch has no fewer tasks than the second: it has fewer tiles.
    LaunchStatus status = launch_some<LineBatch, kMostLineJobs>(
        launcher, kLookAtColumns, rest, stream,
        [](const LineTask& task) {
          return task.lines.look == Look::kColumns ? shape_of(task).tiles_to_look() : 0;
        },
        make, &looked);
    if (status != LaunchStatus::kOk) return status;
    std::size_t kept = 0;
    status = launch_all<LineBatch, kMostLineJobs>(
        launcher, kKeepLines, rest.first(looked), stream,
        [](const LineTask& task) { return shape_of(task).tiles_to_keep(); }, make, &kept);
    *queued += kept;
    if (status != LaunchStatus::kOk) return status;
  }
  return LaunchStatus::kOk;
}

LaunchStatus restore_lines_on_device(KernelLauncher& launcher, std::span<const LineTask> tasks,
                                     StreamHandle stream, std::size_t* queued) noexcept {
  return launch_all<LineBatch, kMostLineJobs>(
      launcher, kRestoreLines, tasks, stream,
      [](const LineTask& task) { return shape_of(task).tiles_to_restore(); },
      [](const LineTask& task) { return job_of(task, true); }, queued);
}

std::size_t near_zero_section_bytes(ElementType type, std::uint32_t most) noexcept {
  return near_zero_bytes_on_device(most, static_cast<unsigned>(element_size(type)));
}

namespace {

LaunchStatus run_near_zero(KernelLauncher& launcher, std::span<const NearZeroTask> tasks,
                           StreamHandle stream, bool restores, std::size_t* queued) noexcept {
  return launch_all<Batch, kMostJobs>(
      launcher, restores ? kRestoreNearZero : kKeepNearZero, tasks, stream,
      [&](const NearZeroTask& task) { return tiles_of(job_of(task, restores).elements); },
      [&](const NearZeroTask& task) { return job_of(task, restores); }, queued);
}

}  // namespace

LaunchStatus keep_near_zero_on_device(KernelLauncher& launcher, std::span<const NearZeroTask> tasks,
                                      StreamHandle stream, std::size_t* queued) noexcept {
  return run_near_zero(launcher, tasks, stream, false, queued);
}
LaunchStatus restore_near_zero_on_device(KernelLauncher& launcher,
                                         std::span<const NearZeroTask> tasks, StreamHandle stream,
                                         std::size_t* queued) noexcept {
  return run_near_zero(launcher, tasks, stream, true, queued);
}

std::size_t mix_values_bytes(std::size_t elements, ElementType type) noexcept {
  return 2 * coded_bytes(elements, static_cast<unsigned>(element_size(type)));
}

namespace {

LaunchStatus run_mix(KernelLauncher& launcher, Names names, std::span<const MixTask> tasks,
                     StreamHandle stream, std::size_t* queued) noexcept {
  return launch_all<LineBatch, kMostLineJobs>(
      launcher, names, tasks, stream, [](const MixTask& task) { return tiles_of(task.elements); },
      [](const MixTask& task) { return job_of(task); }, queued);
}

}  // namespace

LaunchStatus spread_on_device(KernelLauncher& launcher, std::span<const MixTask> tasks,
                              StreamHandle stream, std::size_t* queued) noexcept {
  return run_mix(launcher, kSpread, tasks, stream, queued);
}
LaunchStatus mix_on_device(KernelLauncher& launcher, std::span<const MixTask> tasks,
                           StreamHandle stream, std::size_t* queued) noexcept {
  return run_mix(launcher, kMix, tasks, stream, queued);
}

}  // namespace pleat::compress::cuda

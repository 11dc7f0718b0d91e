#include "compress/cuda/device_codec.h"

#include <cstdio>
#include <limits>

#include "compress/cuda/watch_core.h"
#include "compress/format.h"
#include "compress/framed/frame_chain.h"
#include "compress/framed/frame_entry.h"
#include "compress/framed/framed.h"
#include "compress/in_place/in_place_core.h"
#include "compress/sides/side_core.h"
#include "compress/sides/sides.h"

extern "C" {
extern const unsigned char pleat_device_image[];
extern const unsigned char pleat_device_image_end[];
}

namespace pleat::compress::cuda {
namespace {

enum class Kernel { kEncode, kDecode, kSurvey, kEncodeInPlace, kMoveTo, kMeasureParts };

// How the task's kernel codes groups. Scaled groups exist at few widths.
enum class Coding { kPlain, kRotated, kScaled, kFramed, kSides };
Coding coding_of(const DeviceTask& task) noexcept {
  if (is_sided(task)) return Coding::kSides;
  if (is_framed(task)) return Coding::kFramed;
  if (!is_transformed(task)) return Coding::kPlain;
  return task.transform == Transform::kHadamardScaled &&
                 has_scaled_groups(supported_bits(task.bits))
             ? Coding::kScaled
             : Coding::kRotated;
}

// The kernel's name in kernels.cu. The string lives as long as the process: a launcher may keep the
// pointer.
const char* kernel_name(Kernel kernel, const DeviceTask& task) noexcept {
  static constexpr const char* kVerbs[] = {"encode",          "decode",  "survey",
                                           "encode_in_place", "move_to", "measure_parts"};
  static constexpr const char* kCodings[] = {"", "transformed_", "scaled_", "framed_", "sides_"};
  static constexpr const char* kTypes[] = {"float32", "bfloat16", "float16",
                                           "bool",    "int64",    "int32"};
  struct Names {
    char text[6][5][6][9][48];  // verb, coding, type, bits
    Names() noexcept {
      for (int k = 0; k < 6; ++k)
        for (int c = 0; c < 5; ++c)
          for (int t = 0; t < 6; ++t)
            for (unsigned b = 0; b < 9; ++b) {
              char* const name = text[k][c][t][b];
              constexpr std::size_t kRoom = sizeof text[k][c][t][b];
              const bool any_coding = k == static_cast<int>(Kernel::kSurvey) ||
                                      k == static_cast<int>(Kernel::kMeasureParts);
              const bool any_width = c >= static_cast<int>(Coding::kFramed);
              if (t < 3 && !any_coding && !any_width)
                std::snprintf(name, kRoom, "pleat_%s_%s%s_%u", kVerbs[k], kCodings[c], kTypes[t],
                              b);
              else
                std::snprintf(name, kRoom, "pleat_%s_%s%s", kVerbs[k],
                              any_width && !any_coding ? kCodings[c] : "", kTypes[t]);
            }
    }
  };
  static const Names names;
  return names.text[static_cast<int>(kernel)][static_cast<int>(coding_of(task))]
                   [static_cast<int>(task.type)][supported_bits(task.bits)];
}

bool has_kernel(ElementType type) noexcept { return type != ElementType::kBytes; }

unsigned grouped_bits(const DeviceTask& task) noexcept { return supported_bits(task.bits); }

unsigned side_bits(const DeviceTask& task) noexcept { return side_width(task.sides) & 0xFF; }

bool same_kernel(const DeviceTask& a, const DeviceTask& b) noexcept {
  return a.type == b.type && coding_of(a) == coding_of(b) &&
         (!is_floating(a.type) || is_sided(a) || grouped_bits(a) == grouped_bits(b));
}

// Of the groups, as CodecSpec's are for the CPU.
Exponents exponents_of(const DeviceTask& task) noexcept {
  const bool any = is_floating(task.type) && !is_sided(task) && grouped_bits(task) != 0 &&
                   task.exponents.any() && device_takes(task.exponents);
  return any ? task.exponents : Exponents{};
}

GroupedLayout layout_of(const DeviceTask& task) noexcept {
  return {task.type, grouped_bits(task), task.elements, is_transformed(task), exponents_of(task)};
}

Job job_of(Kernel kernel, const DeviceTask& task, std::uint32_t first_tile) noexcept {
  Job job{};
  job.source = task.source;
  job.target = task.target;
  job.verdict = task.verdict;
  job.counters = task.counters;
  job.elements = task.elements;
  job.nonce = task.nonce;
  if (is_floating(task.type))
    job.capacity = task.capacity;
  else
    job.minimum = task.minimum;
  if (is_framed(task)) job.counters = static_cast<Counters*>(task.scratch);
  job.first_tile = first_tile;
  job.width = task.type == ElementType::kBool ? (task.any_byte ? 8 : 1) : task.width;
  if (kernel == Kernel::kEncode && is_floating(task.type) && !is_framed(task)) {
    job.width = task.bits == 0 ? 0 : watch_width(task.widest_step, task.beside);
    job.bounds[0] = task.beside.any() ? task.beside.low : -std::numeric_limits<float>::infinity();
    job.bounds[1] = task.beside.any() ? task.beside.high : std::numeric_limits<float>::infinity();
  }
  const Exponents exponents = exponents_of(task);
  job.row = exponents.row;
  job.channels = exponents.channels;
  job.inner = exponents.inner;
  job.table = exponents.table;
  job.zeros = task.zeros ? 1 : 0;
  if (is_sided(task) && kernel == Kernel::kEncode) {
    job.bounds[0] = task.sides.low;
    job.bounds[1] = task.sides.high;
    job.width = side_width(task.sides);
  } else if (is_sided(task)) {
    job.width = side_bits(task);
  }
  return job;
}

// InPlaceLayout of the task's form.
template <class T>
std::size_t scratch_bytes(unsigned bits, std::size_t elements) noexcept {
  std::size_t bytes = 0;
  with_width_of<1, 2, 3, 4, 6, 8>(bits, [&]<unsigned kBits>() {
    bytes = InPlaceLayout<Form<T, kBits>>(elements).scratch_bytes();
  });
  return bytes;
}

// Adds a job that writes the bytes of the task's parts.
void add_measured(const DeviceTask& task, const Job& job, Batch* batch) noexcept {
  Job& measured = batch->job[batch->jobs++] = job;
  measured.target = static_cast<std::byte*>(task.target) + layout_of(task).end_of_codes();
  measured.first_tile = batch->tiles;
  batch->tiles += static_cast<std::uint32_t>(tiles_of(task.elements));
}

LaunchStatus run(KernelLauncher& launcher, Kernel kernel, std::span<const DeviceTask> tasks,
                 StreamHandle stream, std::size_t* queued) noexcept {
  *queued = 0;
  while (*queued < tasks.size()) {
    const DeviceTask& first = tasks[*queued];
    Batch batch{}, measured{};
    std::uint64_t tiles = 0;
    for (const DeviceTask& task : tasks.subspan(*queued)) {
      const std::uint64_t more = tiles_of(task.elements);
      if (batch.jobs == kMostJobs || !same_kernel(first, task) ||
          (batch.jobs != 0 && tiles + more > UINT32_MAX / 2))
        break;
      const Job job = job_of(kernel, task, static_cast<std::uint32_t>(tiles));
      if (kernel == Kernel::kEncode && job.row != 0) add_measured(task, job, &measured);
      batch.job[batch.jobs++] = job;
      tiles += more;
    }
    batch.tiles = static_cast<std::uint32_t>(tiles);
    const auto launch = [&](Kernel one, const Batch& jobs) {
      return launcher.launch(device_image(), kernel_name(one, first), jobs.tiles, kThreads, &jobs,
                             stream);
    };
    LaunchStatus status = LaunchStatus::kOk;
    if (measured.jobs != 0) status = launch(Kernel::kMeasureParts, measured);
    if (status == LaunchStatus::kOk) status = launch(kernel, batch);
    if (status != LaunchStatus::kOk) return status;
    *queued += batch.jobs;
  }
  return LaunchStatus::kOk;
}

}  // namespace

bool device_can_encode(const DeviceTask& task) noexcept {
  if (!has_kernel(task.type) || task.elements == 0 || tiles_of(task.elements) > UINT32_MAX / 2)
    return false;
  if (is_sided(task)) return sides_hold(task.sides, task.type);
  if (is_transformed(task) && task.bits == 0) return false;
  if (has_scaled_groups(grouped_bits(task)) && coding_of(task) == Coding::kRotated) return false;
  if (task.bits != 0 && task.exponents.any() && !device_takes(task.exponents)) return false;
  if (is_framed(task))
    return task.bits == 0 && device_payload_bytes(task) <= device_payload_bound(task);
  if (task.type == ElementType::kInt64 || task.type == ElementType::kInt32) {
    const unsigned width = task.width;
    if (width == 0 || width > 32 || (width & (width - 1)) != 0) return false;
  }
  return device_payload_bytes(task) < kHeaderBytes + task.elements * element_size(task.type);
}

std::size_t device_payload_bytes(const DeviceTask& task) noexcept {
  if (is_sided(task)) return kHeaderBytes + packed_bytes(task.elements, side_bits(task));
  if (is_framed(task)) return FramedLayout(task.type, task.elements).codes_offset;
  if (is_floating(task.type)) return layout_of(task).end();
  if (task.type == ElementType::kBool) return kHeaderBytes + packed_bytes(task.elements, 1);
  return FramedLayout(task.type, task.elements).codes_offset +
         frame_codes(task.elements, task.width);
}

std::size_t device_payload_bound(const DeviceTask& task) noexcept {
  if (!is_floating(task.type) || is_sided(task)) return device_payload_bytes(task);
  if (is_framed(task)) {
    const std::size_t below_raw = kHeaderBytes + task.elements * element_size(task.type) - 1;
    return task.capacity < below_raw ? task.capacity : below_raw;
  }
  const GroupedLayout layout = layout_of(task);
  if (has_wide_groups(grouped_bits(task))) return layout.end();
  return layout.end() + layout.escape_limit(grouped_bits(task)) * layout.source_bytes_per_group;
}

DeviceImage device_image() noexcept {
  return {pleat_device_image,
          static_cast<std::size_t>(pleat_device_image_end - pleat_device_image)};
}

LaunchStatus encode_on_device(KernelLauncher& launcher, std::span<const DeviceTask> tasks,
                              StreamHandle stream, std::size_t* queued) noexcept {
  return run(launcher, Kernel::kEncode, tasks, stream, queued);
}
LaunchStatus decode_on_device(KernelLauncher& launcher, std::span<const DeviceTask> tasks,
                              StreamHandle stream, std::size_t* queued) noexcept {
  return run(launcher, Kernel::kDecode, tasks, stream, queued);
}

LaunchStatus move_to_sides_on_device(KernelLauncher& launcher, std::span<const DeviceTask> tasks,
                                     StreamHandle stream, std::size_t* queued) noexcept {
  return run(launcher, Kernel::kMoveTo, tasks, stream, queued);
}

bool device_can_encode_in_place(const DeviceTask& task) noexcept {
  return is_floating(task.type) && task.bits != 0 && !is_transformed(task) && !is_sided(task) &&
         watch_width(task.widest_step, task.beside) == 0 && !task.exponents.any() && !task.zeros &&
         task.source == task.target && reinterpret_cast<std::uintptr_t>(task.source) % 64 == 0 &&
         device_can_encode(task) &&
         device_payload_bytes(task) <= task.elements * element_size(task.type);
}

std::size_t device_scratch_bytes(const DeviceTask& task) noexcept {
  if (is_framed(task)) return frame_scratch_bytes(task.elements);
  const unsigned bits = grouped_bits(task);
  switch (task.type) {
    case ElementType::kFloat32:
      return scratch_bytes<Float32>(bits, task.elements);
    case ElementType::kBFloat16:
      return scratch_bytes<BFloat16>(bits, task.elements);
    default:
      return scratch_bytes<Float16>(bits, task.elements);
  }
}

LaunchStatus encode_in_place_on_device(KernelLauncher& launcher, const DeviceTask& task,
                                       StreamHandle stream) noexcept {
  Batch batch{};
  batch.jobs = 1;
  batch.tiles = static_cast<std::uint32_t>(tiles_of(task.elements));
  Job& job = batch.job[0];
  job = job_of(Kernel::kEncodeInPlace, task, 0);
  job.scratch = task.scratch;
  job.width = grouped_bits(task);
  const LaunchStatus surveyed = launcher.launch(device_image(), kernel_name(Kernel::kSurvey, task),
                                                batch.tiles, kThreads, &batch, stream);
  if (surveyed != LaunchStatus::kOk) return surveyed;
  // If only this launch fails, the source is untouched and the verdict stays pending.
  return launcher.launch(device_image(), kernel_name(Kernel::kEncodeInPlace, task), batch.tiles,
                         kThreads, &batch, stream);
}

}  // namespace pleat::compress::cuda

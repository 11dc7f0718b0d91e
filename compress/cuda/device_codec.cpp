#include "compress/cuda/device_codec.h"

#include <cstdio>

#include "compress/format.h"
#include "compress/frame_entry.h"
#include "compress/framed.h"

extern "C" {
extern const unsigned char pleat_device_image[];
extern const unsigned char pleat_device_image_end[];
}

namespace pleat::compress::cuda {
namespace {

enum class Direction { kEncode, kDecode };

// The names kernels.cu gives, for the process: a launcher may keep the pointers.
const char* kernel_name(Direction direction, ElementType type, unsigned bits) noexcept {
  static constexpr const char* kTypes[] = {"float32", "bfloat16", "float16",
                                           "bool",    "int64",    "int32"};
  struct Names {
    char text[2][6][9][32];
    Names() noexcept {
      for (int d = 0; d < 2; ++d)
        for (int t = 0; t < 6; ++t)
          for (unsigned b = 0; b < 9; ++b)
            if (t < 3)
              std::snprintf(text[d][t][b], sizeof text[d][t][b], "pleat_%s_%s_%u",
                            d == 0 ? "encode" : "decode", kTypes[t], b);
            else
              std::snprintf(text[d][t][b], sizeof text[d][t][b], "pleat_%s_%s",
                            d == 0 ? "encode" : "decode", kTypes[t]);
    }
  };
  static const Names names;
  return names.text[static_cast<int>(direction)][static_cast<int>(type)][supported_bits(bits)];
}

bool has_kernel(ElementType type) noexcept {
  return type != ElementType::kBytes;
}

unsigned grouped_bits(const DeviceTask& task) noexcept {
  return supported_bits(task.bits);
}

// A block strides over tiles. Several tiles to a block save most of the fence and the count at its
// end; not more than a few, so that the last blocks of a launch end together. Small launches get a
// block per tile.
unsigned blocks_for(unsigned tiles, unsigned multiprocessors) noexcept {
  constexpr unsigned kTilesPerBlock = 4;
  const unsigned busy = multiprocessors * 4 * kBlocksPerMultiprocessor;
  const unsigned shared = tiles / kTilesPerBlock + (tiles % kTilesPerBlock != 0 ? 1 : 0);
  const unsigned blocks = shared > busy ? shared : busy;
  return blocks < tiles ? blocks : tiles;
}

bool same_kernel(const DeviceTask& a, const DeviceTask& b) noexcept {
  return a.type == b.type && (!is_floating(a.type) || grouped_bits(a) == grouped_bits(b));
}

LaunchStatus run(KernelLauncher& launcher, Direction direction, std::span<const DeviceTask> tasks,
                 StreamHandle stream, std::size_t* queued) noexcept {
  *queued = 0;
  while (*queued < tasks.size()) {
    const DeviceTask& first = tasks[*queued];
    Batch batch{};
    std::uint64_t tiles = 0;
    for (const DeviceTask& task : tasks.subspan(*queued)) {
      const std::uint64_t more = tiles_of(task.elements);
      if (batch.jobs == kMostJobs || !same_kernel(first, task) ||
          (batch.jobs != 0 && tiles + more > UINT32_MAX / 2))
        break;
      batch.job[batch.jobs++] = {
          task.source,   task.target, task.verdict, task.counters,
          task.elements, task.nonce,  task.minimum, static_cast<std::uint32_t>(tiles),
          task.width};
      tiles += more;
    }
    batch.tiles = static_cast<std::uint32_t>(tiles);
    const unsigned blocks = blocks_for(batch.tiles, launcher.multiprocessors());
    const LaunchStatus status =
        launcher.launch(device_image(), kernel_name(direction, first.type, grouped_bits(first)),
                        blocks, kThreads, &batch, stream);
    if (status != LaunchStatus::kOk) return status;
    *queued += batch.jobs;
  }
  return LaunchStatus::kOk;
}

}  // namespace

bool device_can_encode(const DeviceTask& task) noexcept {
  if (!has_kernel(task.type) || task.elements == 0 || tiles_of(task.elements) > UINT32_MAX / 2)
    return false;
  if (task.type == ElementType::kInt64 || task.type == ElementType::kInt32) {
    const unsigned width = task.width;
    if (width == 0 || width > 32 || (width & (width - 1)) != 0) return false;
  }
  return device_payload_bytes(task) < kHeaderBytes + task.elements * element_size(task.type);
}

std::size_t device_payload_bytes(const DeviceTask& task) noexcept {
  if (is_floating(task.type))
    return GroupedLayout(task.type, grouped_bits(task), task.elements, false).end_of_codes();
  if (task.type == ElementType::kBool) return kHeaderBytes + packed_bytes(task.elements, 1);
  return FramedLayout(task.type, task.elements).codes_offset +
         frame_codes(task.elements, task.width);
}

std::size_t device_payload_bound(const DeviceTask& task) noexcept {
  if (!is_floating(task.type)) return device_payload_bytes(task);
  const GroupedLayout layout(task.type, grouped_bits(task), task.elements, false);
  return layout.end_of_codes() +
         layout.escape_limit(grouped_bits(task)) * layout.source_bytes_per_group;
}

DeviceImage device_image() noexcept {
  return {pleat_device_image,
          static_cast<std::size_t>(pleat_device_image_end - pleat_device_image)};
}

LaunchStatus encode_on_device(KernelLauncher& launcher, std::span<const DeviceTask> tasks,
                              StreamHandle stream, std::size_t* queued) noexcept {
  return run(launcher, Direction::kEncode, tasks, stream, queued);
}
LaunchStatus decode_on_device(KernelLauncher& launcher, std::span<const DeviceTask> tasks,
                              StreamHandle stream, std::size_t* queued) noexcept {
  return run(launcher, Direction::kDecode, tasks, stream, queued);
}

}  // namespace pleat::compress::cuda

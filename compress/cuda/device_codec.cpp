#include "compress/cuda/device_codec.h"

#include <cstdio>

#include "compress/format.h"

extern "C" {
extern const unsigned char pleat_device_image[];
extern const unsigned char pleat_device_image_end[];
}

namespace pleat::compress::cuda {
namespace {

// A block keeps its 256 threads for as many tiles as it gets; more blocks than fit only wait.
constexpr unsigned kBlocksPerMultiprocessor = 8;

constexpr const char* kTypeNames[] = {"float32", "bfloat16", "float16"};

enum class Direction { kEncode, kDecode };

// The names kernels.cu gives. Pointers stay valid: a launcher keeps them.
const char* kernel_name(Direction direction, ElementType type, unsigned bits) noexcept {
  struct Names {
    char text[2][3][9][32];
    Names() noexcept {
      for (int d = 0; d < 2; ++d)
        for (int t = 0; t < 3; ++t)
          for (unsigned b = 0; b < 9; ++b)
            std::snprintf(text[d][t][b], sizeof text[d][t][b], "pleat_%s_%s_%u",
                          d == 0 ? "encode" : "decode", kTypeNames[t], b);
    }
  };
  static const Names names;
  return names.text[static_cast<int>(direction)][static_cast<int>(type)][supported_bits(bits)];
}

bool same_kernel(const DeviceTask& a, const DeviceTask& b) noexcept {
  return a.type == b.type && supported_bits(a.bits) == supported_bits(b.bits);
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
      batch.job[batch.jobs++] = {task.source,
                                 task.target,
                                 task.verdict,
                                 task.counters,
                                 task.elements,
                                 task.nonce,
                                 0,
                                 static_cast<std::uint32_t>(tiles),
                                 0};
      tiles += more;
    }
    batch.tiles = static_cast<std::uint32_t>(tiles);
    const unsigned most = launcher.multiprocessors() * kBlocksPerMultiprocessor;
    const unsigned blocks = most != 0 && most < batch.tiles ? most : batch.tiles;
    const LaunchStatus status =
        launcher.launch(device_image(), kernel_name(direction, first.type, first.bits), blocks,
                        kThreads, &batch, stream);
    if (status != LaunchStatus::kOk) return status;
    *queued += batch.jobs;
  }
  return LaunchStatus::kOk;
}

}  // namespace

bool device_can_encode(ElementType type, unsigned bits, std::size_t elements) noexcept {
  return is_floating(type) && elements != 0 && tiles_of(elements) <= UINT32_MAX / 2 &&
         device_payload_bytes(type, bits, elements) < kHeaderBytes + elements * element_size(type);
}

std::size_t device_payload_bytes(ElementType type, unsigned bits, std::size_t elements) noexcept {
  return GroupedLayout(type, supported_bits(bits), elements).end_of_codes();
}

std::size_t device_payload_bound(ElementType type, unsigned bits, std::size_t elements) noexcept {
  const GroupedLayout layout(type, supported_bits(bits), elements);
  return layout.end_of_codes() +
         layout.escape_limit(supported_bits(bits)) * layout.source_bytes_per_group;
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

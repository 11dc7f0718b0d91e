#include "torch_bridge/cuda/device_self_test.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compress/codec.h"
#include "compress/cuda/device_codec.h"
#include "torch_bridge/cuda/device_tasks.h"

namespace pleat::bridge::cuda {
namespace {

using compress::ElementType;
using compress::cuda::DeviceTask;
using compress::cuda::Outcome;
using compress::cuda::Verdict;

constexpr std::size_t kElements = 700;  // the last group is a short one
constexpr std::uint32_t kRow = 40;      // and of so many channels
constexpr std::uint64_t kNonce = 0x5EED;
using Values = std::array<float, kElements>;
using Table = std::array<std::int8_t, kRow>;

// The contents of pinned memory.
struct Run {
  alignas(64) Values source;
  alignas(64) std::array<std::byte, 4096> payload;
  alignas(64) Values target;
  alignas(64) Table table;
  alignas(64) Verdict encoded;
  alignas(64) Verdict decoded;
};
static_assert(sizeof(Run) <=
              allocator::cuda::DeviceWords::kSlots * allocator::cuda::DeviceWords::kSlotBytes);

Values known_values() noexcept {
  Values values;
  for (std::size_t i = 0; i < kElements; ++i) {
    const bool small_row = i / kRow % 3 == 1, large_channel = i % kRow == 7;
    values[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001) - 1000) /
                (250.0f * (small_row ? 100.0f : 1.0f) * (large_channel ? 0.05f : 1.0f));
  }
  return values;
}
Table known_table() noexcept {
  Table table{};
  table[7] = -4;
  return table;
}

// Computes the results on the CPU. False: the CPU does not compute the results expected of the
// device.
bool run_on_cpu(Run& run, const compress::Exponents& exponents,
                std::size_t payload_bytes) noexcept {
  const auto& executor = compress::serial_executor();
  const compress::EncodeResult coded =
      compress::encode({run.source.data(), kElements, ElementType::kFloat32},
                       {.bits = 4, .compact = false, .exponents = exponents}, kNonce,
                       run.payload.data(), run.payload.size(), executor, nullptr);
  return coded.status == compress::Status::kOk && coded.payload_bytes == payload_bytes &&
         compress::decode(run.payload.data(), payload_bytes, run.target.data(), sizeof run.target,
                          executor) == compress::Status::kOk;
}

// A block with exponents of rows and channels, or without.
bool codes_as_the_cpu(bool has_exponents, compress::KernelLauncher& launcher,
                      allocator::cuda::DeviceWords& words, const allocator::cuda::Driver& driver,
                      allocator::cuda::DriverLife& life, allocator::StreamId stream,
                      std::string& why) {
  Run expected{};
  expected.source = known_values();
  expected.table = known_table();
  DeviceTask task;
  task.elements = kElements;
  task.type = ElementType::kFloat32;
  task.bits = 4;
  task.nonce = kNonce;
  if (has_exponents) task.exponents = {kRow, kRow, 1, expected.table.data()};
  task.capacity = compress::cuda::device_payload_bytes(task);
  if (!run_on_cpu(expected, task.exponents, task.capacity)) {
    why = "Pleat's own self-test of its CPU code failed";
    return false;
  }
  const allocator::cuda::DeviceWords::Slot memory = words.whole();
  auto& run = *static_cast<Run*>(memory.host);
  const auto on_device = [&](std::size_t offset) {
    return reinterpret_cast<void*>(memory.device + offset);
  };
  run.source = expected.source;
  run.table = expected.table;
  run.encoded = run.decoded = {};
  if (has_exponents)
    task.exponents.table = static_cast<std::int8_t*>(on_device(offsetof(Run, table)));
  task.counters = Workspace(words.workspace(stream)).counters(0);
  task.source = on_device(offsetof(Run, source));
  task.target = on_device(offsetof(Run, payload));
  task.verdict = static_cast<Verdict*>(on_device(offsetof(Run, encoded)));
  DeviceTask back = task;
  back.source = task.target;
  back.target = on_device(offsetof(Run, target));
  back.verdict = static_cast<Verdict*>(on_device(offsetof(Run, decoded)));
  const compress::StreamHandle handle{stream.value};
  std::size_t queued = 0;
  const bool launched = compress::cuda::encode_on_device(launcher, {&task, 1}, handle, &queued) ==
                            compress::LaunchStatus::kOk &&
                        compress::cuda::decode_on_device(launcher, {&back, 1}, handle, &queued) ==
                            compress::LaunchStatus::kOk;
  const int error = life.note(driver.stream_synchronize(reinterpret_cast<void*>(stream.value)));
  if (!launched || error != allocator::cuda::kSuccess) {
    why = "the self-test's kernels fail with error " +
          std::to_string(error != allocator::cuda::kSuccess ? error : launcher.driver_error());
    return false;
  }
  if (run.encoded.outcome != Outcome::kDone || run.decoded.outcome != Outcome::kDone ||
      std::memcmp(run.payload.data(), expected.payload.data(), task.capacity) != 0 ||
      std::memcmp(run.target.data(), expected.target.data(), sizeof run.target) != 0) {
    why = "the self-test's block comes back other than the CPU codes it";
    return false;
  }
  return true;
}

}  // namespace

bool device_codes_as_the_cpu(compress::KernelLauncher& launcher,
                             allocator::cuda::DeviceWords& words,
                             const allocator::cuda::Driver& driver,
                             allocator::cuda::DriverLife& life, allocator::StreamId stream,
                             std::string& why) {
  return codes_as_the_cpu(false, launcher, words, driver, life, stream, why) &&
         codes_as_the_cpu(true, launcher, words, driver, life, stream, why);
}

}  // namespace pleat::bridge::cuda

// How fast the kernels are beside a device-to-device copy: the rest of gpu_check's JSON object.
#pragma once

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "compress/format.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/gpu_content.h"

namespace pleat::compress::test {

using cuda::DeviceTask;

// Median of five, each long enough to time; microseconds per call.
template <class Call>
double microseconds(void* stream, Call call) {
  void *from = nullptr, *to = nullptr;
  check(driver.event_create(&from, 0), "event");
  check(driver.event_create(&to, 0), "event");
  constexpr int kCalls = 20;
  std::vector<double> times;
  call();
  for (int repeat = 0; repeat < 5; ++repeat) {
    check(driver.event_record(from, stream), "record");
    for (int n = 0; n < kCalls; ++n) call();
    check(driver.event_record(to, stream), "record");
    check(driver.stream_synchronize(stream), "kernels");
    float milliseconds = 0;
    check(driver.event_elapsed(&milliseconds, from, to), "elapsed");
    times.push_back(milliseconds * 1000 / kCalls);
  }
  std::sort(times.begin(), times.end());
  return times[2];
}

inline void time_kernels(KernelLauncher& launcher, void* stream) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  std::printf(" \"speed\": [");
  const char* separator = "";
  for (const std::size_t bytes : {64 * kMiB, 256 * kMiB}) {
    const DeviceMemory source(bytes), target(2 * bytes), restored(bytes), small(4096);
    small.fill(0, stream);
    const double copy = microseconds(stream, [&] {
      check(driver.copy(target.address(), source.address(), bytes, stream), "copy");
    });
    const double copy_rate = 2.0 * static_cast<double>(bytes) / copy;  // bytes moved per us
    for (const ElementType type :
         {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
      std::mt19937_64 random(3);
      std::normal_distribution<float> normal;
      std::vector<unsigned char> data(kMiB * element_size(type));
      for (std::size_t e = 0; e < kMiB; ++e) set_float(type, data.data(), e, normal(random));
      for (std::size_t at = 0; at < bytes; at += data.size())
        source.write(data.data(), std::min(data.size(), bytes - at), at);
      for (const auto& [bits, transform] : {std::pair{1u, Transform::kNone},
                                            {2u, Transform::kNone},
                                            {4u, Transform::kNone},
                                            {8u, Transform::kNone},
                                            {2u, Transform::kHadamardScaled},
                                            {4u, Transform::kHadamard}}) {
        DeviceTask task;
        task.transform = transform;
        task.type = type;
        task.bits = static_cast<std::uint8_t>(bits);
        task.elements = bytes / element_size(type);
        task.source = source.as();
        task.target = target.as();
        task.verdict = small.as<cuda::Verdict>();
        task.counters = small.as<cuda::Counters>(1024);
        DeviceTask back = task;
        back.source = target.as();
        back.capacity = cuda::device_payload_bound(task);
        back.target = restored.as();
        std::size_t queued = 0;
        const double encode = microseconds(stream, [&] {
          check(cuda::encode_on_device(launcher, {&task, 1}, handle, &queued), launcher);
        });
        const double decode = microseconds(stream, [&] {
          check(cuda::decode_on_device(launcher, {&back, 1}, handle, &queued), launcher);
        });
        cuda::Verdict verdict;
        small.read(&verdict, sizeof verdict);
        if (verdict.outcome != cuda::Outcome::kDone)
          check(999, "timed kernels did not finish well");
        double in_place = 0;  // without the copy that gives it a source each time
        task.source = task.target = restored.as();
        task.scratch = target.as();
        if (cuda::device_can_encode_in_place(task))
          in_place =
              microseconds(
                  stream,
                  [&] {
                    check(driver.copy(restored.address(), source.address(), bytes, stream), "copy");
                    check(cuda::encode_in_place_on_device(launcher, task, handle), launcher);
                  }) -
              copy;
        const double moved = static_cast<double>(bytes + cuda::device_payload_bytes(task));
        std::printf(
            "%s\n  {\"type\": \"%s\", \"bits\": %u, \"transform\": \"%s\", \"source_mib\": %zu, "
            "\"copy_gbps\": %.1f, "
            "\"encode_us\": %.1f, \"encode_gbps\": %.1f, \"encode_of_copy\": %.3f, "
            "\"decode_us\": %.1f, \"decode_gbps\": %.1f, \"decode_of_copy\": %.3f, "
            "\"encode_in_place_us\": %.1f}",
            separator, type_name(type), bits, transform_name(transform), bytes / kMiB,
            copy_rate / 1e3, encode, moved / encode / 1e3, moved / encode / copy_rate, decode,
            moved / decode / 1e3, moved / decode / copy_rate, in_place);
        separator = ",";
      }
    }
  }
  std::printf("],\n");
}

inline void time_frames(KernelLauncher& launcher, void* stream) {
  constexpr std::size_t kMiB = std::size_t{1} << 20, kBytes = 256 * kMiB;
  const StreamHandle handle{reinterpret_cast<std::uintptr_t>(stream)};
  const DeviceMemory source(kBytes), target(kBytes + kHeaderBytes), restored(kBytes), small(4096);
  std::printf(" \"framed_speed\": [");
  const char* separator = "";
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const bool relu : {false, true}) {
      std::mt19937_64 random(3);
      std::normal_distribution<float> normal;
      std::vector<unsigned char> data(kMiB * element_size(type));
      for (std::size_t e = 0; e < kMiB; ++e) {
        const float x = normal(random);
        set_float(type, data.data(), e, relu ? std::max(x, 0.0f) : x);
      }
      for (std::size_t at = 0; at < kBytes; at += data.size())
        source.write(data.data(), data.size(), at);
      DeviceTask task;
      task.type = type;
      task.framed = true;
      task.elements = kBytes / element_size(type);
      task.capacity = kBytes;
      task.source = source.as();
      task.target = target.as();
      task.verdict = small.as<cuda::Verdict>();
      const DeviceMemory scratch(cuda::device_scratch_bytes(task));
      scratch.fill(0, stream);
      task.scratch = scratch.as();
      DeviceTask back = task;
      back.source = target.as();
      back.target = restored.as();
      std::size_t queued = 0;
      const double copy = microseconds(stream, [&] {
        check(driver.copy(restored.address(), source.address(), kBytes, stream), "copy");
      });
      const double encode = microseconds(stream, [&] {
        check(cuda::encode_on_device(launcher, {&task, 1}, handle, &queued), launcher);
      });
      cuda::Verdict verdict;
      small.read(&verdict, sizeof verdict);
      if (verdict.outcome != cuda::Outcome::kDone) check(999, "timed kernels did not finish well");
      const double decode = microseconds(stream, [&] {
        check(cuda::decode_on_device(launcher, {&back, 1}, handle, &queued), launcher);
      });
      const double moved = static_cast<double>(kBytes + verdict.payload_bytes);
      const double copy_rate = 2.0 * static_cast<double>(kBytes) / copy;
      std::printf(
          "%s\n  {\"type\": \"%s\", \"relu\": %s, \"source_mib\": %zu, \"ratio\": %.3f, "
          "\"copy_gbps\": %.1f, \"encode_us\": %.1f, \"encode_of_copy\": %.3f, "
          "\"decode_us\": %.1f, \"decode_of_copy\": %.3f}",
          separator, type_name(type), relu ? "true" : "false", kBytes / kMiB,
          static_cast<double>(kBytes) / static_cast<double>(verdict.payload_bytes), copy_rate / 1e3,
          encode, moved / encode / copy_rate, decode, moved / decode / copy_rate);
      separator = ",";
    }
  std::printf("]}\n");
}

}  // namespace pleat::compress::test

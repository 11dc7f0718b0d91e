// Sketches on a device: the kernels' code on the CPU, parts in some order, against the host's.
#include "compress/cuda/device_sketch.h"

#include <cmath>
#include <vector>

#include "compress/element_math.h"
#include "tests/compress/emulated_launch.h"
#include "tests/compress/recorder.h"

namespace pleat::compress::test {
namespace {

using cuda::SketchTask;

// Runs the tasks' launches.
void run(std::span<const SketchTask> tasks, Recorder& recorder) {
  std::size_t queued = 0;
  ASSERT_EQ(cuda::sketch_on_device(recorder, tasks, {3}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(queued, tasks.size());
  for (const Recorder::Launch& launch : recorder.launches) {
    const auto kernel = kernel_named(launch.kernel);
    ASSERT_TRUE(kernel.has_value()) << launch.kernel;
    EXPECT_EQ(launch.stream, 3u);
    EXPECT_TRUE(emulate_launch(*kernel, launch.batch));
  }
}

// Whole numbers, so that no sum is rounded: every value of so few bits is a number of each type.
std::vector<float> small_numbers(std::size_t count) {
  std::mt19937_64 random(seed());
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 17) - 8;
  return values;
}

Bytes words_of(const std::vector<float>& values, ElementType type) {
  Bytes bytes(values.size() * element_size(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == ElementType::kFloat32)
      bytes.as<float>()[i] = values[i];
    else
      bytes.as<std::uint16_t>()[i] =
          type == ElementType::kFloat16 ? half_of(values[i]) : bfloat_of(values[i]);
  }
  return bytes;
}

TEST(CudaSketch, IsThatOfTheHost) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16})
    for (const std::size_t elements : {1u, 255u, 256u, 257u, 5000u, 131'072u, 131'073u, 400'000u}) {
      const std::vector<float> values = small_numbers(elements);
      const Bytes source = words_of(values, type);
      std::vector<double> parts(sketch_parts(elements) * kSketchPart, NAN);
      const SketchTask task{source.data(), parts.data(), elements, type, 11};
      Recorder recorder;
      run({&task, 1}, recorder);
      Sketch sketch{}, expected{};
      const double squares = add_parts(parts, sketch);
      add_to_sketch(std::span<const float>(values), 0, elements, 11, expected);
      EXPECT_EQ(sketch, expected) << elements;
      double sum = 0;
      for (const float value : values) sum += static_cast<double>(value) * value;
      EXPECT_EQ(squares, sum);
    }
}

TEST(CudaSketch, TasksOfOneTypeShareALaunch) {
  std::vector<std::vector<float>> values;
  std::vector<std::vector<double>> parts;
  std::vector<SketchTask> tasks;
  for (std::size_t t = 0; t < 80; ++t) {
    values.push_back(small_numbers(t % 7 == 0 ? 140'000 + t : 100 + 50 * t));
    parts.emplace_back(sketch_parts(values[t].size()) * kSketchPart, NAN);
  }
  for (std::size_t t = 0; t < 80; ++t)
    tasks.push_back(
        {values[t].data(), parts[t].data(), values[t].size(), ElementType::kFloat32, t});
  Recorder recorder;
  run(tasks, recorder);
  EXPECT_EQ(recorder.launches.size(), 2u);
  for (std::size_t t = 0; t < 80; ++t) {
    Sketch sketch{}, expected{};
    (void)add_parts(parts[t], sketch);
    add_to_sketch(std::span<const float>(values[t]), 0, values[t].size(), t, expected);
    EXPECT_EQ(sketch, expected) << t;
  }
}

TEST(CudaSketch, WhatIsNotFiniteShows) {
  std::vector<float> values(1000, 1.0f);
  values[700] = INFINITY;
  std::vector<double> parts(kSketchPart);
  const SketchTask task{values.data(), parts.data(), 1000, ElementType::kFloat32, 1};
  Recorder recorder;
  run({&task, 1}, recorder);
  Sketch sketch{};
  EXPECT_FALSE(std::isfinite(add_parts(parts, sketch)));
}

TEST(CudaSketch, ALaunchThatFailsSaysSo) {
  const std::vector<float> values(10);
  std::vector<double> parts(kSketchPart);
  const SketchTask task{values.data(), parts.data(), 10, ElementType::kFloat32, 1};
  Recorder recorder;
  recorder.fail_at = 0;
  std::size_t queued = 7;
  EXPECT_EQ(cuda::sketch_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kFailed);
  EXPECT_EQ(queued, 0u);
}

}  // namespace
}  // namespace pleat::compress::test

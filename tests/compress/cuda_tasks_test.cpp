// Tests the launches for spans in device memory: the kernel, its parameter, and the results of the
// kernels' code.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "compress/cuda/device_asides.h"
#include "compress/cuda/device_codec.h"
#include "compress/cuda/device_sketch.h"
#include "compress/format.h"
#include "compress/framed/framed.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/recorder.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

using cuda::DeviceTask;

std::vector<DeviceTask> many_tasks() {
  std::vector<DeviceTask> tasks(cuda::kMostJobs + 8 + 3 + 1);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    tasks[t].elements = 1 + t * 1000;
    tasks[t].bits = t < cuda::kMostJobs + 11 ? 4 : 8;
    tasks[t].type = t < cuda::kMostJobs + 8 || t == cuda::kMostJobs + 11 ? ElementType::kFloat32
                                                                         : ElementType::kBFloat16;
    tasks[t].nonce = t;
  }
  return tasks;
}

TEST(CudaTasks, OneLaunchServesNeighboursOfOneTypeAndWidth) {
  Recorder recorder;
  const std::vector<DeviceTask> tasks = many_tasks();
  std::size_t queued = 0;
  ASSERT_EQ(cuda::encode_on_device(recorder, tasks, {0x77}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(queued, tasks.size());
  ASSERT_EQ(recorder.launches.size(), 4u);
  const char* const names[] = {"pleat_encode_float32_4", "pleat_encode_float32_4",
                               "pleat_encode_bfloat16_4", "pleat_encode_float32_8"};
  const unsigned counts[] = {cuda::kMostJobs, 8, 3, 1};
  std::size_t t = 0;
  for (std::size_t l = 0; l < 4; ++l) {
    const Recorder::Launch& launch = recorder.launches[l];
    EXPECT_EQ(launch.kernel, names[l]);
    EXPECT_EQ(launch.stream, 0x77u);
    EXPECT_EQ(launch.threads, 256u);
    ASSERT_EQ(launch.batch.jobs, counts[l]);
    std::uint64_t tiles = 0;
    for (unsigned j = 0; j < launch.batch.jobs; ++j, ++t) {
      EXPECT_EQ(launch.batch.job[j].elements, tasks[t].elements);
      EXPECT_EQ(launch.batch.job[j].nonce, tasks[t].nonce);
      EXPECT_EQ(launch.batch.job[j].first_tile, tiles);
      tiles += (tasks[t].elements + 8191) / 8192;
    }
    EXPECT_EQ(launch.batch.tiles, tiles);
    EXPECT_EQ(launch.most_blocks, tiles);  // a block without a tile has no use
  }
}

TEST(CudaTasks, AFailureSaysHowManyTasksWereQueued) {
  Recorder recorder;
  recorder.fail_at = 2;
  std::size_t queued = 0;
  EXPECT_EQ(cuda::decode_on_device(recorder, many_tasks(), {}, &queued), LaunchStatus::kFailed);
  EXPECT_EQ(queued, cuda::kMostJobs + 8);
  EXPECT_EQ(recorder.launches[0].kernel, "pleat_decode_float32_4");
}

// From tasks to payloads and back: what a launch's parameter says, run on the CPU.
TEST(CudaTasks, RecordedLaunchesEncodeAndRestore) {
  constexpr std::size_t kElements = 5000;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kWidths) {
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
        if (has_scaled_groups(bits) && transform == Transform::kHadamard) continue;
        const Bytes source = transform != Transform::kNone ? ordinary(type, kElements)
                                                           : mixed(type, kElements, bits, false);
        Bytes restored(source.size());
        cuda::Verdict verdicts[2];
        Recorder recorder;
        DeviceTask task = task_of(type, bits, kElements, transform);
        task.source = source.data();
        task.nonce = 99;
        ASSERT_TRUE(cuda::device_can_encode(task));
        Bytes payload(cuda::device_payload_bound(task));
        task.target = payload.data();
        task.verdict = &verdicts[0];
        DeviceTask back = task;
        back.source = payload.data();
        back.capacity = cuda::device_payload_bytes(task);
        back.target = restored.data();
        back.verdict = &verdicts[1];
        std::size_t queued = 0;
        ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
        ASSERT_EQ(cuda::decode_on_device(recorder, {&back, 1}, {}, &queued), LaunchStatus::kOk);
        emulate_encode({type, bits, transform}, recorder.launches[0].batch.job[0]);
        emulate_decode({type, bits, transform}, recorder.launches[1].batch.job[0]);
        ASSERT_EQ(verdicts[0].outcome, cuda::Outcome::kDone);
        EXPECT_EQ(verdicts[0].payload_bytes, cuda::device_payload_bytes(task));
        ASSERT_EQ(verdicts[1].outcome, cuda::Outcome::kDone);
        const Encoded reference = encode_span(source.data(), kElements, type, bits, 99,
                                              serial_executor(), false, transform);
        const auto expected = decode_span(reference.payload, source.size());
        EXPECT_EQ(std::memcmp(expected.data(), restored.data(), source.size()), 0);
      }
    }
  }
}

// The parts of tasks with exponents are measured first, by one launch for all of them.
TEST(CudaTasks, PartsAreMeasuredBeforeTheirTasksAreEncoded) {
  Recorder recorder;
  std::vector<DeviceTask> tasks;
  std::vector<Bytes> payloads;
  for (const std::uint32_t row : {0u, 24u, 0u, 300u, 256u}) {
    tasks.push_back(task_of(ElementType::kFloat16, 4, 20000, Transform::kNone));
    tasks.back().exponents.row = row;
    payloads.emplace_back(cuda::device_payload_bound(tasks.back()));
    tasks.back().target = payloads.back().data();
  }
  std::size_t queued = 0;
  ASSERT_EQ(cuda::encode_on_device(recorder, tasks, {}, &queued), LaunchStatus::kOk);
  ASSERT_EQ(recorder.launches.size(), 2u);
  EXPECT_EQ(recorder.launches[0].kernel, "pleat_measure_parts_float16");
  EXPECT_EQ(recorder.launches[1].kernel, "pleat_encode_float16_4");
  const cuda::Batch& measured = recorder.launches[0].batch;
  EXPECT_EQ(recorder.launches[1].batch.jobs, 5u);
  ASSERT_EQ(measured.jobs, 2u);  // rows of whole groups have no exponents without a table
  EXPECT_EQ(measured.tiles, 2 * cuda::tiles_of(20000));
  for (unsigned j = 0; j < 2; ++j) {
    const DeviceTask& task = tasks[j == 0 ? 1 : 3];
    const GroupedLayout layout(task.type, 4, task.elements, false, task.exponents);
    EXPECT_EQ(measured.job[j].target, static_cast<std::byte*>(task.target) + layout.end_of_codes());
    EXPECT_EQ(measured.job[j].first_tile, j * cuda::tiles_of(20000));
    EXPECT_EQ(measured.job[j].row, task.exponents.row);
  }
  ASSERT_EQ(cuda::decode_on_device(recorder, tasks, {}, &queued), LaunchStatus::kOk);
  EXPECT_EQ(recorder.launches.size(), 3u);
}

TEST(CudaTasks, ScaledGroupsHaveKernelsAtOneAndTwoBits) {
  Recorder recorder;
  std::vector<DeviceTask> tasks;
  for (const unsigned bits : {1u, 2u, 3u})
    for (const Transform transform : {Transform::kHadamard, Transform::kHadamardScaled})
      if (bits == 3 || transform == Transform::kHadamardScaled)
        tasks.push_back(task_of(ElementType::kBFloat16, bits, 1000, transform));
  std::size_t queued = 0;
  ASSERT_EQ(cuda::encode_on_device(recorder, tasks, {}, &queued), LaunchStatus::kOk);
  ASSERT_EQ(cuda::decode_on_device(recorder, tasks, {}, &queued), LaunchStatus::kOk);
  std::vector<std::string> kernels;
  for (const Recorder::Launch& launch : recorder.launches) kernels.push_back(launch.kernel);
  EXPECT_EQ(kernels, (std::vector<std::string>{
                         "pleat_encode_scaled_bfloat16_1", "pleat_encode_scaled_bfloat16_2",
                         "pleat_encode_transformed_bfloat16_3",  // two tasks of one kernel
                         "pleat_decode_scaled_bfloat16_1", "pleat_decode_scaled_bfloat16_2",
                         "pleat_decode_transformed_bfloat16_3"}));
  EXPECT_EQ(recorder.launches[2].batch.jobs, 2u);
}

// In place: a survey, then the encoder, both told where the source and the scratch memory are.
TEST(CudaTasks, RecordedLaunchesEncodeInPlace) {
  constexpr std::size_t kElements = 100'000;
  const Bytes source = mixed(ElementType::kBFloat16, kElements, 4, false);
  const Encoded reference = encode_span(source.data(), kElements, ElementType::kBFloat16, 4, 99);
  Bytes block(source.size());
  std::memcpy(block.data(), source.data(), source.size());
  cuda::Verdict verdict;
  DeviceTask task = task_of(ElementType::kBFloat16, 5, kElements);  // as 4 bits
  task.source = task.target = block.data();
  task.nonce = 99;
  task.verdict = &verdict;
  ASSERT_TRUE(cuda::device_can_encode_in_place(task));
  Bytes scratch(cuda::device_scratch_bytes(task));
  task.scratch = scratch.data();
  Recorder recorder;
  ASSERT_EQ(cuda::encode_in_place_on_device(recorder, task, {}), LaunchStatus::kOk);
  ASSERT_EQ(recorder.launches.size(), 2u);
  EXPECT_EQ(recorder.launches[0].kernel, "pleat_survey_bfloat16");
  EXPECT_EQ(recorder.launches[1].kernel, "pleat_encode_in_place_bfloat16_4");
  InPlaceTurns turns;
  emulate_survey(ElementType::kBFloat16, recorder.launches[0].batch.job[0]);
  ASSERT_TRUE(emulate_in_place(
      {ElementType::kBFloat16, 4}, recorder.launches[1].batch.job[0], 1,
      [](unsigned) { return 0u; }, &turns));
  ASSERT_EQ(verdict.outcome, cuda::Outcome::kDone);
  std::vector<unsigned char> payload(block.data(), block.data() + verdict.payload_bytes);
  EXPECT_TRUE(decode_span(payload, source.size()) == decode_span(reference.payload, source.size()));
}

DeviceTask framed_task(ElementType type, std::size_t elements, std::size_t capacity) {
  DeviceTask task = task_of(type, 0, elements);
  task.framed = true;
  task.capacity = capacity;
  return task;
}

// Framed floats: several spans a launch, apart from grouped ones; then their decoder.
TEST(CudaTasks, RecordedLaunchesEncodeAndRestoreFrames) {
  for (const ElementType type : kFloatTypes) {
    std::vector<Bytes> sources, payloads, restored, scratch;
    std::vector<DeviceTask> there, back;
    cuda::Verdict verdicts[8];
    for (const std::size_t elements : {5000u, 60000u, 700u}) {
      const std::size_t t = there.size();
      sources.push_back(ordinary(type, elements));
      for (std::size_t e = 0; e < elements; e += 2) set_value(type, sources.back().data(), e, 0);
      restored.emplace_back(sources.back().size());
      DeviceTask task = framed_task(type, elements, SIZE_MAX);
      payloads.emplace_back(cuda::device_payload_bound(task));
      task.capacity = payloads.back().size();
      ASSERT_TRUE(cuda::device_can_encode(task));
      scratch.emplace_back(cuda::device_scratch_bytes(task));
      std::memset(scratch.back().data(), 0, scratch.back().size());
      task.source = sources.back().data();
      task.target = payloads.back().data();
      task.scratch = scratch.back().data();
      task.nonce = 99;
      task.verdict = &verdicts[t];
      there.push_back(task);
      task.source = payloads.back().data();
      task.target = restored.back().data();
      task.verdict = &verdicts[4 + t];
      back.push_back(task);
    }
    const auto order = [turn = 0u](unsigned n) mutable { return turn++ % n; };
    FrameTurns turns;
    Recorder recorder;
    std::vector<DeviceTask> all = there;
    all.push_back(task_of(type, 0, 5000));  // the grouped form has a kernel of its own
    std::size_t queued = 0;
    ASSERT_EQ(cuda::encode_on_device(recorder, all, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(recorder.launches.size(), 2u);
    EXPECT_EQ(recorder.launches[0].kernel, std::string("pleat_encode_framed_") + name_of(type));
    EXPECT_EQ(recorder.launches[1].kernel, std::string("pleat_encode_") + name_of(type) + "_0");
    ASSERT_EQ(recorder.launches[0].batch.jobs, 3u);
    ASSERT_TRUE(emulate_frame_launch(type, true, recorder.launches[0].batch,
                                     recorder.launches[0].blocks, order, &turns));
    for (std::size_t t = 0; t < back.size(); ++t) back[t].capacity = verdicts[t].payload_bytes;
    ASSERT_EQ(cuda::decode_on_device(recorder, back, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(recorder.launches.size(), 3u);
    EXPECT_EQ(recorder.launches[2].kernel, std::string("pleat_decode_framed_") + name_of(type));
    ASSERT_TRUE(emulate_frame_launch(type, false, recorder.launches[2].batch,
                                     recorder.launches[2].blocks, order, &turns));
    for (std::size_t t = 0; t < there.size(); ++t) {
      const Encoded reference = encode_span(sources[t].data(), there[t].elements, type, 0, 99);
      ASSERT_EQ(verdicts[t].outcome, cuda::Outcome::kDone);
      ASSERT_EQ(verdicts[t].payload_bytes, reference.payload.size());
      EXPECT_EQ(std::memcmp(payloads[t].data(), reference.payload.data(), reference.payload.size()),
                0);
      EXPECT_EQ(verdicts[4 + t].outcome, cuda::Outcome::kDone);
      EXPECT_EQ(std::memcmp(restored[t].data(), sources[t].data(), sources[t].size()), 0);
      EXPECT_TRUE(payloads[t].guard_intact() && scratch[t].guard_intact());
    }
  }
}

TEST(CudaTasks, WhatTheDeviceDoesNotEncodeInFramesIsSaid) {
  const std::size_t least = FramedLayout(ElementType::kBFloat16, 1000).codes_offset;
  const auto can = [](const DeviceTask& task) { return cuda::device_can_encode(task); };
  EXPECT_TRUE(can(framed_task(ElementType::kBFloat16, 1000, least)));
  EXPECT_EQ(cuda::device_payload_bytes(framed_task(ElementType::kBFloat16, 1000, 0)), least);
  EXPECT_FALSE(can(framed_task(ElementType::kBFloat16, 1000, least - 1)));
  EXPECT_FALSE(can(framed_task(ElementType::kBFloat16, 20, SIZE_MAX)));  // raw is smaller
  EXPECT_EQ(cuda::device_payload_bound(framed_task(ElementType::kFloat32, 1000, SIZE_MAX)),
            64u + 4000 - 1);
  EXPECT_EQ(cuda::device_payload_bound(framed_task(ElementType::kFloat32, 1000, 999)), 999u);
  DeviceTask task = framed_task(ElementType::kFloat32, 1000, 4000);
  task.bits = 4;
  EXPECT_FALSE(can(task));
  task.bits = 0;
  task.transform = Transform::kHadamard;
  EXPECT_FALSE(can(task));
  task = framed_task(ElementType::kInt64, 1000, 0);  // integers are anyway, by their width
  task.width = 8;
  EXPECT_TRUE(can(task));
}

TEST(CudaTasks, WhatTheDeviceDoesNotEncodeInPlaceIsSaid) {
  Bytes block(4096);
  const auto can = [&](ElementType type, unsigned bits, std::size_t elements, std::size_t shift = 0,
                       Transform transform = Transform::kNone) {
    DeviceTask task = task_of(type, bits, elements, transform);
    task.source = task.target = block.data() + shift;
    return cuda::device_can_encode_in_place(task);
  };
  EXPECT_TRUE(can(ElementType::kFloat32, 4, 1000));
  EXPECT_FALSE(can(ElementType::kFloat32, 4, 1000, 16));
  EXPECT_FALSE(can(ElementType::kFloat32, 0, 1000));
  EXPECT_FALSE(can(ElementType::kFloat32, 4, 1000, 0, Transform::kHadamard));
  EXPECT_FALSE(can(ElementType::kFloat32, 2, 1000, 0, Transform::kHadamardScaled));
  EXPECT_FALSE(can(ElementType::kBool, 0, 1000));
  DeviceTask apart = task_of(ElementType::kFloat32, 4, 1000);
  apart.source = block.data();
  apart.target = block.data() + 64;
  EXPECT_FALSE(cuda::device_can_encode_in_place(apart));
  EXPECT_FALSE(can(ElementType::kFloat16, 8, 260));  // two slots and the header: more than 520
}

TEST(CudaTasks, WhatTheDeviceDoesNotEncodeIsSaid) {
  const auto can = [](ElementType type, unsigned bits, std::size_t elements, unsigned width = 0,
                      Transform transform = Transform::kNone) {
    DeviceTask task = task_of(type, bits, elements, transform);
    task.width = width;
    return cuda::device_can_encode(task);
  };
  EXPECT_FALSE(can(ElementType::kBytes, 4, 1000));
  EXPECT_FALSE(can(ElementType::kFloat32, 4, 0));
  EXPECT_FALSE(can(ElementType::kFloat32, 4, 3));                              // raw is smaller
  EXPECT_TRUE(can(ElementType::kFloat32, 5, 1000));                            // as 4
  EXPECT_FALSE(can(ElementType::kFloat32, 2, 1000, 0, Transform::kHadamard));  // only scaled
  EXPECT_TRUE(can(ElementType::kFloat32, 3, 1000, 0, Transform::kHadamard));
  EXPECT_TRUE(can(ElementType::kFloat32, 2, 1000, 0, Transform::kHadamardScaled));
  EXPECT_TRUE(can(ElementType::kFloat32, 8, 1000, 0, Transform::kHadamardScaled));  // as kHadamard
  EXPECT_FALSE(can(ElementType::kFloat32, 0, 1000, 0, Transform::kHadamard));
  EXPECT_FALSE(can(ElementType::kFloat32, 0, 1000, 0, Transform::kHadamardScaled));
  EXPECT_TRUE(can(ElementType::kBool, 0, 1000));
  EXPECT_TRUE(can(ElementType::kInt64, 0, 1000, 32));
  EXPECT_TRUE(can(ElementType::kInt32, 0, 1000, 16));
  EXPECT_FALSE(can(ElementType::kInt32, 0, 1000, 32));
  EXPECT_FALSE(can(ElementType::kInt64, 0, 1000, 12));
  EXPECT_FALSE(can(ElementType::kInt64, 0, 1000, 0));
}

DeviceTask sides_task(ElementType type, const Sides& sides, std::size_t elements) {
  DeviceTask task = task_of(type, 0, elements);
  task.sides = sides;
  return task;
}

constexpr Sides kSides[] = {{Sides::Kind::kOpen, true, 0, INFINITY},
                            {Sides::Kind::kOpen, false, -0.5f, 1},
                            {Sides::Kind::kClosed, false, -INFINITY, 0.25f},
                            {Sides::Kind::kThree, false, 0, 0}};

// Sides, of any length and alignment: the CPU's bytes, and its elements back.
TEST(CudaTasks, RecordedLaunchesEncodeAndRestoreSides) {
  for (const ElementType type : kFloatTypes) {
    for (const Sides& sides : kSides) {
      for (const std::size_t elements : {1u, 5u, 8u, 12u, 255u, 20003u}) {
        for (const std::size_t shift : {std::size_t{0}, element_size(type)}) {
          const Bytes content = mixed(type, elements, 3);
          Bytes source(content.size(), shift), restored(content.size(), shift);
          std::memcpy(source.data(), content.data(), content.size());
          cuda::Verdict verdicts[2];
          DeviceTask task = sides_task(type, sides, elements);
          task.source = source.data();
          task.nonce = 99;
          task.verdict = &verdicts[0];
          ASSERT_TRUE(cuda::device_can_encode(task));
          Bytes payload(cuda::device_payload_bound(task));
          task.target = payload.data();
          DeviceTask back = task;
          back.source = payload.data();
          back.capacity = payload.size();
          back.target = restored.data();
          back.verdict = &verdicts[1];
          // To decode, the number of sides is enough.
          back.sides = {sides.kind == Sides::Kind::kThree ? sides.kind : Sides::Kind::kClosed,
                        false, 0, 0};
          Recorder recorder;
          std::size_t queued = 0;
          ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
          ASSERT_EQ(cuda::decode_on_device(recorder, {&back, 1}, {}, &queued), LaunchStatus::kOk);
          EXPECT_EQ(recorder.launches[0].kernel,
                    std::string("pleat_encode_sides_") + name_of(type));
          EXPECT_EQ(recorder.launches[1].kernel,
                    std::string("pleat_decode_sides_") + name_of(type));
          emulate_encode_sides(type, recorder.launches[0].batch.job[0]);
          ASSERT_EQ(verdicts[0].outcome, cuda::Outcome::kDone);
          EXPECT_TRUE(payload.guard_intact());
          const CodecSpec spec{.sides = sides};
          std::vector<unsigned char> expected(payload_bound(spec, type, elements));
          ASSERT_EQ(encode({content.data(), elements, type}, spec, 99, expected.data(),
                           expected.size(), serial_executor(), nullptr)
                        .status,
                    Status::kOk);
          ASSERT_EQ(verdicts[0].payload_bytes, expected.size());
          EXPECT_EQ(std::memcmp(payload.data(), expected.data(), expected.size()), 0);
          emulate_decode_sides(type, recorder.launches[1].batch.job[0]);
          ASSERT_EQ(verdicts[1].outcome, cuda::Outcome::kDone);
          EXPECT_TRUE(restored.guard_intact());
          const auto values = decode_span(expected, content.size());
          EXPECT_EQ(std::memcmp(values.data(), restored.data(), restored.size()), 0);
        }
      }
    }
  }
}

TEST(CudaTasks, DamagedSidesAreRefusedOrDecodedWithinBounds) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 1003;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = mixed(type, elements, 3);
    for (const Sides& sides : kSides) {
      const CodecSpec spec{.sides = sides};
      Bytes payload(payload_bound(spec, type, elements));
      ASSERT_EQ(encode({source.data(), elements, type}, spec, 1, payload.data(), payload.size(),
                       serial_executor(), nullptr)
                    .status,
                Status::kOk);
      unsigned refused = 0;
      for (int round = 0; round < 300; ++round) {
        Bytes damaged(payload.size());
        std::memcpy(damaged.data(), payload.data(), payload.size());
        const std::size_t within = round % 4 != 0 ? kHeaderBytes : payload.size();
        damaged.data()[random() % within] ^= static_cast<unsigned char>(1u << random() % 8);
        Bytes target(source.size()), expected(source.size());
        cuda::Verdict verdict;
        cuda::Job job{};
        job.source = damaged.data();
        job.target = target.data();
        job.verdict = &verdict;
        job.elements = elements;
        job.capacity = payload.size();
        job.width = sides.kind == Sides::Kind::kThree ? 2 : 1;
        emulate_decode_sides(type, job);
        EXPECT_TRUE(target.guard_intact());
        const Status status = decode(damaged.data(), damaged.size(), expected.data(),
                                     expected.size(), serial_executor());
        EXPECT_EQ(verdict.outcome == cuda::Outcome::kDone, status == Status::kOk);
        EXPECT_TRUE(status != Status::kOk ||
                    std::memcmp(target.data(), expected.data(), expected.size()) == 0);
        refused += status == Status::kOk ? 0 : 1;
      }
      EXPECT_GT(refused, 50u);
    }
  }
}

TEST(CudaTasks, SidesOfOneTypeShareALaunchAndAreNotEncodedInPlace) {
  std::vector<DeviceTask> tasks;
  for (const Sides& sides : kSides) tasks.push_back(sides_task(ElementType::kFloat16, sides, 100));
  tasks.push_back(task_of(ElementType::kFloat16, 0, 5000));
  Recorder recorder;
  std::size_t queued = 0;
  ASSERT_EQ(cuda::encode_on_device(recorder, tasks, {}, &queued), LaunchStatus::kOk);
  ASSERT_EQ(recorder.launches.size(), 2u);
  EXPECT_EQ(recorder.launches[0].batch.jobs, 4u);
  Bytes block(4096);
  DeviceTask task = sides_task(ElementType::kFloat32, kSides[0], 1000);
  task.bits = 4;
  task.source = task.target = block.data();
  EXPECT_FALSE(cuda::device_can_encode_in_place(task));
  task.sides.low = NAN;
  EXPECT_FALSE(cuda::device_can_encode(task));
}

// The names of all kernels that tasks can ask for, into the file that PLEAT_TEST_KERNEL_NAMES
// names: tests/tools/test_sass_count.py looks for them in the image, which is compressed.
TEST(CudaImage, IsOneAndHasANameForEveryKernel) {
  const DeviceImage image = cuda::device_image();
#ifdef PLEAT_HAVE_DEVICE_CODE
  std::uint32_t magic = 0;
  ASSERT_GT(image.bytes, std::size_t{100} << 10);
  std::memcpy(&magic, image.data, 4);
  EXPECT_EQ(magic, 0xBA55'ED50u);
  Recorder recorder;
  for (int type = 0; type < 6; ++type)
    for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u})
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
        if (type >= 3 && bits != 0) continue;
        if (transform != Transform::kNone && bits == 0) continue;
        if (transform == Transform::kHadamard && has_scaled_groups(bits)) continue;
        const DeviceTask task = task_of(static_cast<ElementType>(type), bits, 1, transform);
        std::size_t queued = 0;
        ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
        ASSERT_EQ(cuda::decode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
        if (type >= 3 || bits == 0 || transform != Transform::kNone) continue;
        ASSERT_EQ(cuda::encode_in_place_on_device(recorder, task, {}), LaunchStatus::kOk);
      }
  for (const ElementType type : kFloatTypes) {
    DeviceTask task = framed_task(type, 1, 0);
    std::size_t queued = 0;
    ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(cuda::decode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
    task = task_of(type, 4, 1, Transform::kNone);
    task.exponents.row = 24;
    ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
  }
  for (const ElementType type : kFloatTypes) {
    const DeviceTask task = sides_task(type, kSides[0], 1);
    std::size_t queued = 0;
    ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(cuda::decode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(cuda::move_to_sides_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
  }
  for (const ElementType type : kFloatTypes) {
    std::size_t queued = 0;
    cuda::LineTask lines;
    lines.elements = 64 * 16;
    lines.type = type;
    lines.bits = 4;
    lines.lines = {Look::kColumns, 16};
    ASSERT_EQ(cuda::keep_lines_on_device(recorder, {&lines, 1}, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(cuda::restore_lines_on_device(recorder, {&lines, 1}, {}, &queued), LaunchStatus::kOk);
    cuda::NearZeroTask near;
    near.elements = 1;
    near.type = type;
    ASSERT_EQ(cuda::keep_near_zero_on_device(recorder, {&near, 1}, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(cuda::restore_near_zero_on_device(recorder, {&near, 1}, {}, &queued),
              LaunchStatus::kOk);
    cuda::MixTask mixed;
    mixed.elements = 1;
    mixed.type = type;
    mixed.bits = 4;
    ASSERT_EQ(cuda::spread_on_device(recorder, {&mixed, 1}, {}, &queued), LaunchStatus::kOk);
    ASSERT_EQ(cuda::mix_on_device(recorder, {&mixed, 1}, {}, &queued), LaunchStatus::kOk);
    const cuda::SketchTask sketched{nullptr, nullptr, 1, type, 0};
    ASSERT_EQ(cuda::sketch_on_device(recorder, {&sketched, 1}, {}, &queued), LaunchStatus::kOk);
  }
  EXPECT_EQ(recorder.launches.size(),
            2u * (3 * 7 + 3 * 10 + 3) + 2u * 3 * 6 + 4u * 3 + 3u * 3 + 8u * 3);
  if (const char* const path = std::getenv("PLEAT_TEST_KERNEL_NAMES")) {
    std::ofstream file(path);
    for (const Recorder::Launch& launch : recorder.launches) file << launch.kernel << '\n';
  }
#else
  EXPECT_EQ(image.bytes, 0u);
#endif
}

}  // namespace
}  // namespace pleat::compress::test

// Tests the counts of groups in an encode on a device, against the host's own answers group by
// group.
#include "compress/block/group_steps.h"
#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "compress/sides/sides.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/emulated_payload.h"
#include "tests/compress/recorder.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::test {
namespace {

constexpr std::size_t kLengths[] = {1, 2, 100, 255, 256, 257, 10'000};

// Ordinary groups of every kind, and some with NaN or Inf.
Bytes content_of(ElementType type, std::size_t elements, unsigned bits) {
  Bytes source = mixed(type, elements, bits + elements, false);
  if (bits >= 3 && elements > 2000) {
    std::mt19937_64 random(seed());
    for (std::size_t g = 1; g * 256 + 256 <= elements; g += 5)
      fill_wide(kAllWide[g % std::size(kAllWide)], type,
                source.data() + g * 256 * element_size(type), 256, random);
  }
  return source;
}

// The verdict of an encode that is queued and run.
cuda::Verdict verdict_of(cuda::DeviceTask task, const Bytes& source) {
  Bytes payload(cuda::device_payload_bound(task));
  cuda::Verdict verdict;
  task.source = source.data();
  task.target = payload.data();
  task.nonce = kNonce;
  task.verdict = &verdict;
  Recorder recorder;
  std::size_t queued = 0;
  EXPECT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
  emulate_encode({task.type, task.bits, task.transform}, recorder.launches.at(0).batch.job[0]);
  EXPECT_TRUE(payload.guard_intact());
  return verdict;
}

TEST(CudaCounts, GroupsWithAWiderStepAreCountedAndTheWidestIsTold) {
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : kWidths)
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled})
        for (const std::size_t elements : kLengths) {
          const Bytes source = transform == Transform::kNone
                                   ? content_of(type, elements, bits)
                                   : ordinary_and_gaussian(type, elements);
          const std::vector<unsigned char> payload =
              reference_payload(type, bits, elements, source.data(), transform);
          if (payload.empty()) continue;
          const std::vector<float> steps = group_steps(payload.data());
          cuda::DeviceTask task = task_of(type, bits, elements, transform);
          for (const float widest : {1e-30f, 0.125f, 0.5f, 30.0f}) {
            task.widest_step = widest;
            const cuda::Verdict verdict = verdict_of(task, source);
            ASSERT_EQ(verdict.outcome, cuda::Outcome::kDone);
            EXPECT_EQ(verdict.too_wide, std::count_if(steps.begin(), steps.end(),
                                                      [&](float step) { return step > widest; }));
            EXPECT_EQ(verdict.widest, *std::max_element(steps.begin(), steps.end()));
            EXPECT_EQ(verdict.leaving, 0u);
          }
        }
}

// The CPU keeps exactly the groups as they are that a device counts. (It asks before it narrows the
// step of a group that keeps zero, so there are none here.)
TEST(CudaCounts, TheGroupsCountedAreThoseThatTheHostWouldEscape) {
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      const std::size_t elements = 30'000;
      std::mt19937_64 random(seed());
      std::normal_distribution<double> normal;
      Bytes source(elements * element_size(type));
      for (std::size_t e = 0; e < elements; ++e)
        set_value(type, source.data(), e, std::ldexp(normal(random), int(e / 256 % 16) - 8));
      for (std::size_t g = 1; g * 256 + 256 <= elements; g += 5)
        fill_wide(kAllWide[g % std::size(kAllWide)], type,
                  source.data() + g * 256 * element_size(type), 256, random);
      cuda::DeviceTask task = task_of(type, bits, elements);
      unsigned counted = 0;
      for (const float widest : {0.01f, 0.125f, 2.0f}) {
        CodecSpec spec;
        spec.bits = static_cast<std::uint8_t>(bits);
        spec.widest_step = task.widest_step = widest;
        spec.escape_64ths = 64;
        Bytes room(payload_bound(spec, type, elements));
        SpanStatistics statistics;
        ASSERT_EQ(encode({source.data(), elements, type}, spec, kNonce, room.data(), room.size(),
                         serial_executor(), &statistics)
                      .status,
                  Status::kOk);
        EXPECT_EQ(verdict_of(task, source).too_wide, statistics.escaped_groups);
        counted += static_cast<unsigned>(statistics.escaped_groups);
      }
      EXPECT_GT(counted, 10u);
    }
}

TEST(CudaCounts, GroupsThatMayLeaveTheirSideAreCounted) {
  constexpr Sides kAsked[] = {{Sides::Kind::kOpen, false, 0, INFINITY},
                              {Sides::Kind::kClosed, false, -INFINITY, 1},
                              {Sides::Kind::kOpen, false, -0.5f, 0.5f},
                              {Sides::Kind::kThree, false, 0, 3}};
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : kWidths)
      for (const Transform transform : {Transform::kNone, Transform::kHadamard})
        for (const std::size_t elements : {255u, 257u, 10'200u}) {
          const bool plain = transform == Transform::kNone;
          const Bytes source =
              plain ? content_of(type, elements, bits) : ordinary_and_gaussian(type, elements);
          unsigned all = 0;
          for (const Sides& asked : kAsked) {
            const Sides beside = sides_beside_values(asked, type);
            // The host is asked of each group alone.
            std::uint32_t expected = 0;
            for (std::size_t first = 0; first < elements; first += 256) {
              const std::size_t count = std::min<std::size_t>(256, elements - first);
              const Encoded group =
                  encode_span(source.data() + first * element_size(type), count, type, bits, kNonce,
                              serial_executor(), false, transform);
              ASSERT_EQ(group.status, Status::kOk);
              expected += may_leave_side(group.payload.data(), group.payload.size(), beside);
            }
            cuda::DeviceTask task = task_of(type, bits, elements, transform);
            task.beside = beside;
            const cuda::Verdict verdict = verdict_of(task, source);
            EXPECT_EQ(verdict.leaving, expected)
                << name_of(type) << " " << bits << " bits, " << elements << " " << plain;
            EXPECT_EQ(verdict.too_wide, 0u);
            EXPECT_GT(verdict.widest, 0.0f);
            all += expected;
          }
          EXPECT_GT(all, 0u);
        }
}

TEST(CudaCounts, WithoutAQuestionNothingIsCountedAndTheBytesAreTheSame) {
  const std::size_t elements = 10'000;
  const Bytes source = content_of(ElementType::kFloat32, elements, 4);
  cuda::DeviceTask task = task_of(ElementType::kFloat32, 4, elements);
  const cuda::Verdict plain = verdict_of(task, source);
  EXPECT_EQ(plain.widest, 0.0f);
  task.beside = {Sides::Kind::kClosed, false, -INFINITY, INFINITY};  // no bound: nothing can leave
  EXPECT_EQ(verdict_of(task, source).leaving, 0u);
  task.widest_step = 1e-9f;
  EXPECT_EQ(verdict_of(task, source).payload_bytes, plain.payload_bytes);
  Bytes block(elements * 4);
  task.source = task.target = block.data();
  EXPECT_FALSE(cuda::device_can_encode_in_place(task));
  task.widest_step = INFINITY;
  task.beside = {};
  EXPECT_TRUE(cuda::device_can_encode_in_place(task));
}

TEST(CudaCounts, ABooleanOfAnyByteIsNeverRefused) {
  std::mt19937_64 random(seed());
  for (const std::size_t elements : {1u, 31u, 32u, 33u, 1000u})
    for (const std::size_t shift : {0u, 1u}) {
      Bytes source(elements, shift), restored(elements);
      for (std::size_t e = 0; e < elements; ++e)
        source.data()[e] = static_cast<unsigned char>(random() % 3 == 0 ? 0 : random());
      cuda::DeviceTask task;
      task.type = ElementType::kBool;
      task.elements = elements;
      for (const bool any : {true, false}) {
        task.any_byte = any;
        Bytes payload(cuda::device_payload_bound(task));
        cuda::Verdict verdicts[2];
        task.source = source.data();
        task.target = payload.data();
        task.verdict = &verdicts[0];
        cuda::DeviceTask back = task;
        back.source = payload.data();
        back.target = restored.data();
        back.verdict = &verdicts[1];
        Recorder recorder;
        std::size_t queued = 0;
        ASSERT_EQ(cuda::encode_on_device(recorder, {&task, 1}, {}, &queued), LaunchStatus::kOk);
        ASSERT_EQ(cuda::decode_on_device(recorder, {&back, 1}, {}, &queued), LaunchStatus::kOk);
        emulate_pack(recorder.launches[0].batch.job[0], 3);
        if (!any) {
          const bool expected = std::all_of(source.data(), source.data() + elements,
                                            [](unsigned char byte) { return byte < 2; });
          EXPECT_EQ(verdicts[0].outcome, expected ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
          continue;
        }
        ASSERT_EQ(verdicts[0].outcome, cuda::Outcome::kDone);
        emulate_unpack(recorder.launches[1].batch.job[0], 3);
        ASSERT_EQ(verdicts[1].outcome, cuda::Outcome::kDone);
        for (std::size_t e = 0; e < elements; ++e)
          ASSERT_EQ(restored.data()[e], source.data()[e] != 0 ? 1 : 0);
      }
    }
}

}  // namespace
}  // namespace pleat::compress::test

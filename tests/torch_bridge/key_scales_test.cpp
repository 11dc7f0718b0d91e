// Which tensors of a key are measured, and whose scales each one gets.
#include "torch_bridge/core/key_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "torch_bridge/core/codec_adapter.h"

namespace pleat::bridge {
namespace {

using allocator::CodecWords;
using allocator::TensorKey;
using compress::ElementType;
using compress::block::Look;
using compress::block::Scales;

TEST(KeyScales, AreMeasuredEverMoreRarely) {
  KeyScales scales;
  std::vector<int> measured;
  for (int tensor = 1; tensor <= 400; ++tensor) {
    (void)scales.of(TensorKey{7}, CodecWords{1}, [&](const Scales&) {
      measured.push_back(tensor);
      return Scales{};
    });
  }
  EXPECT_EQ(measured, (std::vector<int>{1, 2, 4, 8, 16, 32, 64, 128, 228, 328}));
}

TEST(KeyScales, AreThoseOfTheKeyAndOfWhatIsAskedOfIt) {
  KeyScales scales;
  const auto ask = [&](std::uint64_t key, std::uint64_t choice, bool found) {
    return scales
        .of(TensorKey{key}, CodecWords{choice},
            [&](const Scales& before) {
              EXPECT_FALSE(before.any());
              return Scales{.table = {}, .rotates = found, .zeros = false};
            })
        .rotates;
  };
  EXPECT_TRUE(ask(1, 1, true));
  EXPECT_FALSE(ask(2, 1, false));
  EXPECT_FALSE(ask(1, 2, false)) << "another choice is measured anew";
}

TEST(KeyScales, ALaterAnswerKnowsTheOneBeforeAndReplacesIt) {
  KeyScales scales;
  const auto ask = [&](bool found) {
    return scales.of(TensorKey{1}, CodecWords{1}, [&](const Scales& before) {
      EXPECT_EQ(before.rotates, !found);
      return Scales{.table = {}, .rotates = found, .zeros = false};
    });
  };
  (void)scales.of(TensorKey{1}, CodecWords{1}, [](const Scales&) { return Scales{}; });
  EXPECT_TRUE(ask(true).rotates);   // the second tensor
  EXPECT_TRUE(ask(false).rotates);  // the third is not measured
  EXPECT_FALSE(ask(false).rotates);
}

TEST(KeyScales, ATableOutlivesItsKeysEntry) {
  KeyScales scales;
  const auto table = std::make_shared<const std::vector<std::int8_t>>(4, std::int8_t{-1});
  const std::weak_ptr<const std::vector<std::int8_t>> seen = table;
  Scales held = scales.of(TensorKey{1}, CodecWords{1}, [&](const Scales&) {
    return Scales{.table = table, .rotates = false, .zeros = false};
  });
  (void)scales.of(TensorKey{1}, CodecWords{2}, [](const Scales&) { return Scales{}; });
  EXPECT_EQ(held.table, table);
  EXPECT_FALSE(seen.expired());
}

TEST(KeyScales, ServeThreads) {
  KeyScales scales;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const Scales got = scales.of(TensorKey{i % 3}, CodecWords{i % 3}, [&](const Scales&) {
          return Scales{.table = std::make_shared<const std::vector<std::int8_t>>(
                            8, static_cast<std::int8_t>(-static_cast<int>(i % 3))),
                        .rotates = false,
                        .zeros = false};
        });
        ASSERT_TRUE(got.table == nullptr || got.table->front() == -static_cast<int>(i % 3));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two keys whose large channels are not the same, in turns: a table of the other key would make the
// noise of a channel as large as the channel.
TEST(KeyScales, GiveEachChannelNoiseOfItsOwnSize) {
  constexpr std::size_t kRows = 256, kChannels = 192;
  CodecAdapter codec(compress::serial_executor(), false);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  const CodecChoice choice{.type = ElementType::kFloat32,
                           .bits = 4,
                           .lines = {Look::kParts, kChannels},
                           .channels = {kChannels, 1}};
  for (std::uint64_t turn = 0; turn < 6; ++turn) {
    const std::uint64_t key = turn % 2;
    std::vector<float> source(kRows * kChannels), restored(source.size());
    for (std::size_t e = 0; e < source.size(); ++e) {
      const std::size_t c = e % kChannels;
      source[e] = normal(random) * (c == 5 + 100 * key ? 40.0f : c == 9 ? 0.02f : 1.0f);
    }
    const std::size_t bytes = source.size() * sizeof(float);
    const allocator::ByteRange range{0, bytes};
    allocator::EncodeRequest request;
    request.source = source.data();
    request.source_bytes = bytes;
    request.ranges = &range;
    request.range_count = 1;
    request.choice = choice.pack();
    request.nonce = turn;
    request.key = {key};
    const allocator::EncodePlan plan = codec.plan(request);
    ASSERT_NE(plan.room, 0u);
    const std::unique_ptr<void, decltype(&std::free)> payload(
        std::aligned_alloc(64, (plan.room + 63) / 64 * 64), &std::free);
    const allocator::EncodeResult coded = codec.encode(request, plan, payload.get(), plan.room);
    ASSERT_EQ(coded.status, allocator::CodecStatus::kOk);
    allocator::DecodeRequest back;
    back.payload = {payload.get(), coded.payload_bytes, coded.form, &range, 1};
    back.target = restored.data();
    back.target_bytes = bytes;
    ASSERT_EQ(codec.decode(back), allocator::CodecStatus::kOk);
    for (std::size_t c = 0; c < kChannels; ++c) {
      double error = 0, size = 0;
      for (std::size_t e = c; e < source.size(); e += kChannels) {
        error += std::pow(double{restored[e]} - source[e], 2);
        size += std::pow(double{source[e]}, 2);
      }
      EXPECT_LT(std::sqrt(error / size), 0.25) << turn << " " << c;
    }
  }
}

}  // namespace
}  // namespace pleat::bridge

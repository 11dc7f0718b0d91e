// Exact floats on a CUDA device: in frames, whose size a key predicts, or in groups of at most two
// values each. Every payload restores the bits of its source.
#include <set>

#include "compress/format.h"
#include "tests/torch_bridge/device_codec_support.h"

namespace pleat::bridge::cuda {
namespace {

using namespace testing;

class DeviceExactFloats : public DeviceBlockCodecTest {
 protected:
  static constexpr std::uint64_t kDense = 7;  // a key whose first eight payloads are in frames

  // Half of the values are zeros, as those of a ReLU.
  static Bytes rectified(ElementType type, std::size_t elements, double part = 0.5,
                         unsigned seed = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> draw;
    std::uniform_real_distribution<double> of(0, 1);
    return floats(type, elements, [&](std::size_t) {
      const double x = draw(random);
      return of(random) < part ? x : 0.0;
    });
  }
  static Bytes noise(std::size_t bytes) {
    std::mt19937_64 random(5);
    Bytes to(bytes);
    for (std::size_t i = 0; i < bytes; ++i) to.data()[i] = static_cast<unsigned char>(random());
    return to;
  }
  // Two values, neither of them zero.
  static Bytes mask(ElementType type, std::size_t elements) {
    return floats(type, elements, [](std::size_t e) { return e % 3 == 0 ? 0.25 : -3.3; });
  }
  static SpanPlace place_of(const Coded& coded) {
    return place_span(coded.form(), coded.source_bytes, 0);
  }
  static std::size_t groups_size(ElementType type, std::size_t elements) {
    const std::size_t groups = (elements + 255) / 256;
    return 64 + (groups * 2 * element_size(type) + 63) / 64 * 64 + groups * 32;
  }
};

TEST_F(DeviceExactFloats, AreFramedFromTheFirstPayloadOnAsTheHostFramesThem) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    for (const std::size_t elements : {std::size_t{2000}, std::size_t{100'003}}) {
      const Bytes source = rectified(type, elements);
      const Coded coded = settled({.type = type}, source, ++key);
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      EXPECT_TRUE(coded.form().is_framed());
      const Bytes expected = on_host({.type = type}, source.data(), elements, coded.nonce);
      const std::size_t at = place_of(coded).codes;
      ASSERT_EQ(coded.result.payload_bytes, at + expected.size());
      EXPECT_EQ(std::memcmp(coded.payload->data() + at, expected.data(), expected.size()), 0);
      EXPECT_LE(at, 256 + source.size() / 1000) << "scratch is next to nothing";
      EXPECT_SAME_BITS(restored(coded), source);
      EXPECT_SAME_BITS(restored(coded), source);
    }
  }
  EXPECT_EQ(device_.waits, 0);
  EXPECT_EQ(codec_.counts().totals.lossless_float.payloads, 6u);
  EXPECT_EQ(codec_.counts().totals.two_valued_groups, 0u);
}

TEST_F(DeviceExactFloats, SpecialValuesComeBackBitForBit) {
  const double special[] = {0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY, 1e-42, -1e-7, 65504, 3e38};
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = floats(type, 4099, [&](std::size_t e) {
      return e % 37 == 0 ? special[e / 37 % std::size(special)] : 0.0;
    });
    const Coded coded = settled({.type = type}, source, ++key);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_SAME_BITS(restored(coded), source);
  }
}

TEST_F(DeviceExactFloats, ThePayloadHasTheRoomThatTheLastOnesOfItsKeyTook) {
  const BlockSpec spec{.type = ElementType::kFloat32};
  const Bytes source = rectified(ElementType::kFloat32, 50'000);
  const Coded first = settled(spec, source, kDense);
  ASSERT_EQ(first.result.status, CodecStatus::kOk);
  EXPECT_LE(first.room, source.size() * 7 / 8 + 64);
  EXPECT_GT(first.room, source.size() * 13 / 16) << "as much as is worth having";
  const Coded second = settled(spec, rectified(ElementType::kFloat32, 50'000, 0.5, 2), kDense);
  ASSERT_EQ(second.result.status, CodecStatus::kOk);
  EXPECT_LE(second.room, first.result.payload_bytes * 9 / 8);
  EXPECT_LT(second.result.payload_bytes, second.room);
  // As a share: a block of another size has room likewise.
  const Bytes large = rectified(ElementType::kFloat32, 150'000);
  const Coded third = settled(spec, large, kDense);
  ASSERT_EQ(third.result.status, CodecStatus::kOk);
  EXPECT_LE(third.room, large.size() * 5 / 8);
  EXPECT_SAME_BITS(restored(third), large);
}

TEST_F(DeviceExactFloats, APayloadThatNeedsMoreRoomIsRefusedOnceAndThenHasIt) {
  device_.holds = true;
  const BlockSpec spec{.type = ElementType::kBFloat16};
  const Bytes few = rectified(ElementType::kBFloat16, 50'000, 0.1);
  const Bytes many = rectified(ElementType::kBFloat16, 50'000, 0.8);
  ASSERT_EQ(settled(spec, few, kDense).result.status, CodecStatus::kOk);
  const Coded missed = settled(spec, many, kDense);
  EXPECT_FALSE(missed.held());
  EXPECT_EQ(missed.result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kRefused), 1u);
  EXPECT_EQ(codec_.counts().holds[DeviceHold::kRefused].bytes, many.size());
  const Coded again = settled(spec, many, kDense);
  ASSERT_EQ(again.result.status, CodecStatus::kOk) << "at once: there is no pause";
  EXPECT_TRUE(again.form().is_framed());
  EXPECT_SAME_BITS(restored(again), many);
  EXPECT_EQ(surprises(), 0u) << "the source was there";
}

TEST_F(DeviceExactFloats, ValuesWithoutAShorterFormAreTriedAtGrowingDistances) {
  const BlockSpec spec{.type = ElementType::kFloat32};
  const Bytes other = noise(8192);
  Coded coded;
  EXPECT_EQ(pauses(spec, other, &coded), 0u);
  for (const unsigned distance : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 256u}) {
    EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
    EXPECT_EQ(coded.payload->data()[0], 0) << "frames";
    EXPECT_EQ(pauses(spec, other, &coded), 0u) << "then groups";
    EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
    EXPECT_EQ(pauses(spec, other, &coded), distance);
  }
  // One that fits begins anew.
  const Bytes fits = rectified(ElementType::kFloat32, 2048);
  EXPECT_EQ(settled(spec, fits).result.status, CodecStatus::kKeepRaw) << "groups have their turn";
  EXPECT_EQ(pauses(spec, fits, &coded), 256u);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_SAME_BITS(restored(coded), fits);
}

TEST_F(DeviceExactFloats, MasksAreFoundWithinNinePayloadsAndStayInGroups) {
  device_.holds = true;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = mask(type, 4100);
    std::set<unsigned> found;
    for (std::uint64_t key = 0; key < 8; ++key) {
      unsigned payloads = 0;
      Coded coded;
      do {
        coded = settled({.type = type}, source, key);
        ++payloads;
        if (coded.result.status == CodecStatus::kOk) {
          EXPECT_SAME_BITS(restored(coded), source);
        }
      } while (coded.form().is_framed() && payloads < 10);
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      EXPECT_EQ(coded.result.payload_bytes, groups_size(type, 4100));
      found.insert(payloads);
      for (int i = 0; i < 30; ++i) {
        EXPECT_FALSE(settled({.type = type}, source, key).form().is_framed());
      }
    }
    EXPECT_EQ(found, (std::set<unsigned>{2, 3, 4, 5, 6, 7, 8, 9}))
        << "not all keys try groups at once";
  }
}

TEST_F(DeviceExactFloats, ADenseKeyTriesGroupsOnce) {
  const BlockSpec spec{.type = ElementType::kBFloat16};
  const Bytes source = normal(ElementType::kBFloat16, 5000);
  unsigned refused = 0;
  for (int i = 0; i < 100; ++i) {
    const Coded coded = settled(spec, source, kDense);
    EXPECT_FALSE(coded.held());
    refused += coded.result.status == CodecStatus::kKeepRaw ? 1 : 0;
  }
  EXPECT_EQ(refused, 1u);
}

TEST_F(DeviceExactFloats, AKeyThatWasOfMasksGoesBackToFramesAndLooksForMasksAgain) {
  const BlockSpec spec{.type = ElementType::kFloat32};
  const Bytes two = mask(ElementType::kFloat32, 4100);
  const Bytes other = rectified(ElementType::kFloat32, 4100);
  while (settled(spec, two).form().is_framed()) {
  }
  EXPECT_EQ(settled(spec, other).result.status, CodecStatus::kKeepRaw);
  const Coded coded = settled(spec, other);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_TRUE(coded.form().is_framed());
  unsigned payloads = 1;
  while (settled(spec, two).form().is_framed() && payloads < 100) ++payloads;
  EXPECT_EQ(payloads, KeyLesson::kFramesAgain);
}

TEST_F(DeviceExactFloats, SeveralSpansEachHaveTheirShare) {
  device_.holds = true;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type);
    const Bytes source = rectified(type, 100 * 1400);
    std::vector<ByteRange> ranges;
    for (std::size_t i = 0; i < 64; ++i) {
      ranges.push_back({(i * 2100 + i % 5) * size, (i * 2100 + 1000 + i % 7 * 100) * size});
    }
    const auto key = static_cast<std::uint64_t>(type) * 8 + kDense;
    std::size_t before = SIZE_MAX;
    for (int i = 0; i < 2; ++i) {
      const Coded coded = settled({.type = type}, source, key, ranges);
      ASSERT_EQ(coded.result.status, CodecStatus::kOk) << i;
      EXPECT_TRUE(coded.form().is_framed());
      EXPECT_LT(coded.result.payload_bytes, before) << "the second has what the first took";
      before = coded.result.payload_bytes;
      const Bytes back = restored(coded);
      std::size_t at = 0;
      for (const ByteRange& range : ranges) {
        for (; at < range.begin; ++at) ASSERT_EQ(back.data()[at], 0) << at;
        ASSERT_EQ(std::memcmp(source.data() + at, back.data() + at, range.end - at), 0);
        at = range.end;
      }
    }
  }
}

TEST_F(DeviceExactFloats, ALaunchOfAGraphHasScratchOfItsOwn) {
  const Bytes source = rectified(ElementType::kFloat32, 50'000);
  const Coded coded = settled({.type = ElementType::kFloat32}, source);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  const SpanPlace place = place_of(coded);
  std::byte* const scratch = reinterpret_cast<std::byte*>(coded.payload->data()) + place.scratch;
  const std::size_t half = (place.codes - place.scratch) / 2;
  for (std::size_t i = 0; i < 2 * half; ++i) ASSERT_EQ(scratch[i], std::byte{0});
  for (const bool captures : {false, true}) {
    device_.captures = captures;
    std::byte* const other = scratch + (captures ? 0 : half);
    std::memset(other, 0xEE, half);
    EXPECT_SAME_BITS(restored(coded), source);
    std::memset(other, 0, half);
  }
}

TEST_F(DeviceExactFloats, APayloadOfDamagedFramesDoesNotLeadAstray) {
  const Bytes source = rectified(ElementType::kFloat32, 50'000);
  device_.damages = true;
  const Coded coded = settled({.type = ElementType::kFloat32}, source);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  restored(coded);  // within its bounds
}

TEST_F(DeviceExactFloats, WithoutADriverTheBlockIsHeld) {
  const Bytes source = rectified(ElementType::kFloat32, 50'000);
  const std::size_t words = words_left();
  device_.gone = true;
  const Coded coded = encode({.type = ElementType::kFloat32}, source);
  EXPECT_NE(coded.result.status, CodecStatus::kOk);
  EXPECT_NE(coded.result.status, CodecStatus::kQueued);
  EXPECT_EQ(words, DeviceWords::kSlots);
}

}  // namespace
}  // namespace pleat::bridge::cuda

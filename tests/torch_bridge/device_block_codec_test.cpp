// Tests the codec of a CUDA device. Blocks are done at once or wait for a verdict, keys learn, and
// every payload restores the requested values.
#include "torch_bridge/cuda/device_block_codec.h"

#include <initializer_list>

#include "tests/torch_bridge/device_codec_support.h"

// An image, whether kernels are built or not: the device of the test does not look into it.
asm(".pushsection .rodata\n"
    ".globl pleat_device_image\npleat_device_image:\n.ascii \"kernels\"\n"
    ".globl pleat_device_image_end\npleat_device_image_end:\n.byte 0\n"
    ".popsection\n");

namespace pleat::bridge::cuda {
namespace {

using namespace testing;

// ---- done at once ----

TEST_F(DeviceBlockCodecTest, LossyFloatsOf3BitsAndMoreAreDoneInTheOrderOfTheStream) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
        const BlockSpec spec{
            .type = type, .bits = static_cast<std::uint8_t>(bits), .transform = transform};
        SCOPED_TRACE(std::to_string(bits) + " bits of " + compress::test::name_of(type));
        const Bytes source = normal(type, 1500);
        device_.launches.clear();
        const Coded coded = encode(spec, source, ++key);
        ASSERT_EQ(coded.result.status, CodecStatus::kOk);
        EXPECT_EQ(device_.launches.size(), 1u);
        EXPECT_EQ(device_.launches.at(0).stream, kStream.value);
        device_.run();
        const Bytes expected = on_host(spec, source.data(), 1500, coded.nonce);
        ASSERT_EQ(coded.result.payload_bytes, expected.size()) << "the size is known at once";
        EXPECT_EQ(std::memcmp(coded.payload->data(), expected.data(), expected.size()), 0);
        const Bytes back = restored(coded);
        EXPECT_SAME_BITS(back, decoded_on_host(expected.data(), expected.size(), source.size()));
        if (transform == Transform::kNone) {
          EXPECT_EQ(beyond_step(type, bits, source, back), "");
        }
      }
    }
  }
  EXPECT_EQ(codec_.counts().totals.lossy_fp32.payloads, 12u);
  EXPECT_EQ(codec_.counts().totals.lossy_16bit.payloads, 24u);
  EXPECT_EQ(codec_.counts().totals.lossy_fp32.source_bytes, 12 * 1500 * 4u);
  EXPECT_EQ(device_.waits, 0) << "nobody waits";
  EXPECT_EQ(words_left(), DeviceWords::kSlots) << "nothing is asked of the device";
}

TEST_F(DeviceBlockCodecTest, NanAndInfinitiesAreNoReasonToRefuse) {
  const Bytes source = floats(ElementType::kFloat32, 1500, [](std::size_t e) {
    return e % 7 == 0 ? NAN : e % 7 == 1 ? INFINITY : e % 7 == 2 ? -INFINITY : double(e % 31);
  });
  for (const std::uint8_t bits : {3, 4, 6, 8}) {
    const Coded coded = encode({.type = ElementType::kFloat32, .bits = bits}, source, bits);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    const Bytes back = restored(coded);
    const double step = 30.0 / ((1u << bits) - 4);  // three codes are those of NaN and infinities
    for (std::size_t e = 0; e < 1500; ++e) {
      const double x = value_at(ElementType::kFloat32, source.data(), e);
      const double y = value_at(ElementType::kFloat32, back.data(), e);
      ASSERT_TRUE(std::isnan(x)   ? std::isnan(y)
                  : std::isinf(x) ? x == y
                                  : std::fabs(x - y) <= 1.5 * step)
          << x << " " << y << " " << int(bits);
    }
  }
}

TEST_F(DeviceBlockCodecTest, OfWhatIsNotKeptNothingIsQueuedAndZerosComeBack) {
  const Bytes source = normal(ElementType::kFloat32, 1000);
  const Coded coded = encode({.type = ElementType::kFloat32, .kept = Kept::kNothing}, source);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_LE(coded.result.payload_bytes, 64u);
  EXPECT_TRUE(device_.launches.empty());
  const Bytes back = restored(coded);
  EXPECT_TRUE(std::all_of(back.data(), back.data() + back.size(), [](auto b) { return b == 0; }));
  EXPECT_TRUE(device_.launches.empty());
  EXPECT_EQ(codec_.counts().totals.nothing.payloads, 1u);
}

TEST_F(DeviceBlockCodecTest, SidesAloneAreDoneAtOnceAndEachElementKeepsItsSide) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = floats(type, 1003, [](std::size_t e) {
      return e % 11 == 0 ? NAN : e % 11 == 1 ? INFINITY : e % 11 == 2 ? 0.0 : double(e % 9) - 4;
    });
    for (const Sides sides :
         {kSignOfRelu, Sides{Sides::Kind::kClosed, true, -1, 2},
          Sides{Sides::Kind::kOpen, true, -2, 2}, Sides{Sides::Kind::kThree, true, -1, 1}}) {
      const Coded coded =
          encode({.type = type, .kept = Kept::kSides, .sides = sides}, source, ++key);
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      device_.run();
      const std::size_t width = sides.kind == Sides::Kind::kThree ? 2 : 1;
      EXPECT_EQ(coded.result.payload_bytes, 64 + (1003 * width + 7) / 8);
      EXPECT_EQ(other_side(type, sides, source, restored(coded)), "");
    }
  }
  EXPECT_EQ(codec_.counts().totals.sides.payloads, 12u);
}

TEST_F(DeviceBlockCodecTest, SidesThatTheTypeCannotKeepAreNotTakenForKept) {
  // 0.1 is no bfloat16: which of its neighbours is meant as the bound nobody knows.
  const Sides odd{Sides::Kind::kOpen, false, 0.1f, kInfinity};
  const Bytes source = floats(ElementType::kBFloat16, 2048, [](std::size_t e) {
    return e % 3 == 0 ? 0.1 : e % 3 == 1 ? 0.2 : 0.0;
  });
  for (const Kept kept : {Kept::kSides, Kept::kValues}) {
    const Coded coded =
        settled({.type = ElementType::kBFloat16, .bits = 4, .kept = kept, .sides = odd}, source);
    if (coded.result.status != CodecStatus::kOk) continue;  // held as it is
    EXPECT_SAME_BITS(restored(coded), source);
  }
  // A byte of 2 is no side, and not 0 or 1 either.
  const Bytes bytes = integers<std::uint8_t>(4096, [](std::size_t e) { return e % 3; });
  const Coded coded =
      settled({.type = ElementType::kBool, .kept = Kept::kSides, .sides = kSignOfRelu}, bytes, 2);
  EXPECT_NE(coded.result.status, CodecStatus::kOk);
}

TEST_F(DeviceBlockCodecTest, WhatHasNoShorterFormIsHeld) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 1024);
  const Bytes little = normal(ElementType::kFloat32, 16);  // a header takes as much
  EXPECT_TRUE(encode({.type = ElementType::kBytes}, source, 1).held());
  EXPECT_TRUE(encode({.type = ElementType::kFloat32, .bits = 4}, little, 2).held());
  EXPECT_TRUE(encode({.type = ElementType::kFloat32, .bits = 4}, source, 3, {{2, 4002}}).held())
      << "half an element";
  const Bytes half = normal(ElementType::kFloat16, 200);  // 384 of 400 bytes
  EXPECT_TRUE(encode({.type = ElementType::kFloat16, .bits = 8}, half, 4).held());
  EXPECT_EQ(held_for(DeviceHold::kNoForm), 4u);
  EXPECT_EQ(codec_.counts().holds[DeviceHold::kNoForm].bytes, 2 * 4096 + 64 + 400u);
  EXPECT_EQ(codec_.counts().totals.kept_raw, 4u);
  EXPECT_TRUE(device_.launches.empty());
}

// ---- gated ----

TEST_F(DeviceBlockCodecTest, FloatsOf1And2BitsWaitForTheVerdict) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    for (const std::uint8_t bits : {1, 2}) {
      for (const Transform transform : {Transform::kNone, Transform::kHadamardScaled}) {
        const BlockSpec spec{.type = type, .bits = bits, .transform = transform};
        const Bytes plain = normal(type, 2000);
        Bytes one_nan = copy_of(plain);
        set_value(type, one_nan.data(), 300, NAN);  // its group is kept as it is
        ++key;
        for (const Bytes* source : std::initializer_list<const Bytes*>{&plain, &one_nan}) {
          const Coded queued = encode(spec, *source, key);
          ASSERT_EQ(queued.result.status, CodecStatus::kQueued);
          EXPECT_NE(queued.result.ticket.value, 0u);
          EXPECT_FALSE(codec_.is_decided(queued.result.ticket));
          EXPECT_EQ(codec_.verdict(queued.result.ticket, false).status, CodecStatus::kQueued);
          device_.run();
          EXPECT_TRUE(codec_.is_decided(queued.result.ticket));
          Coded coded = queued;
          coded.result = codec_.verdict(queued.result.ticket, false);
          ASSERT_EQ(coded.result.status, CodecStatus::kOk);
          EXPECT_EQ(codec_.verdict(queued.result.ticket, true).status, CodecStatus::kKeepRaw)
              << "a ticket is good for one verdict";
          BlockSpec as_coded = spec;  // a key's second tensor may be rotated
          as_coded.transform = coded.form().transform;
          const Bytes expected = on_host(as_coded, source->data(), 2000, coded.nonce);
          ASSERT_EQ(coded.result.payload_bytes, expected.size());
          const Bytes back = restored(coded);
          EXPECT_SAME_BITS(back, decoded_on_host(expected.data(), expected.size(), source->size()));
          if (source == &plain && transform == Transform::kNone) {
            EXPECT_EQ(beyond_step(type, bits, *source, back), "");
          }
        }
      }
    }
  }
  EXPECT_EQ(device_.waits, 0);
}

TEST_F(DeviceBlockCodecTest, TooManyGroupsThatCannotBeQuantisedAreRefused) {
  const Bytes source = floats(ElementType::kFloat32, 2048,
                              [](std::size_t e) { return e % 256 == 0 ? NAN : double(e % 17); });
  const Coded coded = settled({.type = ElementType::kFloat32, .bits = 2}, source);
  EXPECT_FALSE(coded.held());
  EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kRefused), 1u);
  EXPECT_EQ(codec_.counts().holds[DeviceHold::kRefused].bytes, source.size());
  EXPECT_EQ(codec_.counts().totals.lossy_fp32.payloads, 0u);
}

TEST_F(DeviceBlockCodecTest, AKeyThatIsAskedForSomethingElseUnlearns) {
  const BlockSpec wide{.type = ElementType::kInt32};
  const Bytes source = integers<std::int32_t>(4096, [](std::size_t e) { return e * 9; });
  EXPECT_EQ(settled(wide, source).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(settled(wide, source).form().width, 16);
  // Of the same bytes, and of another key, nothing is unlearned.
  EXPECT_EQ(settled({.type = ElementType::kFloat32, .bits = 4}, source, 2).result.status,
            CodecStatus::kOk);
  EXPECT_EQ(settled(wide, source).form().width, 16);
  EXPECT_EQ(settled({.type = ElementType::kFloat32, .bits = 4}, source, 1).result.status,
            CodecStatus::kOk);
  EXPECT_EQ(settled(wide, source).result.status, CodecStatus::kKeepRaw) << "8 bits again";
  EXPECT_EQ(settled(wide, source).form().width, 16);
}

TEST_F(DeviceBlockCodecTest, AVerdictOfWhatWasAskedBeforeTeachesNothing) {
  device_.holds = true;
  const Bytes source = integers<bool>(4096, [](std::size_t e) { return e % 3 == 0; });
  const Coded first = encode({.type = ElementType::kBool}, source);
  ASSERT_EQ(first.result.status, CodecStatus::kQueued);
  encode({.type = ElementType::kBytes}, source);
  device_.run();
  EXPECT_EQ(codec_.verdict(first.result.ticket, false).status, CodecStatus::kOk);
  EXPECT_EQ(encode({.type = ElementType::kBool}, source).result.status, CodecStatus::kQueued);
}

TEST_F(DeviceBlockCodecTest, ABlockIsPlannedOnceTheVerdictsOfItsKeyHaveCome) {
  device_.holds = true;
  const BlockSpec spec{.type = ElementType::kInt32};
  const Bytes source = integers<std::int32_t>(4096, [](std::size_t e) { return e * 9; });
  const Coded first = encode(spec, source, 1);
  ASSERT_EQ(first.result.status, CodecStatus::kQueued);
  EXPECT_EQ(encode(spec, source, 2).form().width, 8);
  EXPECT_EQ(device_.waits, 0) << "a key of its own";
  const Coded second = encode(spec, source, 1);
  EXPECT_EQ(device_.waits, 1);
  ASSERT_EQ(second.result.status, CodecStatus::kQueued);
  EXPECT_EQ(second.form().width, 16) << "as if the first verdict had come in time";
  EXPECT_EQ(codec_.verdict(first.result.ticket, false).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(codec_.verdict(second.result.ticket, true).status, CodecStatus::kOk);
  EXPECT_EQ(held_for(DeviceHold::kRefused), 1u) << "each is judged once";
}

TEST_F(DeviceBlockCodecTest, AVerdictThatWasWaitedForTeachesAndCountsOnce) {
  device_.holds = true;
  const BlockSpec numbers{.type = ElementType::kInt32};
  const Bytes negative = integers<std::int32_t>(4096, [](std::size_t e) { return int(e) - 9; });
  const Coded refused = encode(numbers, negative, 1);
  EXPECT_TRUE(encode(numbers, negative, 1).held()) << "the pause after one refusal";
  EXPECT_EQ(codec_.verdict(refused.result.ticket, false).status, CodecStatus::kKeepRaw);
  EXPECT_FALSE(encode(numbers, negative, 1).held());
  EXPECT_EQ(surprises(), 0u) << "sources of what is gated are there";
  // One whose source was given back.
  const BlockSpec curved{.type = ElementType::kFloat32, .bits = 4, .steps = Steps::kCurved};
  const Bytes narrow = spanning(2), wide = spanning(20);
  ASSERT_EQ(settled(curved, narrow, 2).result.status, CodecStatus::kOk);
  ASSERT_EQ(encode(curved, wide, 2).result.status, CodecStatus::kOk);
  const Coded next = encode(curved, wide, 2);
  EXPECT_EQ(next.result.status, CodecStatus::kQueued) << "the key is looked at again";
  EXPECT_EQ(next.form().bits, 8);
  device_.run();
  encode(curved, wide, 2);
  EXPECT_EQ(surprises(), 1u);
}

TEST_F(DeviceBlockCodecTest, WhetherAGatedPayloadGivesOtherBytesIsKnown) {
  device_.holds = true;
  const Bytes values = spanning(2);
  const auto lossy = [&](const BlockSpec& spec, const Bytes& source, std::uint64_t key) {
    const Coded coded = encode(spec, source, key);
    EXPECT_EQ(coded.result.status, CodecStatus::kQueued);
    return coded.result.ticket.lossy;
  };
  EXPECT_TRUE(
      lossy({.type = ElementType::kFloat32, .bits = 4, .steps = Steps::kCurved}, values, 1));
  EXPECT_FALSE(lossy({.type = ElementType::kFloat32}, values, 2));
  EXPECT_FALSE(lossy({.type = ElementType::kInt32}, values, 3));
}

// ---- integers and booleans ----

template <class Integer>
class DeviceIntegers : public DeviceBlockCodecTest {};
using IntegerTypes = ::testing::Types<std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(DeviceIntegers, IntegerTypes);

TYPED_TEST(DeviceIntegers, AreTriedIn8BitsAndThenInWhatTheyNeed) {
  const ElementType type = sizeof(TypeParam) == 4 ? ElementType::kInt32 : ElementType::kInt64;
  this->device_.holds = true;
  const auto size = [](std::size_t elements, std::size_t width) {  // by docs/payload_format.md
    const std::size_t frames = (elements + 1023) / 1024;
    return 64 + (frames * 2 * sizeof(TypeParam) + 63) / 64 * 64 + elements * width / 8;
  };
  const Bytes few = integers<TypeParam>(4096, [](std::size_t e) { return e % 256; });
  const Coded coded = this->settled({.type = type}, few);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_EQ(coded.result.payload_bytes, size(4096, 8));
  EXPECT_SAME_BITS(this->restored(coded), few);
  const Bytes more = integers<TypeParam>(4096, [](std::size_t e) { return 14 * e; });
  EXPECT_EQ(this->settled({.type = type}, more).result.status, CodecStatus::kKeepRaw);
  const Coded second = this->settled({.type = type}, more);
  ASSERT_EQ(second.result.status, CodecStatus::kOk) << "at once: there is no pause";
  EXPECT_EQ(second.result.payload_bytes, size(4096, 16));
  EXPECT_SAME_BITS(this->restored(second), more);
  EXPECT_EQ(this->codec_.counts().totals.integer.payloads, 2u);
  // What a key has needed once it has.
  EXPECT_EQ(this->settled({.type = type}, few).result.payload_bytes, size(4096, 16));
}

TYPED_TEST(DeviceIntegers, BelowZeroAreRefusedAndTriedAgainLater) {
  const ElementType type = sizeof(TypeParam) == 4 ? ElementType::kInt32 : ElementType::kInt64;
  const Bytes negative = integers<TypeParam>(4096, [](std::size_t e) { return TypeParam(e) - 1; });
  Coded coded;
  EXPECT_EQ(this->pauses({.type = type}, negative, &coded), 0u);
  EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(this->pauses({.type = type}, negative, &coded), 1u);
  EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
  const Bytes few = integers<TypeParam>(4096, [](std::size_t e) { return e % 3; });
  EXPECT_EQ(this->pauses({.type = type}, few, &coded), 2u);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_SAME_BITS(this->restored(coded), few);
}

TYPED_TEST(DeviceIntegers, OfMoreThan32BitsComeBackOrAreHeld) {
  const ElementType type = sizeof(TypeParam) == 4 ? ElementType::kInt32 : ElementType::kInt64;
  for (const std::int64_t largest : {std::int64_t{1} << 30, std::int64_t{0xFFFF'FFFF},
                                     std::int64_t{1} << 32, std::int64_t{1} << 62}) {
    if (largest > std::numeric_limits<TypeParam>::max()) continue;
    const auto key = static_cast<std::uint64_t>(largest);
    const Bytes source = integers<TypeParam>(
        4096, [&](std::size_t e) { return e == 99 ? largest : std::int64_t(e % 7); });
    for (int i = 0; i < 4; ++i) {
      const Coded coded = this->settled({.type = type}, source, key);
      if (coded.result.status == CodecStatus::kOk) {
        EXPECT_SAME_BITS(this->restored(coded), source);
        EXPECT_EQ(coded.form().width, 32);
      }
      EXPECT_EQ(coded.result.status == CodecStatus::kOk,
                i > 0 && sizeof(TypeParam) == 8 && largest <= 0xFFFF'FFFF);
    }
  }
}

TEST_F(DeviceBlockCodecTest, TheFirstBooleansOfAKeyAreLookedAtAndThenAnyByteCounts) {
  device_.holds = true;
  const BlockSpec spec{.type = ElementType::kBool};
  const Bytes booleans = integers<std::uint8_t>(4099, [](std::size_t e) { return e % 3 == 0; });
  const Bytes bytes = integers<std::uint8_t>(4099, [](std::size_t e) { return e % 3; });
  Coded refused;
  EXPECT_EQ(pauses(spec, bytes, &refused), 0u);
  EXPECT_EQ(refused.result.status, CodecStatus::kKeepRaw) << "a 2 may be a number";
  EXPECT_EQ(pauses(spec, bytes, &refused), 1u);
  EXPECT_EQ(refused.result.status, CodecStatus::kKeepRaw);
  ASSERT_EQ(encode(spec, booleans, 2).result.status, CodecStatus::kQueued);
  device_.run();
  const Coded first = settled(spec, booleans, 3);
  ASSERT_EQ(first.result.status, CodecStatus::kOk);
  EXPECT_EQ(first.result.payload_bytes, 64 + (4099 + 7) / 8);
  EXPECT_SAME_BITS(restored(first), booleans);
  const Coded second = encode(spec, bytes, 3);
  ASSERT_EQ(second.result.status, CodecStatus::kOk) << "at once";
  device_.run();
  const Bytes back = restored(second);
  for (std::size_t e = 0; e < 4099; ++e) ASSERT_EQ(back.data()[e], e % 3 != 0) << e;
}

// ---- sides beside values ----

TEST_F(DeviceBlockCodecTest, SidesStandBesideTheFirstValuesOfAKeyAndWhereNoiseCouldCarry) {
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    for (const Sides sides : {kSignOfRelu, Sides{Sides::Kind::kThree, false, -1, 1}}) {
      const BlockSpec spec{.type = type, .bits = 4, .sides = sides};
      ++key;
      const Bytes around = normal(type, 2048, 2);
      const Bytes above =
          floats(type, 2048, [](std::size_t e) { return 8 + double(e * 7 % 64) / 16; });
      const std::size_t beside = sides.kind == Sides::Kind::kThree ? 2 : 1;
      const std::uint64_t before = surprises();
      // No group of these can leave its side, but nobody knows that before.
      std::size_t with_sides = 0;
      for (unsigned i = 0; i < KeyLesson::kQuiet; ++i) {
        const Coded coded = settled(spec, above, key);
        ASSERT_EQ(coded.result.status, CodecStatus::kOk);
        EXPECT_EQ(coded.form().side_bits, beside);
        EXPECT_EQ(other_side(type, sides, above, restored(coded)), "");
        with_sides = coded.result.payload_bytes;
      }
      const Coded ninth = settled(spec, above, key);
      EXPECT_EQ(ninth.form().side_bits, 0);
      EXPECT_EQ(with_sides - ninth.result.payload_bytes, (64 + 2048 * beside / 8 + 63) / 64 * 64);
      EXPECT_EQ(other_side(type, sides, above, restored(ninth)), "");
      EXPECT_EQ(surprises(), before);
      // Now values are about the bounds, and some of this payload may come back across them.
      const Coded tenth = settled(spec, around, key);
      ASSERT_EQ(tenth.result.status, CodecStatus::kOk);
      EXPECT_EQ(beyond_step(type, 4, around, restored(tenth)), "");
      // It is counted, and the key has its sides back for good.
      for (const Bytes* source : {&around, &above, &above, &above, &above, &around}) {
        const Coded coded = settled(spec, *source, key);
        EXPECT_EQ(coded.form().side_bits, beside);
        const Bytes back = restored(coded);
        EXPECT_EQ(other_side(type, sides, *source, back), "");
        EXPECT_EQ(beyond_step(type, 4, *source, back), "");
      }
      EXPECT_EQ(surprises(), before + 1);
    }
  }
}

TEST_F(DeviceBlockCodecTest, SidesStandBesideRotatedValuesAlways) {
  const BlockSpec spec{.type = ElementType::kFloat32,
                       .bits = 4,
                       .transform = Transform::kHadamard,
                       .sides = kSignOfRelu};
  const Bytes above = floats(ElementType::kFloat32, 2048, [](std::size_t e) {
    return e == 5 ? 0.001 : 50 + double(e * 7 % 64);
  });
  for (int i = 0; i < 3; ++i) {
    const Coded coded = settled(spec, above);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_EQ(coded.form().side_bits, 1);
    EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, above, restored(coded)), "");
  }
  // Nothing of a constant can leave its side; what comes next can.
  const Bytes constant = floats(ElementType::kFloat32, 2048, [](std::size_t) { return 3; });
  for (int i = 0; i < 4; ++i) settled(spec, constant, 2);
  const Bytes around = normal(ElementType::kFloat32, 2048);
  const Coded next = settled(spec, around, 2);
  EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, around, restored(next)), "");
}

TEST_F(DeviceBlockCodecTest, SidesStandBesideGatedValuesToo) {
  device_.holds = true;
  for (const std::uint8_t bits : {1, 2}) {
    const Bytes around = normal(ElementType::kFloat32, 2048, 2);
    const Bytes above = floats(ElementType::kFloat32, 2048,
                               [](std::size_t e) { return 8 + double(e * 7 % 64) / 16; });
    const BlockSpec spec{.type = ElementType::kFloat32, .bits = bits, .sides = kSignOfRelu};
    std::vector<const Bytes*> sources(KeyLesson::kQuiet + 1, &above);
    sources.insert(sources.end(), {&around, &around});
    for (const Bytes* source : sources) {
      const Coded coded = settled(spec, *source, bits);
      if (coded.result.status != CodecStatus::kOk) continue;  // no sides, and some may leave
      EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, *source, restored(coded)), "");
    }
  }
  EXPECT_EQ(held_for(DeviceHold::kRefused), 2u) << "the first about the bounds, of each";
  EXPECT_EQ(surprises(), 0u) << "a refusal is none: the source is there";
}

// ---- steps ----

TEST_F(DeviceBlockCodecTest, StepsThatAreTooWideRaiseTheWidthAndThenTheBlockIsHeld) {
  for (const Steps steps : {Steps::kCurved, Steps::kExponent}) {
    const double limit = steps == Steps::kCurved ? 0.5 : 0.125;
    const auto key = [&](int n) { return std::uint64_t(steps) * 100 + std::uint64_t(n); };
    const BlockSpec spec{.type = ElementType::kFloat32, .bits = 3, .steps = steps};
    const auto expect_good = [&](const Coded& coded, const Bytes& source, unsigned bits) {
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      EXPECT_EQ(coded.form().bits, bits);
      const Bytes back = restored(coded);
      EXPECT_EQ(beyond_step(ElementType::kFloat32, bits, source, back), "");
      for (std::size_t e = 0; e < 2048; ++e) {
        ASSERT_LE(std::fabs(value_at(ElementType::kFloat32, source.data(), e) -
                            value_at(ElementType::kFloat32, back.data(), e)),
                  limit);
      }
    };
    const auto range_of = [&](double step, unsigned bits) { return step * ((1u << bits) - 1); };
    {  // at 3 bits beyond the limit, at 4 well within
      const Bytes source = spanning(range_of(0.7 * limit, 4));
      EXPECT_EQ(settled(spec, source, key(1)).result.status, CodecStatus::kKeepRaw);
      expect_good(settled(spec, source, key(1)), source, 4);
      // After a surprise the key has to be as predicted many times.
      for (unsigned i = 1; i < KeyLesson::kSurprising; ++i) {
        expect_good(settled(spec, source, key(1)), source, 4);
      }
      const Coded sure = encode(spec, source, key(1));
      EXPECT_EQ(sure.result.status, CodecStatus::kOk) << "at once";
      EXPECT_EQ(sure.form().bits, 4);
    }
    {  // at 4 bits close to the limit: 8 at once
      const Bytes source = spanning(range_of(0.9 * limit, 4));
      EXPECT_EQ(settled(spec, source, key(2)).result.status, CodecStatus::kKeepRaw);
      expect_good(settled(spec, source, key(2)), source, 8);
    }
    {  // 8 are not enough
      const Bytes source = spanning(range_of(2 * limit, 8));
      EXPECT_EQ(settled(spec, source, key(3)).result.status, CodecStatus::kKeepRaw);
      EXPECT_TRUE(settled(spec, source, key(3)).held()) << "a pause";
      EXPECT_EQ(settled(spec, source, key(3)).result.status, CodecStatus::kKeepRaw);
      EXPECT_TRUE(settled(spec, source, key(3)).held());
      EXPECT_TRUE(settled(spec, source, key(3)).held()) << "twice as long";
      const Bytes narrow = spanning(range_of(0.5 * limit, 3));
      expect_good(settled(spec, narrow, key(3)), narrow, 8);
    }
    {  // within the limit, but not by much: the next one has more
      const Bytes source = spanning(range_of(0.9 * limit, 3));
      expect_good(settled(spec, source, key(4)), source, 3);
      expect_good(settled(spec, source, key(4)), source, 4);
    }
    {  // below 0.8 of it nothing changes
      const Bytes source = spanning(range_of(0.78 * limit, 3));
      for (int i = 0; i < 3; ++i) expect_good(settled(spec, source, key(5)), source, 3);
    }
  }
  EXPECT_EQ(surprises(), 0u);
}

TEST_F(DeviceBlockCodecTest, AKeyThatWasSureAndIsTooWideIsCountedAndHasMoreBitsFromThenOn) {
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4, .steps = Steps::kCurved};
  const Bytes narrow = spanning(2), wide = spanning(20), widest = spanning(1000);
  EXPECT_EQ(settled(spec, narrow).result.status, CodecStatus::kOk);
  const Coded surprise = settled(spec, wide);
  ASSERT_EQ(surprise.result.status, CodecStatus::kOk);
  EXPECT_EQ(beyond_step(ElementType::kFloat32, 4, wide, restored(surprise)), "");
  const Coded next = settled(spec, wide);
  EXPECT_EQ(surprises(), 1u);
  EXPECT_EQ(next.form().bits, 8);
  EXPECT_EQ(settled(spec, widest).result.status, CodecStatus::kKeepRaw)
      << "8 bits are not enough, and after a surprise the key is looked at again";
  EXPECT_TRUE(settled(spec, widest).held());
  EXPECT_EQ(surprises(), 1u);
}

// ---- lines ----

TEST_F(DeviceBlockCodecTest, FlatLinesAndRowsOfZerosComeBackBitForBit) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const Sheet& sheet : {Sheet{.flat = every(2, 11), .zero = {5, 6, 60}},
                               Sheet{.look = Look::kColumns, .flat = every(2, 20)}}) {
      ++key;
      const Bytes source = sheet.values(type);
      device_.launches.clear();
      const Coded queued = encode(sheet.spec(type), source, key);
      ASSERT_EQ(queued.result.status, CodecStatus::kQueued) << "the first of a key is looked at";
      EXPECT_EQ(device_.launches.size(), 3u) << "columns, or else parts, are measured as well";
      device_.run();
      Coded first = queued;
      first.result = codec_.verdict(queued.result.ticket, false);
      ASSERT_EQ(first.result.status, CodecStatus::kOk);
      EXPECT_EQ(sheet.wrong(source, restored(first), type), "");
      Coded second = encode(sheet.spec(type), source, key);
      device_.run();
      ASSERT_EQ(second.result.status, CodecStatus::kQueued) << "there may be more lines each time";
      second.result = codec_.verdict(second.result.ticket, false);
      EXPECT_EQ(sheet.wrong(source, restored(second), type, second.form().transform), "");
    }
    // Exponents of parts have them: no line is looked for, and no verdict is waited for.
    const Sheet padded{.look = Look::kParts, .zero = {0, 7, 8, 9, 63}};
    const Bytes source = padded.values(type);
    device_.launches.clear();
    const Coded coded = encode(padded.spec(type), source, ++key);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_EQ(device_.launches.size(), 2u) << "parts are measured first";
    device_.run();
    EXPECT_EQ(padded.wrong(source, restored(coded), type), "");
  }
}

TEST_F(DeviceBlockCodecTest, MoreLinesThanPredictedAreRefusedOnceAndThenHaveRoom) {
  std::uint64_t key = 0;
  for (const Look look : {Look::kRows, Look::kColumns}) {
    const Sheet sheet{.look = look, .flat = every(14, 4)};
    const Bytes source = sheet.values();
    EXPECT_EQ(settled(sheet.spec(), source, ++key).result.status, CodecStatus::kKeepRaw);
    const Coded second = encode(sheet.spec(), source, key);
    ASSERT_EQ(second.result.status, CodecStatus::kQueued) << "at once, and still looked at";
    Coded coded = settled(sheet.spec(), source, key);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_GE(coded.form().most_lines, 14u + 14 / 4);
    EXPECT_EQ(sheet.wrong(source, restored(coded), ElementType::kFloat32, coded.form().transform),
              "");
  }
}

TEST_F(DeviceBlockCodecTest, MoreLinesThanAKeyEverHadAreRefusedAndThenHaveRoom) {
  const Sheet few{.flat = every(2, 20)}, many{.flat = every(14, 4)};
  EXPECT_EQ(settled(few.spec(), few.values()).result.status, CodecStatus::kOk);
  const Bytes source = many.values();
  EXPECT_EQ(settled(many.spec(), source).result.status, CodecStatus::kKeepRaw);
  const Coded next = settled(many.spec(), source);
  ASSERT_EQ(next.result.status, CodecStatus::kOk);
  EXPECT_EQ(many.wrong(source, restored(next)), "");
  // What it has needed once is allowed for from then on.
  for (int i = 0; i < 3; ++i) settled(few.spec(), few.values());
  const Coded last = settled(many.spec(), source);
  ASSERT_EQ(last.result.status, CodecStatus::kOk);
  EXPECT_EQ(many.wrong(source, restored(last)), "");
  EXPECT_EQ(surprises(), 0u);
}

TEST_F(DeviceBlockCodecTest, WhatIsPredictedFollowsTheSizeOfTheBlock) {
  const Sheet small{.rows = 64, .flat = every(2, 11)};
  EXPECT_EQ(settled(small.spec(), small.values()).result.status, CodecStatus::kOk);
  const Sheet large{.rows = 640, .flat = every(20, 11)};
  const Bytes source = large.values();
  const Coded coded = settled(large.spec(), source);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_EQ(large.wrong(source, restored(coded)), "");
  settled(large.spec(), source);
  EXPECT_EQ(surprises(), 0u);
}

// ---- near zero ----

TEST_F(DeviceBlockCodecTest, ElementsNearZeroComeBackBitForBit) {
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    const BlockSpec spec{.type = type, .bits = 4, .near_zero = true};
    const auto logarithms = [&](std::size_t near) {  // so many are above -1
      return floats(type, 2048, [&](std::size_t e) {
        return e % 100 == 3 && e / 100 < near ? -0.001 * double(e % 97 + 1)
                                              : -1.5 - double(e * 31 % 512) / 64;
      });
    };
    const auto wrong = [&](const Bytes& source, const Bytes& back) -> std::string {
      const std::size_t size = element_size(type);
      for (std::size_t e = 0; e < 2048; ++e) {
        if (value_at(type, source.data(), e) > -1 &&
            std::memcmp(source.data() + e * size, back.data() + e * size, size) != 0) {
          return "element " + std::to_string(e);
        }
      }
      return beyond_step(type, 4, source, back);
    };
    const Bytes few = logarithms(3), many = logarithms(20);
    ++key;
    const Coded first = encode(spec, few, key);
    ASSERT_EQ(first.result.status, CodecStatus::kQueued);
    EXPECT_EQ(codec_.verdict(first.result.ticket, false).status, CodecStatus::kOk);
    const Coded second = encode(spec, few, key);
    ASSERT_EQ(second.result.status, CodecStatus::kOk) << "the key is sure";
    EXPECT_EQ(wrong(few, restored(second)), "");
    const std::uint64_t before = surprises();
    ASSERT_EQ(settled(spec, many, key).result.status, CodecStatus::kOk);
    const Coded ninth = settled(spec, many, key);
    EXPECT_EQ(surprises(), before + 1);
    EXPECT_EQ(wrong(many, restored(ninth)), "");
    // The first of a key with too many is refused.
    ++key;
    EXPECT_EQ(settled(spec, many, key).result.status, CodecStatus::kKeepRaw);
    const Coded again = settled(spec, many, key);
    ASSERT_EQ(again.result.status, CodecStatus::kOk);
    EXPECT_EQ(wrong(many, restored(again)), "");
  }
}

// ---- tables of spans ----

class Gaps : public DeviceBlockCodecTest {
 protected:
  // `count` spans of different sizes that begin where elements do and nothing else, in `bytes`.
  static std::vector<ByteRange> spans(std::size_t count, std::size_t size, std::size_t bytes) {
    std::vector<ByteRange> ranges;
    const std::size_t distance = bytes / count / size * size;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t begin = i * distance + (i % 5 + 1) * size;
      ranges.push_back({begin, begin + distance / 2 / size * size + i % 3 * size});
    }
    return ranges;
  }
  // Bytes outside of the ranges must be zero; check(i, range) looks at the others.
  template <class Check>
  static void expect_gaps(const Coded& coded, const Bytes& back, Check&& check) {
    std::size_t at = 0;
    for (std::size_t i = 0; i <= coded.ranges.size(); ++i) {
      const std::size_t end = i < coded.ranges.size() ? coded.ranges[i].begin : back.size();
      for (; at < end; ++at) ASSERT_EQ(back.data()[at], 0) << "byte " << at;
      if (i == coded.ranges.size()) break;
      check(i, coded.ranges[i]);
      at = coded.ranges[i].end;
    }
  }
  static void expect_exact(const Coded& coded, const Bytes& source, const Bytes& back) {
    expect_gaps(coded, back, [&](std::size_t, const ByteRange& range) {
      ASSERT_EQ(std::memcmp(source.data() + range.begin, back.data() + range.begin,
                            range.end - range.begin),
                0);
    });
  }
};

TEST_F(Gaps, OfUpTo64SpansAreZeroAndEachSpanIsAPayloadOfItsOwn) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{3}, std::size_t{compress::cuda::kMostJobs},
        std::size_t{compress::cuda::kMostJobs + 1}, std::size_t{64}}) {
    for (const ElementType type : kFloatTypes) {
      const std::size_t size = element_size(type);
      const Bytes source = normal(type, count * 1400);
      const BlockSpec spec{.type = type, .bits = 4};
      device_.launches.clear();
      const Coded coded = encode(spec, source, ++key, spans(count, size, source.size()));
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      EXPECT_EQ(device_.launches.size(), count > compress::cuda::kMostJobs ? 2u : 1u);
      device_.run();
      const Bytes back = restored(coded);
      std::size_t end = 0;
      expect_gaps(coded, back, [&](std::size_t i, const ByteRange& range) {
        const std::size_t elements = (range.end - range.begin) / size;
        const Bytes expected = on_host(spec, source.data() + range.begin, elements,
                                       coded.nonce + i);  // a nonce of its own
        const std::size_t at = (end + 63) / 64 * 64;
        ASSERT_LE(at + expected.size(), coded.result.payload_bytes);
        EXPECT_EQ(std::memcmp(coded.payload->data() + at, expected.data(), expected.size()), 0);
        end = at + expected.size();
        EXPECT_EQ(beyond_step(type, 4, source.data() + range.begin, back.data() + range.begin,
                              elements, [](std::size_t) { return false; }),
                  "");
      });
      EXPECT_EQ(coded.result.payload_bytes, end);
    }
  }
}

TEST_F(Gaps, OfIntegersBooleansAndMasksAreZero) {
  device_.holds = true;
  const Bytes numbers = integers<std::int64_t>(20000, [](std::size_t e) { return e % 200; });
  const Coded coded = settled({.type = ElementType::kInt64}, numbers, 1, spans(20, 8, 160000));
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  expect_exact(coded, numbers, restored(coded));
  const Bytes booleans = integers<std::uint8_t>(64000, [](std::size_t e) { return e % 3 == 1; });
  for (int i = 0; i < 2; ++i) {  // looked at, and at once
    const Coded table = settled({.type = ElementType::kBool}, booleans, 2, spans(33, 1, 64000));
    ASSERT_EQ(table.result.status, CodecStatus::kOk);
    expect_exact(table, booleans, restored(table));
  }
  const Bytes mask =
      floats(ElementType::kFloat16, 32000, [](std::size_t e) { return double(e % 2); });
  const Coded masks = settled({.type = ElementType::kFloat16}, mask, 3, spans(10, 2, 64000));
  ASSERT_EQ(masks.result.status, CodecStatus::kOk);
  expect_exact(masks, mask, restored(masks));
}

TEST_F(Gaps, IntegersThatDoNotFitInOneOfManySpansAreRefused) {
  const Bytes numbers =
      integers<std::int32_t>(20000, [](std::size_t e) { return e == 19000 ? 256 : e % 200; });
  const auto ranges = std::vector<ByteRange>{{0, 20000}, {40000, 80000}};
  EXPECT_EQ(settled({.type = ElementType::kInt32}, numbers, 1, ranges).result.status,
            CodecStatus::kKeepRaw);
  EXPECT_TRUE(settled({.type = ElementType::kInt32}, numbers, 1, ranges).held());
}

TEST_F(Gaps, SidesAndElementsNearZeroOfEverySpanAreKept) {
  const Bytes source = normal(ElementType::kFloat32, 40000, 2);
  const auto ranges = spans(25, 4, source.size());
  const auto on_their_sides = [&](const Coded& coded) {
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    const Bytes back = restored(coded);
    expect_gaps(coded, back, [&](std::size_t, const ByteRange& range) {
      EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, source.data() + range.begin,
                           back.data() + range.begin, (range.end - range.begin) / 4),
                "");
    });
  };
  on_their_sides(
      settled({.type = ElementType::kFloat32, .kept = Kept::kSides, .sides = kSignOfRelu}, source,
              1, ranges));
  on_their_sides(
      settled({.type = ElementType::kFloat32, .bits = 4, .sides = kSignOfRelu}, source, 2, ranges));
  const Bytes logarithms = floats(ElementType::kFloat32, 40000, [](std::size_t e) {
    return e % 1000 == 999 ? -0.01 * double(e / 1000) : -2 - double(e * 31 % 512) / 64;
  });
  const BlockSpec near{.type = ElementType::kFloat32, .bits = 4, .near_zero = true};
  settled(near, logarithms, 3, ranges);  // which may be refused: so much is not predicted
  const Coded coded = settled(near, logarithms, 3, ranges);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  const Bytes back = restored(coded);
  expect_gaps(coded, back, [&](std::size_t, const ByteRange& range) {
    for (std::size_t at = range.begin; at < range.end; at += 4) {
      if (value_at(ElementType::kFloat32, logarithms.data(), at / 4) > -1) {
        ASSERT_EQ(std::memcmp(logarithms.data() + at, back.data() + at, 4), 0) << at / 4;
      }
    }
  });
}

TEST_F(Gaps, AGatedPayloadOfSeveralSpansIsRefusedIfOneOfThemIs) {
  device_.holds = true;
  Bytes source = normal(ElementType::kFloat32, 40000);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 2};
  const auto ranges = spans(5, 4, source.size());
  Coded coded = settled(spec, source, 1, ranges);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  const Bytes back = restored(coded);
  expect_gaps(coded, back, [&](std::size_t, const ByteRange& range) {
    EXPECT_EQ(beyond_step(ElementType::kFloat32, 2, source.data() + range.begin,
                          back.data() + range.begin, (range.end - range.begin) / 4,
                          [](std::size_t) { return false; }),
              "");
  });
  for (std::size_t e = ranges[4].begin / 4; e < ranges[4].end / 4; e += 100) {
    set_value(ElementType::kFloat32, source.data(), e, NAN);
  }
  EXPECT_EQ(settled(spec, source, 1, ranges).result.status, CodecStatus::kKeepRaw);
}

}  // namespace
}  // namespace pleat::bridge::cuda

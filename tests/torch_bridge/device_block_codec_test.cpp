// The codec of a CUDA device, on a device of the test's own: what is done at once and what waits
// for a verdict, what keys learn, and that every payload gives back what was asked for.
#include "torch_bridge/cuda/device_block_codec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "compress/codec.h"
#include "tests/compress/support.h"
#include "tests/torch_bridge/held_device.h"

// An image, whether kernels are built or not: the device of the test does not look into it.
asm(".pushsection .rodata\n"
    ".globl pleat_device_image\npleat_device_image:\n.ascii \"kernels\"\n"
    ".globl pleat_device_image_end\npleat_device_image_end:\n.byte 0\n"
    ".popsection\n");

namespace pleat::bridge::cuda {
namespace {

using allocator::ByteRange;
using allocator::CodecStatus;
using allocator::CodecWords;
using allocator::EncodePlan;
using allocator::EncodeRequest;
using allocator::EncodeResult;
using allocator::StreamId;
using allocator::TensorKey;
using allocator::cuda::DeviceWords;
using compress::ElementType;
using compress::Look;
using compress::Sides;
using compress::Transform;
using compress::block::BlockSpec;
using compress::block::Kept;
using compress::block::Steps;
using compress::test::Bytes;
using compress::test::kFloatTypes;
using compress::test::set_value;
using compress::test::value_at;
using testing::HeldDevice;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Sides kSignOfRelu{Sides::Kind::kOpen, false, 0, kInfinity};  // 0 < x

// ---- content ----

Bytes copy_of(const Bytes& from) {
  Bytes to(from.size());
  std::memcpy(to.data(), from.data(), from.size());
  return to;
}

// value(e) for each element.
template <class Value>
Bytes floats(ElementType type, std::size_t elements, Value&& value) {
  Bytes to(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) set_value(type, to.data(), e, value(e));
  return to;
}
Bytes normal(ElementType type, std::size_t elements, double scale = 1, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  return floats(type, elements, [&](std::size_t) { return scale * draw(random); });
}
// Groups that all span `range`, so that their steps are known.
Bytes spanning(double range, std::size_t elements = 2048, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> draw(-range / 2, range / 2);
  return floats(ElementType::kFloat32, elements, [&](std::size_t e) {
    return e % 256 == 0 ? -range / 2 : e % 256 == 1 ? range / 2 : draw(random);
  });
}
template <class Integer, class Value>
Bytes integers(std::size_t elements, Value&& value) {
  Bytes to(elements * sizeof(Integer));
  for (std::size_t e = 0; e < elements; ++e) {
    const auto x = static_cast<Integer>(value(e));
    std::memcpy(to.data() + e * sizeof x, &x, sizeof x);
  }
  return to;
}

// ---- what must come back ----

std::string bits_differ(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a.data()[i] != b.data()[i]) return "byte " + std::to_string(i) + " differs";
  }
  return {};
}
#define EXPECT_SAME_BITS(a, b) EXPECT_EQ(bits_differ(a, b), "")

// Each element within the step of its group: its range over the codes beside the first. `skip(e)`:
// not to be looked at.
template <class Skip>
std::string beyond_step(ElementType type, unsigned bits, const unsigned char* source,
                        const unsigned char* restored, std::size_t elements, Skip&& skip) {
  const double unit = std::ldexp(1, type == ElementType::kFloat32    ? -22
                                    : type == ElementType::kBFloat16 ? -7
                                                                     : -10);
  for (std::size_t begin = 0; begin < elements; begin += 256) {
    const std::size_t end = std::min(begin + 256, elements);
    double low = INFINITY, high = -INFINITY;
    for (std::size_t e = begin; e < end; ++e) {
      low = std::min(low, value_at(type, source, e));
      high = std::max(high, value_at(type, source, e));
    }
    const double step = (high - low) / ((1u << bits) - 1);
    for (std::size_t e = begin; e < end; ++e) {
      const double x = value_at(type, source, e), y = value_at(type, restored, e);
      const double most = 1.01 * step + unit * std::max(std::fabs(low), std::fabs(high));
      if (!skip(e) && !(std::fabs(x - y) <= most)) {
        return "element " + std::to_string(e) + ": " + std::to_string(x) + " came back as " +
               std::to_string(y) + ", step " + std::to_string(step);
      }
    }
  }
  return {};
}
std::string beyond_step(ElementType type, unsigned bits, const Bytes& source,
                        const Bytes& restored) {
  return beyond_step(type, bits, source.data(), restored.data(), source.size() / element_size(type),
                     [](std::size_t) { return false; });
}

int side_of(const Sides& sides, double x) {
  const auto low = static_cast<double>(sides.low), high = static_cast<double>(sides.high);
  switch (sides.kind) {
    case Sides::Kind::kOpen:
      return std::isnan(x) ? sides.nan_inside
                           : (low < x || low == -INFINITY) && (x < high || high == INFINITY);
    case Sides::Kind::kClosed:
      return std::isnan(x) ? sides.nan_inside : low <= x && x <= high;
    default:
      return x < low ? 0 : x > high ? 2 : 1;
  }
}
std::string other_side(ElementType type, const Sides& sides, const unsigned char* source,
                       const unsigned char* restored, std::size_t elements) {
  for (std::size_t e = 0; e < elements; ++e) {
    const double x = value_at(type, source, e), y = value_at(type, restored, e);
    if (side_of(sides, x) != side_of(sides, y)) {
      return "element " + std::to_string(e) + ": " + std::to_string(x) + " came back as " +
             std::to_string(y);
    }
  }
  return {};
}
std::string other_side(ElementType type, const Sides& sides, const Bytes& source,
                       const Bytes& restored) {
  return other_side(type, sides, source.data(), restored.data(),
                    source.size() / element_size(type));
}

// The payload as the host writes it.
Bytes on_host(const BlockSpec& spec, const unsigned char* source, std::size_t elements,
              std::uint64_t nonce) {
  Bytes payload(1 << 20);
  const compress::EncodeResult coded =
      compress::encode({source, elements, spec.type},
                       {.bits = spec.bits, .transform = spec.transform, .compact = false}, nonce,
                       payload.data(), payload.size(), compress::serial_executor(), nullptr);
  EXPECT_EQ(coded.status, compress::Status::kOk);
  Bytes exact(coded.payload_bytes);
  std::memcpy(exact.data(), payload.data(), exact.size());
  return exact;
}
Bytes decoded_on_host(const unsigned char* payload, std::size_t bytes, std::size_t target_bytes) {
  Bytes aligned(bytes), target(target_bytes);
  std::memcpy(aligned.data(), payload, bytes);
  EXPECT_EQ(compress::decode(aligned.data(), bytes, target.data(), target_bytes,
                             compress::serial_executor()),
            compress::Status::kOk);
  return target;
}

// ---- the codec and its device ----

struct Coded {
  std::vector<ByteRange> ranges;
  std::size_t source_bytes = 0;
  std::uint64_t nonce = 0;
  std::size_t room = 0;  // 0: held without a try
  std::shared_ptr<Bytes> payload;
  EncodeResult result{};

  DeviceForm form() const { return DeviceForm::unpack(result.form); }
  bool held() const { return room == 0; }
};

class DeviceBlockCodecTest : public ::testing::Test {
 protected:
  static constexpr StreamId kStream{0x50};

  void SetUp() override {
    std::string why;
    ASSERT_EQ(codec_.open(kStream, why), DeviceCodec::Opened::kYes) << why;
    device_.launches.clear();
    device_.waits = 0;
  }

  Coded encode(const BlockSpec& spec, const Bytes& source, std::uint64_t key = 1,
               std::vector<ByteRange> ranges = {}, StreamId stream = kStream) {
    Coded coded;
    coded.ranges = ranges.empty() ? std::vector<ByteRange>{{0, source.size()}} : std::move(ranges);
    coded.source_bytes = source.size();
    coded.nonce = nonce_.fetch_add(1000);
    EncodeRequest request;
    request.source = const_cast<unsigned char*>(source.data());
    request.source_bytes = source.size();
    request.ranges = coded.ranges.data();
    request.range_count = coded.ranges.size();
    request.choice = spec.pack();
    request.nonce = coded.nonce;
    request.key = TensorKey{key};
    request.stream = stream;
    const EncodePlan plan = codec_.plan(request);
    EXPECT_FALSE(plan.in_place);
    EXPECT_FALSE(plan.recomputed);
    coded.room = plan.room;
    if (plan.room == 0) return coded;
    coded.payload = std::make_shared<Bytes>(plan.room);
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      payloads_.push_back(coded.payload);  // the device's until it is done
    }
    coded.result = codec_.encode(request, plan, coded.payload->data(), plan.room);
    EXPECT_LE(coded.result.payload_bytes, plan.room);
    return coded;
  }
  // Encodes, and the device does what it holds: the verdict, if there is to be one.
  Coded settled(const BlockSpec& spec, const Bytes& source, std::uint64_t key = 1,
                std::vector<ByteRange> ranges = {}) {
    Coded coded = encode(spec, source, key, std::move(ranges));
    device_.run();
    if (coded.result.status == CodecStatus::kQueued) {
      EXPECT_TRUE(codec_.is_decided(coded.result.ticket));
      coded.result = codec_.verdict(coded.result.ticket, false);
      EXPECT_NE(coded.result.status, CodecStatus::kQueued);
    }
    return coded;
  }
  // Nothing of the payload but its bytes is read, and all of the target is written.
  Bytes restored(const Coded& coded, StreamId stream = kStream,
                 CodecStatus expected = CodecStatus::kOk) {
    EXPECT_TRUE(coded.payload->guard_intact()) << "written beyond the room";
    Bytes payload(coded.result.payload_bytes);
    std::memcpy(payload.data(), coded.payload->data(), payload.size());
    Bytes target(coded.source_bytes);
    EXPECT_EQ(codec_.decode({payload.data(), payload.size(), coded.result.form, coded.ranges.data(),
                             coded.ranges.size()},
                            target.data(), target.size(), stream),
              expected);
    device_.run();
    EXPECT_TRUE(target.guard_intact());
    return target;
  }

  std::uint64_t held_for(DeviceHold why) const { return codec_.counts().holds[why].number; }
  std::uint64_t surprises() const { return codec_.counts().surprises; }
  // Blocks of a key that are held before one is tried; that one's result.
  unsigned pauses(const BlockSpec& spec, const Bytes& source, Coded* tried, unsigned most = 1000) {
    const std::uint64_t before = held_for(DeviceHold::kNotYet);
    unsigned count = 0;
    while ((*tried = settled(spec, source)).held() && count < most) ++count;
    EXPECT_EQ(held_for(DeviceHold::kNotYet) - before, count);
    return count;
  }
  // How many words are to be had: one for each of small payloads that the device holds back.
  std::size_t words_left() {
    const bool before = device_.holds.exchange(true);
    const Bytes source = integers<bool>(128, [](std::size_t e) { return e % 2 == 0; });
    std::deque<Coded> all;
    do {
      all.push_back(encode({.type = ElementType::kBool}, source, 77));
    } while (all.back().result.status == CodecStatus::kQueued);
    device_.run();
    device_.holds = before;
    for (const Coded& coded : all) codec_.forget(coded.result.ticket);
    encode({.type = ElementType::kBytes}, source, 78);  // late verdicts are taken
    return all.size() - 1;
  }

  HeldDevice device_;
  const allocator::cuda::Driver driver_ = HeldDevice::driver();
  allocator::cuda::DriverLife life_;
  DeviceBlockCodec codec_{device_, driver_, life_, 0};
  std::atomic<std::uint64_t> nonce_{7};

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<Bytes>> payloads_;
};

// ---- done at once ----

TEST_F(DeviceBlockCodecTest, LossyFloatsOf3BitsAndMoreAreDoneInTheOrderOfTheStream) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {3u, 4u, 8u}) {
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
  EXPECT_EQ(codec_.counts().totals.lossy_fp32.payloads, 9u);
  EXPECT_EQ(codec_.counts().totals.lossy_16bit.payloads, 18u);
  EXPECT_EQ(codec_.counts().totals.lossy_fp32.source_bytes, 9 * 1500 * 4u);
  EXPECT_EQ(device_.waits, 0) << "nobody waits";
  EXPECT_EQ(words_left(), DeviceWords::kSlots) << "nothing is asked of the device";
}

TEST_F(DeviceBlockCodecTest, NanAndInfinitiesAreNoReasonToRefuse) {
  const Bytes source = floats(ElementType::kFloat32, 1500, [](std::size_t e) {
    return e % 7 == 0 ? NAN : e % 7 == 1 ? INFINITY : e % 7 == 2 ? -INFINITY : double(e % 31);
  });
  for (const std::uint8_t bits : {3, 4, 8}) {
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
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
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
          const Bytes expected = on_host(spec, source->data(), 2000, coded.nonce);
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

TEST_F(DeviceBlockCodecTest, MasksAmongFloatsAreFoundAndComeBackBitForBit) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    // 0 and 1.25, of which many groups have two values and one group only one.
    const Bytes source = floats(type, 2100, [](std::size_t e) {
      return e / 256 == 3 || e % 3 == 0 ? 1.25 : e % 2 == 0 ? 0.0 : 0.0;
    });
    const Coded coded = settled({.type = type}, source, ++key);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    const std::size_t groups = 9;
    EXPECT_EQ(coded.result.payload_bytes,
              64 + (groups * 2 * element_size(type) + 63) / 64 * 64 + groups * 32);
    EXPECT_SAME_BITS(restored(coded), source);
  }
  EXPECT_EQ(codec_.counts().totals.two_valued_groups, 27u);
  EXPECT_EQ(codec_.counts().totals.lossless_float.payloads, 3u);
}

TEST_F(DeviceBlockCodecTest, AKeyWithoutMasksIsTriedAtGrowingDistances) {
  const BlockSpec spec{.type = ElementType::kFloat32};
  const Bytes other = normal(ElementType::kFloat32, 2048);
  const Bytes mask =
      floats(ElementType::kFloat32, 2048, [](std::size_t e) { return double(e % 2); });
  Coded coded;
  EXPECT_EQ(pauses(spec, other, &coded), 0u);
  for (const unsigned distance : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 256u}) {
    EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
    EXPECT_EQ(pauses(spec, other, &coded), distance);
  }
  // One that fits begins anew.
  EXPECT_EQ(pauses(spec, mask, &coded), 256u);
  EXPECT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_EQ(pauses(spec, other, &coded), 0u);
  EXPECT_EQ(coded.result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(pauses(spec, mask, &coded), 1u);
  EXPECT_EQ(coded.result.status, CodecStatus::kOk);
  EXPECT_SAME_BITS(restored(coded), mask);
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
      // No group of the first payload can leave its side, but nobody knows that before.
      const Coded first = settled(spec, above, key);
      ASSERT_EQ(first.result.status, CodecStatus::kOk);
      EXPECT_EQ(first.form().side_bits, beside);
      EXPECT_EQ(other_side(type, sides, above, restored(first)), "");
      const Coded second = settled(spec, above, key);
      EXPECT_EQ(second.form().side_bits, 0);
      EXPECT_EQ(first.result.payload_bytes - second.result.payload_bytes,
                (64 + 2048 * beside / 8 + 63) / 64 * 64);
      EXPECT_EQ(other_side(type, sides, above, restored(second)), "");
      EXPECT_EQ(surprises(), before);
      // Now values are about the bounds, and some of this payload may come back across them.
      const Coded third = settled(spec, around, key);
      ASSERT_EQ(third.result.status, CodecStatus::kOk);
      EXPECT_EQ(beyond_step(type, 4, around, restored(third)), "");
      const Coded fourth = settled(spec, around, key);
      EXPECT_EQ(surprises(), before + 1) << "it is counted";
      EXPECT_EQ(fourth.form().side_bits, beside) << "and the next has its sides back";
      const Bytes back = restored(fourth);
      EXPECT_EQ(other_side(type, sides, around, back), "");
      EXPECT_EQ(beyond_step(type, 4, around, back), "");
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
  settled(spec, constant, 2);
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
    for (const Bytes* source : {&around, &above, &above, &around, &around}) {
      const Coded coded = settled(spec, *source, bits);
      if (coded.result.status != CodecStatus::kOk) continue;  // no sides, and some may leave
      EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, *source, restored(coded)), "");
    }
  }
  EXPECT_EQ(held_for(DeviceHold::kRefused), 2u) << "the fourth of each";
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
      const Coded third = encode(spec, source, key(1));
      EXPECT_EQ(third.result.status, CodecStatus::kOk) << "the key is sure: at once";
      EXPECT_EQ(third.form().bits, 4);
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
  EXPECT_EQ(settled(spec, widest).result.status, CodecStatus::kOk);
  EXPECT_TRUE(settled(spec, widest).held()) << "8 bits are not enough";
  EXPECT_EQ(surprises(), 2u);
}

// ---- lines ----

struct Sheet {
  std::size_t rows = 64;
  std::uint32_t length = 96;
  Look look = Look::kRows;
  std::set<std::size_t> flat{}, zero{};

  BlockSpec spec(ElementType type = ElementType::kFloat32) const {
    return {.type = type, .bits = 4, .lines = {look, length}};
  }
  std::size_t line_of(std::size_t e) const {
    return look == Look::kColumns ? e % length : e / length;
  }
  // Lines that are flat hold next to nothing beside the others, which none is near to.
  Bytes values(ElementType type = ElementType::kFloat32) const {
    std::mt19937_64 random(rows);
    std::normal_distribution<double> draw;
    return floats(type, rows * length, [&](std::size_t e) {
      const double x = draw(random);
      return zero.contains(line_of(e)) ? 0.0 : flat.contains(line_of(e)) ? 0.02 + 1e-4 * x : 4 * x;
    });
  }
  std::string wrong(const Bytes& source, const Bytes& back,
                    ElementType type = ElementType::kFloat32) const {
    const std::size_t size = element_size(type);
    for (std::size_t e = 0; e < rows * length; ++e) {
      const bool exact = flat.contains(line_of(e)) || zero.contains(line_of(e));
      if (exact && std::memcmp(source.data() + e * size, back.data() + e * size, size) != 0) {
        return "element " + std::to_string(e) + " of line " + std::to_string(line_of(e));
      }
    }
    return beyond_step(type, 4, source, back);
  }
};

std::set<std::size_t> every(std::size_t count, std::size_t distance) {
  std::set<std::size_t> lines;
  for (std::size_t i = 0; i < count; ++i) lines.insert(i * distance + 1);
  return lines;
}

TEST_F(DeviceBlockCodecTest, FlatLinesAndRowsOfZerosComeBackBitForBit) {
  device_.holds = true;
  std::uint64_t key = 0;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    for (const Sheet& sheet : {Sheet{.flat = every(3, 11), .zero = {5, 6, 60}},
                               Sheet{.look = Look::kZeroRows, .zero = {0, 7, 8, 9, 63}},
                               Sheet{.look = Look::kColumns, .flat = every(4, 20)}}) {
      ++key;
      const Bytes source = sheet.values(type);
      device_.launches.clear();
      const Coded queued = encode(sheet.spec(type), source, key);
      ASSERT_EQ(queued.result.status, CodecStatus::kQueued) << "the first of a key is looked at";
      EXPECT_EQ(device_.launches.size(), sheet.look == Look::kColumns ? 3u : 2u);
      device_.run();
      Coded first = queued;
      first.result = codec_.verdict(queued.result.ticket, false);
      ASSERT_EQ(first.result.status, CodecStatus::kOk);
      EXPECT_EQ(sheet.wrong(source, restored(first), type), "");
      const Coded second = encode(sheet.spec(type), source, key);
      ASSERT_EQ(second.result.status, CodecStatus::kOk) << "then the key is sure";
      device_.run();
      EXPECT_EQ(sheet.wrong(source, restored(second), type), "");
    }
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
    EXPECT_EQ(sheet.wrong(source, restored(coded)), "");
  }
}

TEST_F(DeviceBlockCodecTest, MoreLinesThanASureKeyPredictsAreASurpriseAndThenHaveRoom) {
  const Sheet few{.flat = every(2, 20)}, many{.flat = every(14, 4)};
  EXPECT_EQ(settled(few.spec(), few.values()).result.status, CodecStatus::kOk);
  const Bytes source = many.values();
  EXPECT_EQ(settled(many.spec(), source).result.status, CodecStatus::kOk);
  EXPECT_EQ(surprises(), 0u) << "not yet known";
  const Coded next = settled(many.spec(), source);
  EXPECT_EQ(surprises(), 1u);
  ASSERT_EQ(next.result.status, CodecStatus::kOk);
  EXPECT_EQ(many.wrong(source, restored(next)), "");
  // Of fewer lines it keeps less.
  settled(few.spec(), few.values());
  EXPECT_LT(settled(few.spec(), few.values()).result.payload_bytes, next.result.payload_bytes);
}

TEST_F(DeviceBlockCodecTest, WhatIsPredictedFollowsTheSizeOfTheBlock) {
  const Sheet small{.rows = 64, .flat = every(4, 11)};
  EXPECT_EQ(settled(small.spec(), small.values()).result.status, CodecStatus::kOk);
  const Sheet large{.rows = 640, .flat = every(40, 11)};
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
    const Coded fourth = settled(spec, many, key);
    EXPECT_EQ(surprises(), before + 1);
    EXPECT_EQ(wrong(many, restored(fourth)), "");
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
       {std::size_t{1}, std::size_t{3}, std::size_t{62}, std::size_t{63}, std::size_t{64}}) {
    for (const ElementType type : kFloatTypes) {
      const std::size_t size = element_size(type);
      const Bytes source = normal(type, count * 1400);
      const BlockSpec spec{.type = type, .bits = 4};
      device_.launches.clear();
      const Coded coded = encode(spec, source, ++key, spans(count, size, source.size()));
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      EXPECT_EQ(device_.launches.size(), count > 62 ? 2u : 1u);
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

// ---- words ----

TEST_F(DeviceBlockCodecTest, WithoutWordsForVerdictsABlockIsHeldAndLaterOnesAreNot) {
  device_.holds = true;
  const Bytes source = integers<bool>(4096, [](std::size_t e) { return e % 2 == 0; });
  std::deque<Coded> queued;
  for (std::size_t i = 0; i < DeviceWords::kSlots - 1; ++i) {
    queued.push_back(encode({.type = ElementType::kBool}, source));
    ASSERT_EQ(queued.back().result.status, CodecStatus::kQueued);
  }
  const std::size_t launches = device_.launches.size();
  const std::vector<ByteRange> three{{0, 1000}, {1001, 2000}, {3000, 4000}};
  EXPECT_EQ(encode({.type = ElementType::kBool}, source, 1, three).result.status,
            CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kNoWords), 1u);
  EXPECT_EQ(device_.launches.size(), launches) << "nothing is queued";
  // The word that it had taken is there for one that needs no more.
  queued.push_back(encode({.type = ElementType::kBool}, source));
  EXPECT_EQ(queued.back().result.status, CodecStatus::kQueued);
  EXPECT_EQ(encode({.type = ElementType::kBool}, source).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kNoWords), 2u);
  // What needs no verdict goes on.
  const Bytes values = normal(ElementType::kFloat32, 1000);
  EXPECT_EQ(encode({.type = ElementType::kFloat32, .bits = 4}, values, 2).result.status,
            CodecStatus::kOk);
  device_.run();
  for (Coded& coded : queued) {
    coded.result = codec_.verdict(coded.result.ticket, false);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  }
  EXPECT_SAME_BITS(restored(queued.front()), source);
  EXPECT_EQ(words_left(), DeviceWords::kSlots);
}

TEST_F(DeviceBlockCodecTest, VerdictsMayComeOneByOneInAnyOrderOfAsking) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 2000);
  std::deque<Coded> queued;
  for (std::uint64_t i = 0; i < 6; ++i) {
    queued.push_back(encode({.type = ElementType::kFloat32, .bits = 2}, source, i));
  }
  for (std::size_t done = 1; done <= queued.size(); ++done) {
    ASSERT_TRUE(device_.run_next());
    for (std::size_t i = queued.size(); i-- > 0;) {
      EXPECT_EQ(codec_.is_decided(queued[i].result.ticket), i < done) << i << " of " << done;
    }
  }
  for (std::size_t i = queued.size(); i-- > 0;) {
    Coded& coded = queued[i];
    coded.result = codec_.verdict(coded.result.ticket, false);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_EQ(beyond_step(ElementType::kFloat32, 2, source, restored(coded)), "");
  }
}

TEST_F(DeviceBlockCodecTest, APayloadOfSeveralVerdictsIsDecidedByTheLast) {
  device_.holds = true;
  const Sheet sheet{.look = Look::kColumns, .flat = every(3, 20)};
  BlockSpec spec = sheet.spec();
  spec.near_zero = true;
  const Bytes source = floats(ElementType::kFloat32, sheet.rows * sheet.length, [&](std::size_t e) {
    return sheet.flat.contains(e % sheet.length) ? -3.0 : -2 - double(e * 31 % 512) / 8;
  });
  const Coded queued = encode(spec, source);
  ASSERT_EQ(queued.result.status, CodecStatus::kQueued);
  const std::size_t launches = device_.launches.size();
  EXPECT_EQ(launches, 4u) << "codes, near zero, and two for columns";
  for (std::size_t i = 0; i < launches; ++i) {
    EXPECT_FALSE(codec_.is_decided(queued.result.ticket)) << i;
    device_.run_next();
  }
  EXPECT_TRUE(codec_.is_decided(queued.result.ticket));
}

TEST_F(DeviceBlockCodecTest, TheWordOfAForgottenVerdictIsTheDevicesUntilItHasWrittenIt) {
  device_.holds = true;
  const BlockSpec spec{.type = ElementType::kBool};
  const Bytes source = integers<bool>(4096, [](std::size_t e) { return e % 2 == 0; });
  const Coded forgotten = encode(spec, source);
  ASSERT_EQ(forgotten.result.status, CodecStatus::kQueued);
  const void* const word = device_.launches.at(0).verdicts.at(0);
  codec_.forget(forgotten.result.ticket);
  EXPECT_EQ(codec_.verdict(forgotten.result.ticket, true).status, CodecStatus::kKeepRaw)
      << "nobody will ask";
  std::deque<Coded> others;
  do {
    others.push_back(encode(spec, source));
  } while (others.back().result.status == CodecStatus::kQueued);
  EXPECT_EQ(others.size() - 1, DeviceWords::kSlots - 1);
  for (std::size_t i = 1; i < device_.launches.size(); ++i) {
    ASSERT_NE(device_.launches[i].verdicts.at(0), word);
  }
  ASSERT_TRUE(device_.run_next());  // that of the forgotten one
  const Coded next = encode({.type = ElementType::kBool}, source, 2);
  ASSERT_EQ(next.result.status, CodecStatus::kQueued);
  EXPECT_EQ(device_.launches.back().verdicts.at(0), word);
  // It has taught its key all the same, and counts as no payload and no surprise.
  EXPECT_EQ(encode(spec, source).result.status, CodecStatus::kOk);
  EXPECT_EQ(surprises(), 0u);
  EXPECT_EQ(codec_.counts().totals.boolean.payloads, 1u);
}

TEST_F(DeviceBlockCodecTest, AForgottenPayloadThatIsRefusedIsNoSurprise) {
  device_.holds = true;
  const Bytes bytes = integers<std::uint8_t>(4096, [](std::size_t e) { return e % 3; });
  codec_.forget(encode({.type = ElementType::kBool}, bytes).result.ticket);
  device_.run();
  EXPECT_TRUE(encode({.type = ElementType::kBool}, bytes).held()) << "the key has learned of it";
  EXPECT_EQ(surprises(), 0u);
}

TEST_F(DeviceBlockCodecTest, ForgettingWhatIsNotThereDoesNothing) {
  codec_.forget({});
  codec_.forget({12345});
  EXPECT_TRUE(codec_.is_decided({12345}));
  EXPECT_EQ(codec_.verdict({12345}, true).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(device_.waits, 0);
}

TEST_F(DeviceBlockCodecTest, AVerdictThatIsWaitedForWaitsForItsStreamOnly) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 2000);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 2};
  Coded mine = encode(spec, source, 1, {}, StreamId{0x60});
  const Coded others = encode(spec, source, 2, {}, StreamId{0x70});
  mine.result = codec_.verdict(mine.result.ticket, true);
  ASSERT_EQ(mine.result.status, CodecStatus::kOk);
  EXPECT_EQ(device_.waits, 1);
  EXPECT_FALSE(codec_.is_decided(others.result.ticket));
  EXPECT_EQ(beyond_step(ElementType::kFloat32, 2, source, restored(mine)), "");
  EXPECT_EQ(codec_.verdict(others.result.ticket, true).status, CodecStatus::kOk);
  EXPECT_EQ(device_.waits, 1) << "what is decided is not waited for";
}

TEST_F(DeviceBlockCodecTest, OfADeviceThatNeverAnswersTheBlockIsHeld) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 2000);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 2};
  device_.never_answers = true;
  device_.wait_error = HeldDevice::kLaunchFailed;
  const Coded first = encode(spec, source, 1);
  EXPECT_EQ(codec_.verdict(first.result.ticket, true).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(codec_.verdict(first.result.ticket, true).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(device_.waits, 1) << "once";
  device_.gone = true;  // the driver has ended with the process
  device_.wait_error = 0;
  const Coded second = encode(spec, source, 2);
  EXPECT_EQ(second.result.status, CodecStatus::kKeepRaw);
  EXPECT_FALSE(life_.may_call());
  const int calls = device_.calls;
  EXPECT_EQ(encode(spec, source, 3).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(device_.calls, calls) << "never called again";
  EXPECT_EQ(held_for(DeviceHold::kNoDevice), 2u);
  device_.run();  // what it has of ours it may still write
}

// ---- launches that fail ----

class Failing : public DeviceBlockCodecTest {
 protected:
  // Codes, sides, elements near zero and columns: all that a payload may have.
  Failing() {
    spec_ = sheet_.spec();
    spec_.near_zero = true;
    spec_.sides = {Sides::Kind::kOpen, false, -4, kInfinity};
    for (std::size_t e = 0; e < sheet_.rows * sheet_.length; ++e) {
      set_value(ElementType::kFloat32, source_.data(), e,
                e % 2000 == 7 ? -0.25 : -2 - double(e * 31 % 512) / 64);
    }
  }
  const Sheet sheet_{.look = Look::kColumns};
  BlockSpec spec_;
  Bytes source_{sheet_.rows * sheet_.length * 4};
};

TEST_F(Failing, AnEncodeOfWhichALaunchFailsHoldsTheBlock) {
  std::size_t n = 0;
  for (;; ++n) {
    device_.launches_until_failure = n;
    const Coded coded = encode(spec_, source_, n);
    device_.launches_until_failure = HeldDevice::kNone;
    if (coded.result.status != CodecStatus::kKeepRaw) break;
    EXPECT_EQ(held_for(DeviceHold::kNoDevice), n + 1);
    ASSERT_LT(n, 10u);
  }
  EXPECT_EQ(n, 5u) << "codes, sides, near zero, and two for columns";
  EXPECT_TRUE(life_.may_call()) << "such an error is the job's to find";
  // Nobody knows what the device will do of these: their words, three each, stay taken. So do those
  // of the last one, whose verdict nobody has taken.
  EXPECT_EQ(words_left(), DeviceWords::kSlots - 6 * 3);
}

TEST_F(Failing, ADecodeOfWhichALaunchFailsSaysSo) {
  const Coded coded = settled(spec_, source_);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  ASSERT_EQ(coded.form().side_bits, 1);
  for (std::size_t n = 0; n < 4; ++n) {
    device_.launches_until_failure = n;
    restored(coded, kStream, CodecStatus::kFailed);
  }
  device_.launches_until_failure = 4;
  const Bytes back = restored(coded);
  EXPECT_EQ(other_side(ElementType::kFloat32, spec_.sides, source_, back), "");
  EXPECT_EQ(beyond_step(ElementType::kFloat32, 4, source_, back), "");
  for (std::size_t e = 7; e < sheet_.rows * sheet_.length; e += 2000) {
    EXPECT_EQ(value_at(ElementType::kFloat32, back.data(), e), -0.25);
  }
}

TEST_F(Failing, ADriverThatSaysThatItIsGoneIsNotCalledAgain) {
  const Coded coded = settled(spec_, source_);
  device_.launches_until_failure = 0;
  device_.launch_error = allocator::cuda::kDeinitialized;
  EXPECT_EQ(encode(spec_, source_, 2).result.status, CodecStatus::kKeepRaw);
  EXPECT_FALSE(life_.may_call());
  const int calls = device_.calls;
  const std::size_t launches = device_.launches.size();
  restored(coded, kStream, CodecStatus::kFailed);
  encode(spec_, source_, 3);
  EXPECT_EQ(device_.calls, calls);
  EXPECT_EQ(device_.launches.size(), launches);
}

TEST_F(DeviceBlockCodecTest, EachStreamHasWordsOfItsOwnAndBeyondTheLastBlocksAreHeld) {
  const Bytes source = normal(ElementType::kFloat32, 500);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4};
  for (std::uint64_t stream = 1; stream < DeviceWords::kWorkspaces; ++stream) {
    ASSERT_EQ(encode(spec, source, 1, {}, StreamId{0x1000 + stream}).result.status,
              CodecStatus::kOk);
  }
  EXPECT_EQ(encode(spec, source, 1, {}, StreamId{0x9000}).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kNoDevice), 1u);
  EXPECT_EQ(encode(spec, source).result.status, CodecStatus::kOk);
}

// ---- made ready ----

class Opening : public ::testing::Test {
 protected:
  DeviceCodec::Opened open() { return codec_.open(StreamId{0x50}, why_); }
  // A block that any device that is ready would code.
  bool codes() {
    const Bytes source = normal(ElementType::kFloat32, 2000);
    const ByteRange all{0, source.size()};
    EncodeRequest request;
    request.source = const_cast<unsigned char*>(source.data());
    request.source_bytes = source.size();
    request.ranges = &all;
    request.range_count = 1;
    request.choice = BlockSpec{.type = ElementType::kFloat32, .bits = 4}.pack();
    return codec_.plan(request).room != 0;
  }
  HeldDevice device_;
  const allocator::cuda::Driver driver_ = HeldDevice::driver();
  allocator::cuda::DriverLife life_;
  DeviceBlockCodec codec_{device_, driver_, life_, 0};
  std::string why_;
};

TEST_F(Opening, WithoutAContextIsNotYet) {
  device_.has_context = false;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNotYet);
  EXPECT_EQ(open(), DeviceCodec::Opened::kNotYet);
  EXPECT_FALSE(codes());
  device_.has_context = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kYes);
  EXPECT_TRUE(codes());
  EXPECT_EQ(why_, "");
}

TEST_F(Opening, TakesABlockThereAndBackAndWaitsForItOnce) {
  device_.holds = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kYes) << why_;
  EXPECT_EQ(device_.waits, 1);
  ASSERT_EQ(device_.launches.size(), 2u);
  EXPECT_EQ(device_.launches[0].kernel, "pleat_encode_float32_4");
  EXPECT_EQ(device_.launches[1].kernel, "pleat_decode_float32_4");
}

TEST_F(Opening, EndsWhereTheDeviceCodesOtherBytes) {
  device_.damages = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's block comes back other than the CPU codes it");
  EXPECT_FALSE(codes());
}

TEST_F(Opening, EndsWhereTheDeviceDoesNotAnswer) {
  device_.holds = device_.never_answers = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's block comes back other than the CPU codes it");
  device_.run();
}

TEST_F(Opening, EndsWhereTheKernelsFail) {
  device_.wait_error = 700;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's kernels fail with error 700");
}

TEST_F(Opening, EndsWhereALaunchFails) {
  device_.launches_until_failure = 1;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's kernels fail with error 719");
  EXPECT_FALSE(codes());
}

TEST_F(Opening, EndsWhereTheDeviceCannotRunTheKernels) {
  device_.preparing = compress::LaunchStatus::kNoImage;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "Pleat has no kernels that this device can run");
}

TEST_F(Opening, EndsWhereTheDriverRefusesTheKernels) {
  device_.preparing = compress::LaunchStatus::kFailed;
  device_.launch_error = 200;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the driver refuses Pleat's kernels with error 200");
}

TEST_F(Opening, EndsWhereThereIsNoMemoryForWords) {
  device_.no_pinned_memory = 2;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the driver gives no memory for Pleat's words, error 2");
  EXPECT_FALSE(codes());
}

// ---- threads ----

TEST_F(DeviceBlockCodecTest, ThreadsCodeSideBySideAndEveryPayloadIsRight) {
  device_.holds = true;
  std::atomic<bool> over{false};
  std::thread worker([&] {  // the device
    while (!over || device_.run_next()) {
      if (!device_.run_next()) std::this_thread::yield();
    }
  });
  const Bytes mask =
      floats(ElementType::kFloat32, 1024, [](std::size_t e) { return double(e % 2); });
  const Bytes values = normal(ElementType::kFloat32, 1024, 2);
  const Bytes numbers = integers<std::int32_t>(1024, [](std::size_t e) { return e % 100; });
  const auto job = [&](std::uint64_t thread) {
    std::mt19937_64 random(thread);
    const StreamId stream{0x100 + thread};
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t kind = random() % 4;
      const BlockSpec specs[] = {{.type = ElementType::kFloat32},
                                 {.type = ElementType::kFloat32, .bits = 4, .sides = kSignOfRelu},
                                 {.type = ElementType::kInt32},
                                 {.type = ElementType::kFloat32, .bits = 2}};
      const Bytes& source = kind == 0 ? mask : kind == 2 ? numbers : values;
      // Keys are shared, and asked for different things.
      Coded coded = encode(specs[kind], source, random() % 3, {}, stream);
      if (coded.result.status == CodecStatus::kQueued) {
        const auto ticket = coded.result.ticket;
        if (random() % 8 == 0) {
          codec_.forget(ticket);
          continue;
        }
        if (random() % 2 == 0) {
          while (!codec_.is_decided(ticket)) std::this_thread::yield();
        }
        coded.result = codec_.verdict(ticket, true);
      }
      if (coded.result.status != CodecStatus::kOk) continue;
      Bytes target(source.size());
      EXPECT_EQ(codec_.decode({coded.payload->data(), coded.result.payload_bytes, coded.result.form,
                               coded.ranges.data(), coded.ranges.size()},
                              target.data(), target.size(), stream),
                CodecStatus::kOk);
      driver_.stream_synchronize(reinterpret_cast<void*>(stream.value));
      if (kind == 0 || kind == 2) {
        EXPECT_SAME_BITS(target, source);
      } else {
        EXPECT_EQ(beyond_step(ElementType::kFloat32, kind == 1 ? 4 : 2, source, target), "");
        if (kind == 1) {
          EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, source, target), "");
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 3; ++t) threads.emplace_back(job, t);
  for (std::thread& thread : threads) thread.join();
  over = true;
  worker.join();
  device_.run();
  EXPECT_EQ(words_left(), DeviceWords::kSlots) << "every word has come back";
}

TEST_F(DeviceBlockCodecTest, WhileAForkIsUnderWayNobodyElseIsInTheCodec) {
  const Bytes source = normal(ElementType::kFloat32, 2000);
  std::atomic<bool> done{false};
  codec_.lock_for_fork();
  std::thread other([&] {
    encode({.type = ElementType::kFloat32, .bits = 2}, source);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done);
  codec_.unlock_after_fork();
  other.join();
  EXPECT_TRUE(done);
}

// ---- lessons ----

TEST(KeyLessons, WhenThereAreTooManyKeysAllAreForgottenButThoseThatAreThereGoOn) {
  constexpr std::uint64_t kMost = 1u << 16;
  KeyLessons lessons;
  const CodecWords choice{5};
  const auto is_sure = [&](std::uint64_t key) {
    return lessons.ask(TensorKey{key}, choice).lesson.sure;
  };
  for (std::uint64_t key = 0; key < kMost; ++key) {
    EXPECT_FALSE(lessons.ask(TensorKey{key}, choice).pauses);
    lessons.learn(TensorKey{key}, choice, [](KeyLesson& lesson) { lesson.sure = true; });
  }
  EXPECT_TRUE(is_sure(0));
  EXPECT_TRUE(is_sure(kMost - 1)) << "a key that is there is no further one";
  EXPECT_FALSE(is_sure(kMost));
  EXPECT_FALSE(is_sure(0));
  EXPECT_FALSE(is_sure(kMost - 1));
}

TEST(KeyLessons, WhatAKeyHasLearnedIsOfWhatItIsAskedFor) {
  KeyLessons lessons;
  const TensorKey key{1};
  const auto learn = [&](CodecWords choice) {
    lessons.learn(key, choice, [](KeyLesson& lesson) { lesson.sure = true; });
  };
  learn({5});  // a key that nobody has asked about
  EXPECT_FALSE(lessons.ask(key, {5}).lesson.sure);
  learn({5, 1});
  EXPECT_FALSE(lessons.ask(key, {5}).lesson.sure);
  learn({5});
  EXPECT_TRUE(lessons.ask(key, {5}).lesson.sure);
  EXPECT_FALSE(lessons.ask(key, {5, 1}).lesson.sure);
  EXPECT_FALSE(lessons.ask(key, {5}).lesson.sure);
}

}  // namespace
}  // namespace pleat::bridge::cuda

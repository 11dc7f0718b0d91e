// Shared by the tests of a CUDA device's codec: content, its expected values after a restore, and a
// codec on a device of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "tests/compress/support.h"
#include "tests/torch_bridge/held_device.h"
#include "torch_bridge/cuda/device_block_codec.h"

namespace pleat::bridge::cuda::testing {

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

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr Sides kSignOfRelu{Sides::Kind::kOpen, false, 0, kInfinity};  // 0 < x

// ---- content ----

inline Bytes copy_of(const Bytes& from) {
  Bytes to(from.size());
  std::memcpy(to.data(), from.data(), from.size());
  return to;
}

// value(e) for each element.
template <class Value>
inline Bytes floats(ElementType type, std::size_t elements, Value&& value) {
  Bytes to(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) set_value(type, to.data(), e, value(e));
  return to;
}
inline Bytes normal(ElementType type, std::size_t elements, double scale = 1, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw;
  return floats(type, elements, [&](std::size_t) { return scale * draw(random); });
}
// Groups that all span `range`, so that their steps are known.
inline Bytes spanning(double range, std::size_t elements = 2048, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> draw(-range / 2, range / 2);
  return floats(ElementType::kFloat32, elements, [&](std::size_t e) {
    return e % 256 == 0 ? -range / 2 : e % 256 == 1 ? range / 2 : draw(random);
  });
}
template <class Integer, class Value>
inline Bytes integers(std::size_t elements, Value&& value) {
  Bytes to(elements * sizeof(Integer));
  for (std::size_t e = 0; e < elements; ++e) {
    const auto x = static_cast<Integer>(value(e));
    std::memcpy(to.data() + e * sizeof x, &x, sizeof x);
  }
  return to;
}

// ---- what must come back ----

inline std::string bits_differ(const Bytes& a, const Bytes& b) {
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
inline std::string beyond_step(ElementType type, unsigned bits, const unsigned char* source,
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
inline std::string beyond_step(ElementType type, unsigned bits, const Bytes& source,
                               const Bytes& restored) {
  return beyond_step(type, bits, source.data(), restored.data(), source.size() / element_size(type),
                     [](std::size_t) { return false; });
}

inline int side_of(const Sides& sides, double x) {
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
inline std::string other_side(ElementType type, const Sides& sides, const unsigned char* source,
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
inline std::string other_side(ElementType type, const Sides& sides, const Bytes& source,
                              const Bytes& restored) {
  return other_side(type, sides, source.data(), restored.data(),
                    source.size() / element_size(type));
}

// The payload as the host writes it.
inline Bytes on_host(const BlockSpec& spec, const unsigned char* source, std::size_t elements,
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
inline Bytes decoded_on_host(const unsigned char* payload, std::size_t bytes,
                             std::size_t target_bytes) {
  Bytes aligned(bytes), target(target_bytes);
  std::memcpy(aligned.data(), payload, bytes);
  EXPECT_EQ(compress::decode(aligned.data(), bytes, target.data(), target_bytes,
                             compress::serial_executor()),
            compress::Status::kOk);
  return target;
}

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
  // Noise of groups that are rotated has no bound.
  std::string wrong(const Bytes& source, const Bytes& back,
                    ElementType type = ElementType::kFloat32,
                    Transform transform = Transform::kNone) const {
    const std::size_t size = element_size(type);
    for (std::size_t e = 0; e < rows * length; ++e) {
      const bool exact = flat.contains(line_of(e)) || zero.contains(line_of(e));
      if (exact && std::memcmp(source.data() + e * size, back.data() + e * size, size) != 0) {
        return "element " + std::to_string(e) + " of line " + std::to_string(line_of(e));
      }
    }
    return transform == Transform::kNone ? beyond_step(type, 4, source, back) : std::string();
  }
};

inline std::set<std::size_t> every(std::size_t count, std::size_t distance) {
  std::set<std::size_t> lines;
  for (std::size_t i = 0; i < count; ++i) lines.insert(i * distance + 1);
  return lines;
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
               std::vector<ByteRange> ranges = {}, StreamId stream = kStream, bool closed = false) {
    Coded coded;
    coded.ranges = ranges.empty() ? std::vector<ByteRange>{{0, source.size()}} : std::move(ranges);
    coded.source_bytes = source.size();
    coded.nonce = nonce_.fetch_add(1000);
    EncodeRequest request;
    if (!closed) request.source = const_cast<unsigned char*>(source.data());
    request.closed = closed;
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
    request.source = const_cast<unsigned char*>(source.data());
    if (plan.room == 0) return coded;
    coded.payload = std::make_shared<Bytes>(plan.room);
    const auto scratch = std::make_shared<Bytes>(plan.scratch);
    if (plan.scratch != 0) request.scratch = scratch->data();
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      payloads_.insert(payloads_.end(), {coded.payload, scratch});  // the device's until it is done
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
  // Only the bytes of the payload are read, and all of the target is written.
  Bytes restored(const Coded& coded, StreamId stream = kStream,
                 CodecStatus expected = CodecStatus::kOk) {
    EXPECT_TRUE(coded.payload->guard_intact()) << "written beyond the room";
    Bytes payload(coded.result.payload_bytes);
    std::memcpy(payload.data(), coded.payload->data(), payload.size());
    Bytes target(coded.source_bytes);
    EXPECT_EQ(codec_.decode({{payload.data(), payload.size(), coded.result.form,
                              coded.ranges.data(), coded.ranges.size()},
                             target.data(),
                             target.size(),
                             stream}),
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
      all.push_back(encode({.type = ElementType::kBool}, source, 100'000 + all.size()));
    } while (all.back().result.status == CodecStatus::kQueued);
    device_.run();
    device_.holds = before;
    for (const Coded& coded : all) codec_.forget(coded.result.ticket);
    encode({.type = ElementType::kBytes}, source, 99'999);  // late verdicts are taken
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

}  // namespace pleat::bridge::cuda::testing

// Noise that the codec of a CUDA device adds to blocks that were restored, and where the host finds
// the codes of a payload.
#include <algorithm>
#include <cstring>
#include <vector>

#include "compress/block/block_payload.h"
#include "compress/block/disturb.h"
#include "tests/torch_bridge/device_codec_support.h"
#include "torch_bridge/core/codec_adapter.h"

namespace pleat::bridge::cuda {
namespace {

using namespace testing;
using allocator::DisturbanceWords;
using allocator::PayloadView;
using compress::block::BlockForm;
using compress::block::BlockShape;
using compress::block::BlockSource;
using compress::block::Disturbance;

constexpr std::size_t kPiece = 1 << 20;  // elements
constexpr std::size_t kLaunches = 5;     // of a piece

class DeviceDisturb : public DeviceBlockCodecTest {
 protected:
  // The block, disturbed in place. Its scratch memory is the device's until it is done.
  CodecStatus disturb(const PayloadView& from, Bytes& block, const BlockSpec& spec,
                      const Disturbance& how, std::uint64_t function = 0) {
    const DisturbanceWords words = pack_disturbance(spec, how);
    allocator::DecodeRequest request{.payload = from,
                                     .target = block.data(),
                                     .target_bytes = block.size(),
                                     .stream = kStream,
                                     .noise = &words,
                                     .function = function};
    scratch_.push_back(std::make_unique<Bytes>(codec_.decode_scratch(request)));
    if (scratch_.back()->size() != 0) request.scratch = scratch_.back()->data();
    return codec_.decode(request);
  }
  std::size_t scratch_of(std::size_t bytes, const BlockSpec& spec, const Disturbance& how) {
    const DisturbanceWords words = pack_disturbance(spec, how);
    return codec_.decode_scratch({.target_bytes = bytes, .noise = &words});
  }
  Bytes raw_with_noise(const Bytes& source, const BlockSpec& spec, const Disturbance& how,
                       std::vector<ByteRange> ranges = {}) {
    if (ranges.empty()) ranges = {{0, source.size()}};
    Bytes block = copy_of(source);
    PayloadView raw;
    raw.ranges = ranges.data();
    raw.range_count = ranges.size();
    EXPECT_EQ(disturb(raw, block, spec, how), CodecStatus::kOk);
    device_.run();
    EXPECT_TRUE(block.guard_intact() && scratch_.back()->guard_intact());
    return block;
  }
  static Bytes with_noise_of_host(const Bytes& source, const BlockSpec& spec,
                                  const Disturbance& how,
                                  const std::vector<ByteRange>& ranges = {}) {
    Bytes block = copy_of(source);
    std::vector<compress::block::ByteRange> of_host;
    for (const ByteRange& range : ranges) of_host.push_back({range.begin, range.end});
    if (ranges.empty()) of_host = {{0, source.size()}};
    EXPECT_TRUE(compress::block::disturb_block(
        block.data(), BlockSource{block.data(), block.size(), of_host.data(), of_host.size()}, spec,
        how, compress::serial_executor()));
    return block;
  }
  // A payload's block as it is restored, and with noise.
  struct Restored {
    Bytes clean, noisy;
  };
  Restored restored_with_noise(const Coded& coded, const BlockSpec& spec, const Disturbance& how) {
    Bytes clean = restored(coded), noisy = copy_of(clean);
    Bytes payload(coded.result.payload_bytes);
    std::memcpy(payload.data(), coded.payload->data(), payload.size());
    EXPECT_EQ(disturb({payload.data(), payload.size(), coded.result.form, coded.ranges.data(),
                       coded.ranges.size()},
                      noisy, spec, how),
              CodecStatus::kOk);
    device_.run();
    EXPECT_TRUE(noisy.guard_intact() && scratch_.back()->guard_intact());
    return {std::move(clean), std::move(noisy)};
  }
  static double noise(const Bytes& a, const Bytes& b) {
    double sum = 0;
    for (std::size_t e = 0; e < a.size() / 4; ++e) {
      const double d = value_at(ElementType::kFloat32, a.data(), e) -
                       value_at(ElementType::kFloat32, b.data(), e);
      sum += d * d;
    }
    return sum;
  }

 private:
  std::vector<std::unique_ptr<Bytes>> scratch_;
};

// But for what sums are rounded by.
std::string differ(ElementType type, const Bytes& a, const Bytes& b) {
  const double unit = std::ldexp(4, type == ElementType::kFloat32    ? -24
                                    : type == ElementType::kBFloat16 ? -8
                                                                     : -11);
  for (std::size_t e = 0; e < a.size() / element_size(type); ++e) {
    const double x = value_at(type, a.data(), e), y = value_at(type, b.data(), e);
    if (!(std::fabs(x - y) <= unit * std::max(1.0, std::fabs(x)))) {
      return "element " + std::to_string(e) + ": " + std::to_string(x) + ", " + std::to_string(y);
    }
  }
  return {};
}

TEST_F(DeviceDisturb, OfRawBytesIsTheHostsAndNobodyWaits) {
  device_.holds = true;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type);
    const Bytes source = normal(type, 30'000);
    const std::vector<ByteRange> spans{
        {0, 5000 * size}, {5001 * size, 5020 * size}, {9000 * size, 29'998 * size}};
    for (const std::uint8_t bits : {1, 2, 3, 4, 6, 8}) {
      const Disturbance how{bits, -0.5f, 99};
      const BlockSpec spec{.type = type, .bits = 4, .sides = kSignOfRelu};
      device_.launches.clear();
      const Bytes whole = raw_with_noise(source, spec, how);
      EXPECT_EQ(device_.launches.size(), kLaunches);
      EXPECT_EQ(differ(type, whole, with_noise_of_host(source, spec, how)), "");
      EXPECT_NE(bits_differ(whole, source), "");
      EXPECT_EQ(other_side(type, kSignOfRelu, source, whole), "");
      device_.launches.clear();
      EXPECT_EQ(differ(type, raw_with_noise(source, spec, how, spans),
                       with_noise_of_host(source, spec, how, spans)),
                "");
      EXPECT_EQ(device_.launches.size(), 2 * kLaunches) << "one span is too short";
    }
  }
  EXPECT_EQ(device_.waits, 0);
  EXPECT_EQ(words_left(), DeviceWords::kSlots) << "nothing is asked of the device";
}

TEST_F(DeviceDisturb, GoesPieceByPieceWithLittleMemory) {
  const std::size_t elements = 2 * kPiece + 1000;
  const Bytes source = normal(ElementType::kFloat32, elements);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4};
  const Disturbance how{4, 1, 99};
  EXPECT_LT(scratch_of(source.size(), spec, how), 9u << 20);
  EXPECT_LT(scratch_of(std::size_t{1} << 40, spec, how), 9u << 20);
  const Bytes got = raw_with_noise(source, spec, how);
  EXPECT_EQ(device_.launches.size(), 3 * kLaunches);
  const Bytes host = with_noise_of_host(source, spec, how);
  std::size_t others = 0;
  for (std::size_t e = 0; e < kPiece; ++e) {
    const double apart = value_at(ElementType::kFloat32, got.data(), e) -
                         value_at(ElementType::kFloat32, host.data(), e);
    others += std::fabs(apart) > 1e-5 ? 1 : 0;
  }
  EXPECT_EQ(others, 0u) << "the first piece is the host's";
  EXPECT_NEAR(noise(got, source), noise(host, source), 0.01 * noise(host, source));
  // No two pieces have the same noise. Those of one group number in both would be alike.
  std::size_t alike = 0;
  for (std::size_t e = 0; e < 1000; ++e) {
    const auto noise_at = [&](std::size_t at) {
      return value_at(ElementType::kFloat32, got.data(), at) -
             value_at(ElementType::kFloat32, source.data(), at);
    };
    alike += noise_at(e) == noise_at(kPiece + e) ? 1 : 0;
  }
  EXPECT_LT(alike, 10u);
  EXPECT_EQ(beyond_step(ElementType::kFloat32, 4, source, got), "");
}

// Codes of a group that is restored without dither would come back as they are.
TEST_F(DeviceDisturb, AddsNoiseToWhatAPayloadOfTheSameWidthHasGivenBack) {
  std::uint64_t key = 0;
  for (const std::uint8_t bits : {2, 3, 4, 6, 8}) {
    const Bytes source =
        floats(ElementType::kFloat32, 20'000,
               [&, x = normal(ElementType::kFloat32, 20'000)](std::size_t e) {
                 return std::max(value_at(ElementType::kFloat32, x.data(), e), 0.0);
               });
    const BlockSpec spec{.type = ElementType::kFloat32, .bits = bits};
    const Coded coded = settled(spec, source, ++key);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    const auto [clean, noisy] = restored_with_noise(coded, spec, {bits, 1, 99});
    const double of_codec = noise(source, clean);
    EXPECT_NEAR(noise(noisy, clean), of_codec, (bits == 2 ? 0.3 : 0.15) * of_codec) << int(bits);
    for (std::size_t e = 0; e < 20'000; ++e) {
      ASSERT_EQ(value_at(ElementType::kFloat32, source.data(), e) > 0,
                value_at(ElementType::kFloat32, noisy.data(), e) > 0);
    }
  }
}

TEST_F(DeviceDisturb, WhatAPayloadKeepsExactStaysExact) {
  std::uint64_t key = 0;
  const Disturbance how{4, -1, 99};
  for (const Sheet& sheet : {Sheet{.flat = every(2, 11), .zero = {5, 6, 60}},
                             Sheet{.look = Look::kParts, .zero = {0, 7, 8, 9, 63}},
                             Sheet{.look = Look::kColumns, .flat = every(2, 20)}}) {
    const Bytes source = sheet.values();
    const Coded coded = settled(sheet.spec(), source, ++key);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    const auto [clean, noisy] = restored_with_noise(coded, sheet.spec(), how);
    EXPECT_GT(noise(clean, noisy), 0.5 * noise(source, clean));
    for (std::size_t e = 0; e < sheet.rows * sheet.length; ++e) {
      if (sheet.flat.contains(sheet.line_of(e)) || sheet.zero.contains(sheet.line_of(e))) {
        ASSERT_EQ(std::memcmp(noisy.data() + 4 * e, source.data() + 4 * e, 4), 0) << e;
      }
    }
  }
  // Elements near zero, and sides.
  const BlockSpec near{.type = ElementType::kFloat32, .bits = 4, .near_zero = true};
  const Bytes logarithms = floats(ElementType::kFloat32, 20'000, [](std::size_t e) {
    return e % 5000 == 3 ? -0.001 * double(e % 97 + 1) : -1.5 - double(e * 31 % 512) / 64;
  });
  settled(near, logarithms, ++key);
  const Coded coded = settled(near, logarithms, key);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  const auto [clean, noisy] = restored_with_noise(coded, near, how);
  EXPECT_GT(noise(clean, noisy), 0.5 * noise(logarithms, clean));
  for (std::size_t e = 3; e < 20'000; e += 5000) {
    EXPECT_EQ(std::memcmp(noisy.data() + 4 * e, logarithms.data() + 4 * e, 4), 0) << e;
  }
  const Sides three{Sides::Kind::kThree, false, -0.5, 0.5};
  const BlockSpec sided{.type = ElementType::kFloat32, .bits = 2, .sides = three};
  const Bytes source = normal(ElementType::kFloat32, 20'000);
  const Coded of_sides = settled(sided, source, ++key);
  ASSERT_EQ(of_sides.result.status, CodecStatus::kOk);
  EXPECT_EQ(other_side(ElementType::kFloat32, three, source,
                       restored_with_noise(of_sides, sided, how).noisy),
            "");
}

// Of bytes that no payload stands for, too: by the steps that the noise has.
TEST_F(DeviceDisturb, FlatLinesOfRawBytesStayExactPieceByPiece) {
  const Disturbance how{4, 1, 99};
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    const std::size_t size = element_size(type);
    for (const Sheet& sheet : {Sheet{.flat = every(2, 11), .zero = {5, 6, 60}},
                               Sheet{.look = Look::kColumns, .flat = every(2, 20)},
                               Sheet{.rows = 12'000, .flat = every(1000, 11)},
                               Sheet{.rows = 12'000, .look = Look::kColumns, .flat = {3, 50}}}) {
      const Bytes source = sheet.values(type);
      device_.launches.clear();
      const Bytes got = raw_with_noise(source, sheet.spec(type), how);
      const std::size_t pieces = sheet.rows > 10'000 ? 2 : 1;
      EXPECT_EQ(device_.launches.size(),
                pieces * (kLaunches + (sheet.look == Look::kColumns ? 3 : 4)));
      std::size_t moved = 0, others = 0;
      for (std::size_t e = 0; e < sheet.rows * sheet.length; ++e) {
        const bool same = std::memcmp(got.data() + e * size, source.data() + e * size, size) == 0;
        if (sheet.flat.contains(sheet.line_of(e)) || sheet.zero.contains(sheet.line_of(e))) {
          ASSERT_TRUE(same) << "element " << e << " of line " << sheet.line_of(e);
        } else {
          moved += same ? 0 : 1;
          ++others;
        }
      }
      EXPECT_GT(moved, others / 2);
      if (pieces == 1) {
        EXPECT_EQ(differ(type, got, with_noise_of_host(source, sheet.spec(type), how)), "");
      }
    }
  }
}

TEST_F(DeviceDisturb, GroupsOfTooWideAStepStayAsTheyAre) {
  const Bytes source = floats(ElementType::kFloat32, 4096, [](std::size_t e) {
    return double(e * 7919 % 1000) / (e / 256 % 2 == 0 ? 100 : 1000);  // steps of 2/3 and 1/15
  });
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4, .steps = Steps::kCurved};
  const Bytes got = raw_with_noise(source, spec, {4, 1, 99});
  for (std::size_t e = 0; e < 4096; e += 256) {
    EXPECT_EQ(std::memcmp(got.data() + 4 * e, source.data() + 4 * e, 1024) == 0, e / 256 % 2 == 0);
  }
}

TEST_F(DeviceDisturb, WhereThereIsNothingToDoNothingIsQueued) {
  const Bytes source = normal(ElementType::kFloat32, 4096);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4};
  BlockSpec sides = spec, nothing = spec, bytes = spec, odd = spec;
  sides.kept = Kept::kSides;
  sides.sides = kSignOfRelu;
  nothing.kept = Kept::kNothing;
  bytes.type = ElementType::kInt32;
  odd.type = ElementType::kBFloat16;
  odd.sides = {Sides::Kind::kOpen, false, 0.1f, kInfinity};  // no bfloat16
  const Disturbance how{4, 1, 99}, no_bits{0, 1, 99}, no_amplitude{4, 0, 99};
  for (const auto& [what, by] : {std::pair{sides, how},
                                 {nothing, how},
                                 {bytes, how},
                                 {odd, how},
                                 {spec, no_bits},
                                 {spec, no_amplitude}}) {
    EXPECT_EQ(scratch_of(source.size(), what, by), 0u);
    EXPECT_SAME_BITS(raw_with_noise(source, what, by), source);
  }
  EXPECT_TRUE(device_.launches.empty());
  // An odd range has no lossy form.
  EXPECT_SAME_BITS(raw_with_noise(source, spec, how, {{2, 4002}}), source);
  EXPECT_TRUE(device_.launches.empty());
}

TEST_F(DeviceDisturb, WhatCannotBeDoneFails) {
  Bytes block = normal(ElementType::kFloat32, 4096);
  const ByteRange all{0, block.size()};
  PayloadView raw;
  raw.ranges = &all;
  raw.range_count = 1;
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4};
  const Disturbance how{4, 1, 99};
  EXPECT_EQ(disturb(raw, block, spec, how, 77), CodecStatus::kFailed) << "nothing is recomputed";
  const DisturbanceWords words = pack_disturbance(spec, how);
  EXPECT_EQ(codec_.decode({.payload = raw,
                           .target = block.data(),
                           .target_bytes = block.size(),
                           .stream = kStream,
                           .noise = &words}),
            CodecStatus::kFailed)
      << "it needs scratch memory";
  EXPECT_TRUE(device_.launches.empty());
  for (std::size_t launch = 0; launch < kLaunches; ++launch) {
    device_.launches_until_failure = launch;
    EXPECT_EQ(disturb(raw, block, spec, how), CodecStatus::kFailed);
  }
  device_.launches_until_failure = HeldDevice::kNone;
  device_.has_context = false;
  EXPECT_EQ(disturb(raw, block, spec, how), CodecStatus::kFailed);
}

// ---- codes for the host ----

TEST_F(DeviceDisturb, TheCodesOfAPayloadAreWhereTheHostIsTold) {
  std::uint64_t key = 0;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type);
    const Bytes source = normal(type, 20'000);
    const std::vector<ByteRange> spans{{0, 5000 * size}, {9000 * size, 19'998 * size}};
    for (const std::uint8_t bits : {2, 4}) {
      const BlockSpec spec{
          .type = type, .bits = bits, .sides = {Sides::Kind::kThree, false, -1, 1}};
      const Coded coded = settled(spec, source, ++key, spans);
      ASSERT_EQ(coded.result.status, CodecStatus::kOk);
      const Bytes back = restored(coded);
      const PayloadView view{coded.payload->data(), coded.result.payload_bytes, coded.result.form,
                             coded.ranges.data(), coded.ranges.size()};
      const std::vector<CodedSpan> found = codec_.coded_spans(view);
      ASSERT_EQ(found.size(), 2u);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const CodedSpan& span = found[i];
        ASSERT_LE(span.offset + span.bytes, coded.result.payload_bytes);
        EXPECT_GT(span.beside_bytes, 0u) << "the sides";
        EXPECT_EQ(span.form.shape, BlockShape::kSingle);
        EXPECT_EQ(span.form.bits, bits);
        Bytes codes(span.bytes), values(span.span_bytes);
        std::memcpy(codes.data(), coded.payload->data() + span.offset, span.bytes);
        BlockForm form = span.form;
        form.nonce = coded.nonce + i;
        compress::PayloadInfo info;
        ASSERT_EQ(compress::inspect(codes.data(), codes.size(), &info), compress::Status::kOk);
        ASSERT_LE(info.payload_bytes, codes.size());
        EXPECT_TRUE(bits < 3 || info.payload_bytes == codes.size());
        ASSERT_EQ(
            compress::block::decode_block(form, codes.data(), info.payload_bytes, values.data(),
                                          values.size(), compress::serial_executor()),
            compress::Status::kOk);
        // But for those that have gone back to their side.
        std::size_t differ = 0;
        for (std::size_t e = 0; e < span.form.elements; ++e) {
          differ +=
              value_at(type, values.data(), e) != value_at(type, back.data() + spans[i].begin, e)
                  ? 1
                  : 0;
        }
        EXPECT_LT(differ, span.form.elements / (bits == 2 ? 4 : 20));
      }
    }
  }
  const Bytes mask =
      floats(ElementType::kFloat32, 4000, [](std::size_t e) { return double(e % 2); });
  const Coded exact = settled({.type = ElementType::kFloat32}, mask, ++key);
  ASSERT_EQ(exact.result.status, CodecStatus::kOk);
  EXPECT_TRUE(codec_
                  .coded_spans({exact.payload->data(), exact.result.payload_bytes,
                                exact.result.form, exact.ranges.data(), exact.ranges.size()})
                  .empty());
}

}  // namespace
}  // namespace pleat::bridge::cuda

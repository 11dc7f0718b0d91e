// Encoding in place by the CUDA kernels' own code, its blocks in any order.
#include "compress/cuda/device_codec.h"
#include "compress/format.h"
#include "tests/compress/emulated_payload.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::test {
namespace {

// A span encoded over itself by `blocks` blocks at a time, whose turns `pick` chooses.
struct InPlaceSpan {
  Bytes block;
  cuda::Verdict verdict;
  InPlaceTurns turns;
};
InPlaceSpan encode_in_place(ElementType type, unsigned bits, const Bytes& source, unsigned blocks,
                            const std::function<unsigned(unsigned)>& pick) {
  InPlaceSpan span{Bytes(source.size()), {}, {}};
  std::memcpy(span.block.data(), source.data(), source.size());
  cuda::DeviceTask task;
  task.type = type;
  task.bits = static_cast<std::uint8_t>(bits);
  task.elements = source.size() / element_size(type);
  task.source = task.target = span.block.data();
  EXPECT_TRUE(cuda::device_can_encode_in_place(task));
  Bytes scratch(cuda::device_scratch_bytes(task));
  cuda::Job job{};
  job.source = job.target = span.block.data();
  job.verdict = &span.verdict;
  job.elements = task.elements;
  job.nonce = kNonce;
  job.scratch = scratch.data();
  job.width = bits;
  emulate_survey(type, job);
  EXPECT_TRUE(emulate_in_place({type, bits}, job, blocks, pick, &span.turns)) << "a deadlock";
  EXPECT_TRUE(span.block.guard_intact() && scratch.guard_intact());
  return span;
}
void expect_in_place(ElementType type, unsigned bits, const Bytes& source, const InPlaceSpan& span,
                     const std::string& what) {
  const auto expected =
      reference_payload(type, bits, source.size() / element_size(type), source.data());
  const bool fits = !expected.empty() && expected.size() <= source.size();
  ASSERT_EQ(span.verdict.outcome, fits ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw) << what;
  EXPECT_EQ(span.verdict.payload_bytes, fits ? expected.size() : 0) << what;
  const unsigned char* const wanted = fits ? expected.data() : source.data();
  EXPECT_EQ(std::memcmp(span.block.data(), wanted, fits ? expected.size() : source.size()), 0)
      << what;
}

// Whoever of the blocks is faster, and with one that dawdles: the bytes of the ordinary encoder.
TEST(CudaCore, InPlaceGivesTheSameBytesInEveryOrderOfBlocks) {
  std::mt19937_64 random(seed());
  InPlaceTurns all;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
      for (const std::size_t elements :
           {std::size_t{700}, std::size_t{8192}, std::size_t{70001}, std::size_t{8192} * 330 + 5}) {
        if (elements > 100000 && bits != 4 && bits != 8) continue;
        const Bytes source = mixed(type, elements, bits);
        const auto blocks = static_cast<unsigned>(1 + random() % 12);
        const InPlaceSpan span = encode_in_place(type, bits, source, blocks, [&](unsigned n) {
          const auto turn = static_cast<unsigned>(random() % n);
          return turn == 0 && random() % 40 != 0 ? n - 1 : turn;  // block 0 is slow
        });
        expect_in_place(type, bits, source, span,
                        std::string(name_of(type)) + " " + std::to_string(bits) + " bits, " +
                            std::to_string(elements));
        all.bounced += span.turns.bounced;
        all.waited += span.turns.waited;
      }
    }
  }
  EXPECT_GT(all.bounced, 20u);  // the detour is taken
  EXPECT_GT(all.waited, 100u);  // and blocks do wait
}

TEST(CudaCore, InPlaceLeavesASourceThatIsKeptRawUntouched) {
  const auto first = [](unsigned) { return 0u; };
  Bytes many = mixed(ElementType::kFloat32, 256 * 200, 3, false);
  for (unsigned g = 0; g < 4; ++g) many.as<float>()[256 * (g * 40 + 7) + 9] = NAN;
  const InPlaceSpan span = encode_in_place(ElementType::kFloat32, 2, many, 1, first);
  EXPECT_EQ(span.verdict.outcome, cuda::Outcome::kKeepRaw);
  EXPECT_EQ(span.verdict.escapes, 4u);
  expect_in_place(ElementType::kFloat32, 2, many, span, "too many escapes");
  // One escaped group that fits beside another's codes, but not alone.
  for (const std::size_t groups : {1u, 2u}) {
    Bytes few(groups * 512);
    for (std::size_t e = 0; e < groups * 256; ++e)
      set_value(ElementType::kFloat16, few.data(), e, double(e % 100) - 50);
    set_value(ElementType::kFloat16, few.data(), 30, NAN);
    const InPlaceSpan one = encode_in_place(ElementType::kFloat16, 2, few, 1, first);
    EXPECT_EQ(one.verdict.outcome, groups == 2 ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw);
    expect_in_place(ElementType::kFloat16, 2, few, one, std::to_string(groups) + " groups");
  }
}

TEST(CudaCore, InPlaceNothingIsKeptRawAtThreeBitsAndMore) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      const Bytes source = wide_span(type, 150, 100, random);
      const InPlaceSpan span = encode_in_place(
          type, bits, source, 5, [&](unsigned n) { return static_cast<unsigned>(random() % n); });
      EXPECT_EQ(span.verdict.outcome, cuda::Outcome::kDone);
      EXPECT_EQ(span.verdict.escapes, 0u);
      expect_in_place(type, bits, source, span, name_of(type));
    }
}

// A short last group that escapes, or has two patterns of which padding repeats the first.
TEST(CudaCore, ShortLastGroups) {
  const auto first = [](unsigned) { return 0u; };
  for (const ElementType type : kFloatTypes) {
    for (const bool escaped : {true, false}) {
      const std::size_t elements = 256 * 70 + 37;
      Bytes source = ordinary(type, elements);
      for (std::size_t e = 256 * 70; e < elements; ++e)
        if (escaped)
          set_value(type, source.data(), e, e % 5 == 4 ? NAN : double(e % 7));
        else
          set_value(type, source.data(), e, e % 3 == 2 ? 0.0 : 1.5);
      for (const unsigned bits : {1u, 4u, 8u}) {
        const std::string what = std::string(name_of(type)) + " " + std::to_string(bits) +
                                 (escaped ? " escaped" : " two-valued");
        expect_bytes_of_scalar_path(type, bits, Transform::kNone, source, what);
        expect_bytes_of_scalar_path(type, bits, Transform::kHadamard, source, what + ", rotated");
        expect_bytes_of_scalar_path(type, bits, Transform::kHadamardScaled, source,
                                    what + ", scaled");
        expect_in_place(type, bits, source, encode_in_place(type, bits, source, 1, first),
                        what + ", in place");
      }
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test

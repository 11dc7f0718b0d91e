// The committed golden hashes by the CUDA kernels' own code on the CPU, as compress_golden
// --isa=cuda checks them on a GPU.
#include "compress/sides/side_core.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/emulated_payload.h"
#include "tests/compress/golden.h"

namespace pleat::compress::test {
namespace {

using golden::Case;
using golden::DeviceForm;

// Framed floats, sides and booleans: a launch of one job.
std::vector<unsigned char> emulate(const Case& input, bool encode, const unsigned char* source,
                                   std::size_t room, std::size_t capacity) {
  Bytes target(room);
  cuda::Verdict verdict;
  cuda::Job job{};
  job.source = source;
  job.target = target.data();
  job.verdict = &verdict;
  job.elements = input.elements;
  job.nonce = golden::kNonce;
  if (input.spec.sides.any()) {
    if (encode) {
      job.width = side_width(input.spec.sides);
      job.bounds[0] = input.spec.sides.low;
      job.bounds[1] = input.spec.sides.high;
      emulate_encode_sides(input.type, job);
    } else {
      job.width = side_width(input.spec.sides) & 0xFF;
      job.capacity = capacity;
      emulate_decode_sides(input.type, job);
    }
  } else if (is_floating(input.type)) {
    job.capacity = capacity;
    EXPECT_TRUE(emulate_framed_job(input.type, encode, job));
  } else if (encode) {
    emulate_pack(job, static_cast<unsigned>(input.type));
  } else {
    emulate_unpack(job, static_cast<unsigned>(input.type));
  }
  EXPECT_TRUE(target.guard_intact());
  if (verdict.outcome != cuda::Outcome::kDone) return {};
  return {target.data(), target.data() + (encode ? verdict.payload_bytes : room)};
}

TEST(CudaGolden, TheKernelsCodeGivesTheCommittedBytes) {
  Case input;
  DeviceForm form{};
  const golden::Backend emulated{
      [&](const Case& next) {
        input = next;
        form = golden::device_payload(input).form;
        if (form == DeviceForm::kGrouped)
          return emulated_payload(input.type, input.spec.bits, input.elements, input.source.data(),
                                  input.spec.transform, golden::kNonce, input.spec.exponents,
                                  input.spec.zeros)
              .payload;
        const std::size_t room = kHeaderBytes + input.source.size();
        return emulate(input, true, input.source.data(), room, room);
      },
      [&](const std::vector<unsigned char>& payload, std::size_t bytes) {
        if (payload.empty()) return payload;
        if (form != DeviceForm::kGrouped) {
          Bytes copy(payload.size());
          std::memcpy(copy.data(), payload.data(), payload.size());
          return emulate(input, false, copy.data(), bytes, payload.size());
        }
        Bytes target(bytes);
        EXPECT_EQ(
            emulated_decode(input.type, input.spec.bits, input.elements, payload, target.data(),
                            input.spec.transform, input.spec.exponents, input.spec.zeros),
            cuda::Outcome::kDone);
        return std::vector<unsigned char>(target.data(), target.data() + bytes);
      }};
  const golden::Compared all =
      golden::compare_device(emulated, golden::read_lines(PLEAT_GOLDEN_FILE));
  EXPECT_EQ(all.differ, 0u);
  EXPECT_GE(all.cases, 300u);
}

}  // namespace
}  // namespace pleat::compress::test

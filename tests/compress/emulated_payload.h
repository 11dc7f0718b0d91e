// Payloads as the CUDA kernels' own code makes and restores them on the CPU (emulated_kernels.h),
// beside those of the scalar path.
#pragma once

#include <string>

#include "compress/format.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/fixed_payload.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {

inline constexpr std::uint64_t kNonce = 0xFEDC'BA98'7654'3210;
inline constexpr std::size_t kSizes[] = {1, 100, 255, 256, 257, 2048, 16384, 65536 + 3};

inline std::vector<unsigned char> reference_payload(ElementType type, unsigned bits,
                                                    std::size_t elements,
                                                    const unsigned char* source,
                                                    Transform transform = Transform::kNone) {
  return fixed_payload(type, bits, transform, elements, kNonce, source);
}

struct Emulated {
  cuda::Verdict verdict;
  std::vector<unsigned char> payload;
};
inline void set_exponents(const Exponents& exponents, bool zeros, cuda::Job* job) {
  job->row = exponents.row;
  job->channels = exponents.channels;
  job->inner = exponents.inner;
  job->zeros = zeros ? 1 : 0;
}
inline Emulated emulated_payload(ElementType type, unsigned bits, std::size_t elements,
                                 const void* source, Transform transform = Transform::kNone,
                                 std::uint64_t nonce = kNonce, const Exponents& exponents = {},
                                 bool zeros = false) {
  const GroupedLayout layout(type, bits, elements, transform != Transform::kNone, exponents);
  const std::size_t escapes = has_wide_groups(bits) ? 0 : layout.escape_limit(bits);
  Bytes room(layout.end() + escapes * layout.source_bytes_per_group);
  Emulated result;
  cuda::Job job{};
  job.source = source;
  job.target = room.data();
  job.verdict = &result.verdict;
  job.elements = elements;
  job.nonce = nonce;
  set_exponents(exponents, zeros, &job);
  job.table = exponents.table;
  if (exponents.any()) {
    cuda::Job measured = job;
    measured.target = room.data() + layout.end_of_codes();
    emulate_measure_parts(type, measured);
  }
  emulate_encode({type, bits, transform}, job);
  EXPECT_TRUE(room.guard_intact());
  EXPECT_LE(result.verdict.payload_bytes, room.size());
  result.payload.assign(room.data(), room.data() + result.verdict.payload_bytes);
  return result;
}
inline cuda::Outcome emulated_decode(ElementType type, unsigned bits, std::size_t elements,
                                     const std::vector<unsigned char>& payload, void* target,
                                     Transform transform = Transform::kNone,
                                     const Exponents& exponents = {}, bool zeros = false) {
  Bytes copy(payload.size());  // aligned as payloads are
  std::memcpy(copy.data(), payload.data(), payload.size());
  cuda::Verdict verdict;
  cuda::Job job{};
  job.source = copy.data();
  job.target = target;
  job.capacity = payload.size();
  job.verdict = &verdict;
  job.elements = elements;
  set_exponents(exponents, zeros, &job);
  emulate_decode({type, bits, transform}, job);
  return verdict.outcome;
}

// What the kernels make of `source`, and back, against the scalar path.
inline void expect_bytes_of_scalar_path(ElementType type, unsigned bits, Transform transform,
                                        const Bytes& source, const std::string& what) {
  const std::size_t elements = source.size() / element_size(type);
  const std::vector<unsigned char> expected =
      reference_payload(type, bits, elements, source.data(), transform);
  const Emulated got = emulated_payload(type, bits, elements, source.data(), transform);
  ASSERT_FALSE(expected.empty()) << what;
  ASSERT_EQ(got.verdict.outcome, cuda::Outcome::kDone) << what;
  EXPECT_TRUE(got.payload == expected) << what;
  Bytes restored(source.size());
  ASSERT_EQ(emulated_decode(type, bits, elements, expected, restored.data(), transform),
            cuda::Outcome::kDone)
      << what;
  EXPECT_TRUE(restored.guard_intact());
  const auto decoded = decode_span(expected, source.size());
  EXPECT_EQ(std::memcmp(decoded.data(), restored.data(), source.size()), 0) << what;
}

}  // namespace pleat::compress::test

// Requests with exponents, and sources for them.
#pragma once

#include <cstring>

#include "tests/compress/exponent_reference.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {

inline constexpr std::uint64_t kExponentNonce = 77;

inline CodecSpec spec_of(unsigned bits, const ReferenceExponents& exponents) {
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(bits);
  spec.exponents = {static_cast<std::uint32_t>(exponents.row),
                    static_cast<std::uint32_t>(exponents.table.size()),
                    static_cast<std::uint32_t>(exponents.inner), exponents.table.data()};
  return spec;
}

inline Encoded encode_with(const Bytes& source, ElementType type, const CodecSpec& spec,
                           std::uint64_t nonce = kExponentNonce,
                           const Executor& executor = serial_executor()) {
  const std::size_t elements = source.size() / element_size(type);
  Bytes buffer(payload_bound(spec, type, elements) + (spec.near_zero ? 4096 : 0));
  Encoded out;
  const EncodeResult result = encode({source.data(), elements, type}, spec, nonce, buffer.data(),
                                     buffer.size(), executor, &out.statistics);
  EXPECT_TRUE(buffer.guard_intact());
  out.status = result.status;
  if (out.status == Status::kOk)
    out.payload.assign(buffer.data(), buffer.data() + result.payload_bytes);
  return out;
}

template <class Fill>
Bytes make(ElementType type, std::size_t elements, const Fill& fill) {
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) set_value(type, source.data(), e, fill(e));
  return source;
}

inline std::vector<std::int8_t> random_table(std::size_t channels, std::mt19937_64& random) {
  std::vector<std::int8_t> table(channels);
  for (auto& entry : table)
    entry = static_cast<std::int8_t>(random() % 5 == 0 ? -int(random() % 8) : 0);
  table[random() % channels] = -30;
  return table;
}

// Rows of every size and sort; some groups are constant, two-valued or hold NaN and Inf.
inline Bytes rows_of_all_sorts(ElementType type, std::size_t elements, std::size_t row,
                               std::size_t channels, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const bool half = type == ElementType::kFloat16;
  return make(type, elements, [&](std::size_t e) {
    const std::size_t r = e / row;
    const double x = normal(random) * (channels != 0 && e % channels == 3 ? 20 : 1);
    const std::size_t g = e / 256;
    if (g % 11 == 4) return double(e % 2) - 0.25;        // two-valued
    if (g % 11 == 5) return std::ldexp(3, -int(r % 3));  // constant once raised
    if (g % 29 == 6 && e % 50 == 0) return e % 100 == 0 ? INFINITY : double(NAN);
    switch (r % 9) {
      case 1:
        return 0.01 * x;
      case 2:
        return e % 2 == 0 ? 0.0 : -0.0;
      case 3:
        return std::fabs(x);
      case 4:
        return r % 2 == 0 ? -std::fabs(x) : 0.001 * std::fabs(x);
      case 5:
        return half ? 2e4 * std::tanh(x) : 1e30 * x;
      case 6:
        return std::ldexp(x, half ? -22 : -140);
      default:
        return e % 7 == 0 ? 0.0 : x;
    }
  });
}

inline std::vector<unsigned char> round_trip(const Bytes& source, ElementType type,
                                             const CodecSpec& spec,
                                             std::uint64_t nonce = kExponentNonce) {
  const Encoded out = encode_with(source, type, spec, nonce);
  EXPECT_EQ(out.status, Status::kOk);
  return decode_span(out.payload, source.size());
}

}  // namespace pleat::compress::test

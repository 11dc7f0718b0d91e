// Exponents and kept zeros by the CUDA kernels' own code on the CPU, against the CPU's payloads:
// same bytes, and the same elements back.
#include <algorithm>
#include <array>

#include "compress/cuda/device_codec.h"
#include "compress/exponents/part_core.h"
#include "compress/format.h"
#include "tests/compress/emulated_device.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/emulated_payload.h"

namespace pleat::compress::test {
namespace {

struct Request {
  ElementType type;
  unsigned bits;
  Transform transform;
  Exponents exponents;
  bool zeros;

  std::string name() const {
    return std::string(name_of(type)) + " " + std::to_string(bits) + " bits, transform " +
           std::to_string(static_cast<int>(transform)) + ", row " + std::to_string(exponents.row) +
           ", channels " + std::to_string(exponents.channels) + ", inner " +
           std::to_string(exponents.inner) + (zeros ? ", zeros" : "");
  }
  CodecSpec spec() const {
    CodecSpec spec;
    spec.bits = static_cast<std::uint8_t>(bits);
    spec.transform = transform;
    spec.compact = false;
    spec.exponents = exponents;
    spec.zeros = zeros;
    return spec;
  }
  cuda::DeviceTask task(std::size_t elements) const {
    cuda::DeviceTask task;
    task.type = type;
    task.bits = static_cast<std::uint8_t>(bits);
    task.transform = transform;
    task.elements = elements;
    task.exponents = exponents;
    task.zeros = zeros;
    return task;
  }
};

std::size_t elements_of(const Request& request, const Bytes& source) {
  return source.size() / element_size(request.type);
}

std::vector<unsigned char> by_cpu(const Request& request, const Bytes& source) {
  const std::size_t elements = elements_of(request, source);
  const CodecSpec spec = request.spec();
  Bytes room(payload_bound(spec, request.type, elements));
  const EncodeResult result = encode({source.data(), elements, request.type}, spec, kNonce,
                                     room.data(), room.size(), serial_executor(), nullptr);
  if (result.status != Status::kOk) return {};
  return {room.data(), room.data() + result.payload_bytes};
}

Emulated by_device(const Request& request, const Bytes& source) {
  return emulated_payload(request.type, request.bits, elements_of(request, source), source.data(),
                          request.transform, kNonce, request.exponents, request.zeros);
}

cuda::Outcome back_by_device(const Request& request, const std::vector<unsigned char>& payload,
                             Bytes* target) {
  const cuda::Outcome outcome =
      emulated_decode(request.type, request.bits, target->size() / element_size(request.type),
                      payload, target->data(), request.transform, request.exponents, request.zeros);
  EXPECT_TRUE(target->guard_intact()) << request.name();
  return outcome;
}

// False if the CPU's payload is another form: more escapes than are allowed, or raw.
bool expect_bytes_of_cpu(const Request& request, const Bytes& source) {
  const std::vector<unsigned char> expected = by_cpu(request, source);
  const Emulated got = by_device(request, source);
  if (expected.empty()) {
    EXPECT_EQ(got.verdict.outcome, cuda::Outcome::kKeepRaw) << request.name();
    return false;
  }
  if (expected[6] != static_cast<unsigned char>(PayloadKind::kGrouped)) return false;
  EXPECT_EQ(got.verdict.outcome, cuda::Outcome::kDone) << request.name();
  EXPECT_EQ(got.payload.size(), expected.size()) << request.name();
  if (got.payload != expected) {
    const auto at = std::mismatch(expected.begin(), expected.end(), got.payload.begin()).first -
                    expected.begin();
    const GroupedLayout layout = {request.type, request.bits, elements_of(request, source),
                                  request.transform != Transform::kNone, request.exponents};
    ADD_FAILURE() << request.name() << ": byte " << at << " of " << expected.size()
                  << ", codes from " << layout.codes_offset << ", exponents from "
                  << layout.end_of_codes();
    return true;
  }
  Bytes target(source.size());
  EXPECT_EQ(back_by_device(request, expected, &target), cuda::Outcome::kDone) << request.name();
  const auto restored = decode_span(expected, source.size());
  EXPECT_EQ(std::memcmp(target.data(), restored.data(), source.size()), 0) << request.name();
  return true;
}

// Rows of very different sizes, rows and parts of zeros, and here and there what is rare.
Bytes rows_of(ElementType type, std::size_t elements, std::size_t row, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  Bytes source(elements * element_size(type));
  const double tiny = std::ldexp(1, type == ElementType::kFloat16 ? -23 : -130);
  double size = 1;
  bool absolute = false;
  for (std::size_t e = 0; e < elements; ++e) {
    if (e % row == 0) {
      constexpr double kSizes[] = {1, 1, 0.1, 0.01, 1e-3, 30, 0, 0};
      size = kSizes[random() % std::size(kSizes)];
      absolute = random() % 8 == 0;
    }
    double x = normal(random) * size;
    if (absolute) x = std::fabs(x);
    if (random() % 8 == 0) x = 0;
    const std::size_t group = e / 256, rare = random() % 64;
    switch (group % 24) {
      case 3:  // two patterns in some rows, more in the others
        if (e / row % 2 == 0) x = rare < 32 ? size : -size;
        break;
      case 5:
        if (group == 5 && rare == 0) x = NAN;
        if (group == 5 && rare == 1) x = -INFINITY;
        break;
      case 7:
        x = x * tiny;
        break;
      case 9:
        x = 0.5 * size;
        break;
      case 11:
        x = std::fabs(x);
        break;
      case 13:
        x = -std::fabs(x);
        break;
      case 15:
        if (rare < 8) x = tiny * (1 + double(rare % 3));
        break;
      case 17:
        x = rare < 20 ? -0.0 : e / row % 3 == 0 ? x : 0.0;
        break;
      case 19:  // all of a row alike, so that raised groups have few patterns
        x = size * (e / row % 2 == 0 ? 1 : -0.5);
        break;
      case 21:
        if (type != ElementType::kFloat16) x = x * (group == 21 ? 1e36 : 1e37);
        break;
      default:
        break;
    }
    set_value(type, source.data(), e, x);
  }
  return source;
}

constexpr std::size_t kRows[] = {8, 24, 64, 192, 300, 768, 1152};

TEST(CudaExponents, PartsGiveTheBytesOfTheCpu) {
  std::mt19937_64 random(seed());
  unsigned compared = 0;
  for (const ElementType type : kFloatTypes)
    for (const std::size_t row : kRows)
      for (const unsigned bits : {2u, 3u, 4u, 8u})
        for (const Transform transform : {Transform::kNone, Transform::kHadamardScaled}) {
          const std::size_t elements = 256 * (bits == 2 ? 40 : 48) + random() % 256;
          compared += expect_bytes_of_cpu(
              {type, bits, transform, {static_cast<std::uint32_t>(row), 0, 1, nullptr}, false},
              rows_of(type, elements, row, random));
        }
  EXPECT_GT(compared, 130u);
}

TEST(CudaExponents, RowsOfAnyLength) {
  std::mt19937_64 random(seed());
  for (const std::uint32_t row :
       {9u, 10u, 11u, 12u, 13u, 31u, 33u, 96u, 127u, 250u, 255u, 257u, 511u, 4097u, 1u << 30})
    for (const ElementType type : kFloatTypes)
      expect_bytes_of_cpu({type, 4, Transform::kNone, {row, 0, 1, nullptr}, random() % 2 == 0},
                          rows_of(type, 256 * 24 + 1 + random() % 255, row, random));
}

TEST(CudaExponents, TablesGiveTheBytesOfTheCpu) {
  std::mt19937_64 random(seed());
  unsigned compared = 0;
  for (const ElementType type : kFloatTypes)
    for (const auto& [row, channels, inner] :
         {std::array{64u, 64u, 1u}, std::array{300u, 300u, 1u}, std::array{512u, 512u, 1u},
          std::array{784u, 16u, 49u}, std::array{49u, 5u, 49u}, std::array{24u, 1000u, 1u}}) {
      Bytes table(channels);
      for (std::size_t c = 0; c < channels; ++c)
        table.as<std::int8_t>()[c] =
            random() % 3 != 0 ? 0 : -static_cast<std::int8_t>(random() % 31);
      for (const unsigned bits : {2u, 3u, 4u, 8u})
        for (const Transform transform : {Transform::kNone, Transform::kHadamard})
          compared += expect_bytes_of_cpu(
              {type, bits, transform, {row, channels, inner, table.as<std::int8_t>()}, bits == 4},
              rows_of(type, 256 * 24 + random() % 256, row, random));
      std::memset(table.data(), 0, table.size());  // moves nothing, and is kept all the same
      compared += expect_bytes_of_cpu(
          {type, 4, Transform::kNone, {row, channels, inner, table.as<std::int8_t>()}, false},
          rows_of(type, 256 * 24, row, random));
    }
  EXPECT_GT(compared, 130u);
}

// Powers of two that cancel out move nothing; nor are groups of two patterns moved, which may be
// NaN; a NaN beside parts that are moved stays one.
TEST(CudaExponents, RareGroupsOfTablesGiveTheBytesOfTheCpu) {
  std::mt19937_64 random(seed());
  alignas(64) const std::int8_t table[] = {-3, 0, -3, -1, 0, -2, 0, -4};
  for (const ElementType type : kFloatTypes)
    for (const Exponents exponents :
         {Exponents{4096, 8, 512, table}, Exponents{32, 8, 4, table}, Exponents{32, 0, 1, nullptr}})
      for (const Transform transform : {Transform::kNone, Transform::kHadamard}) {
        Bytes source = rows_of(type, 256 * 24, 2048, random);
        for (std::size_t e = 0; e < 256 * 24; ++e) {
          const std::size_t group = e / 256;
          if (group % 4 == 1)
            set_value(type, source.data(), e, random() % 2 == 0 ? NAN : group % 8 == 1 ? 0.5 : 0);
          if (group % 4 == 3 && e / 32 % 2 == 0) set_value(type, source.data(), e, NAN);
          if (group % 12 == 4 && random() % 8 == 0) {  // of the signalling kind
            const std::uint32_t word = type == ElementType::kFloat32   ? 0x7F80'0001
                                       : type == ElementType::kFloat16 ? 0x7C01
                                                                       : 0x7F81;
            std::memcpy(source.data() + e * element_size(type), &word, element_size(type));
          }
        }
        EXPECT_TRUE(expect_bytes_of_cpu({type, 4, transform, exponents, false}, source));
      }
}

TEST(CudaExponents, KeptZerosGiveTheBytesOfTheCpu) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u})
      for (const std::uint32_t row : {0u, 24u, 256u})
        for (const Transform transform : {Transform::kNone, Transform::kHadamard})
          expect_bytes_of_cpu({type, bits, transform, {row, 0, 1, nullptr}, true},
                              rows_of(type, 256 * 24 + random() % 256, row + 64, random));
}

// The steps by which kernels go through a span, against a division for each group.
TEST(CudaExponents, CursorsStepToWherePartsAre) {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 2000; ++round) {
    const Exponents exponents{
        static_cast<std::uint32_t>(8 + random() % (round % 2 == 0 ? 2000 : 1u << 29)), 0, 1,
        nullptr};
    if (!exponents.any()) continue;
    Rows rows;
    const std::uint64_t apart = 1 + random() % 20000;
    rows.set(exponents, nullptr, nullptr, apart);
    for (unsigned first = 0; first < 8; ++first) rows.set_starts(first);
    std::uint64_t group = random() % 1000000;
    PartCursor cursor = rows.at(group);
    for (int step = 0; step < 20; ++step, group += apart, rows.advance(&cursor)) {
      ASSERT_EQ(cursor.before, parts_before(exponents, group)) << exponents.row << " " << group;
      const GroupParts parts = parts_of(rows, group, kGroupSize, cursor);
      ASSERT_EQ(parts.count, parts_before(exponents, group + 1) - cursor.before);
      for (unsigned run = 0; run < 32; ++run)
        ASSERT_EQ(parts.of_run(run),
                  (group * 256 + 8 * run) / exponents.row - group * 256 / exponents.row)
            << exponents.row << " " << group;
    }
  }
}

TEST(CudaExponents, LayoutsAreTheFormats) {
  for (const std::size_t elements : {std::size_t{1}, std::size_t{257}, std::size_t{1} << 33})
    for (const Exponents exponents :
         {Exponents{24, 0, 1, nullptr}, Exponents{256, 0, 1, nullptr},
          Exponents{512, 512, 1, nullptr}, Exponents{300, 7, 49, nullptr}})
      for (const ElementType type : kFloatTypes)
        with_form(type, 4, Transform::kNone, [&]<class F>() {
          EXPECT_EQ(DeviceLayout<F>(elements, exponents).end(),
                    GroupedLayout(type, 4, elements, false, exponents).end());
        });
}

// Whatever a payload holds, no lane leaves the two buffers (guards, and AddressSanitizer).
TEST(CudaExponents, DamagedPayloadsAreRefusedOrDecodedWithinBounds) {
  std::mt19937_64 random(seed());
  Bytes table(300);
  for (std::size_t c = 0; c < 300; ++c)
    table.as<std::int8_t>()[c] = -static_cast<std::int8_t>(random() % 31);
  for (const ElementType type : kFloatTypes)
    for (const unsigned bits : {2u, 4u})
      for (const Transform transform : {Transform::kNone, Transform::kHadamard})
        for (const bool tabled : {false, true}) {
          const Request request{type,
                                bits,
                                transform,
                                {tabled ? 300u : 24u, tabled ? 300u : 0u, 1,
                                 tabled ? table.as<std::int8_t>() : nullptr},
                                false};
          Bytes source = rows_of(type, 3000, request.exponents.row, random);
          for (std::size_t e = 0; e < 3000; ++e)
            if (!std::isfinite(value_at(type, source.data(), e)))
              set_value(type, source.data(), e, 0);
          const std::vector<unsigned char> intact = by_device(request, source).payload;
          ASSERT_FALSE(intact.empty()) << request.name();
          const GroupedLayout layout(type, bits, 3000, transform != Transform::kNone,
                                     request.exponents);
          unsigned refused = 0;
          for (int round = 0; round < 60; ++round) {
            auto damaged = intact;
            if (round < 30)
              damaged[random() % kHeaderBytes] ^= static_cast<unsigned char>(1u << random() % 8);
            else
              for (std::size_t i = 0; i < layout.exponent_bytes; ++i)
                damaged[layout.end_of_codes() + i] = static_cast<unsigned char>(random());
            Bytes target(source.size());
            refused += back_by_device(request, damaged, &target) == cuda::Outcome::kCorrupt;
          }
          EXPECT_GT(refused, 15u) << request.name();  // nearly all of a header's bits are checked
          Request other = request;
          other.exponents.row += 8;
          Bytes target(source.size());
          EXPECT_EQ(back_by_device(other, intact, &target), cuda::Outcome::kCorrupt);
          other.exponents = {};
          EXPECT_EQ(back_by_device(other, intact, &target), cuda::Outcome::kCorrupt);
        }
}

TEST(CudaExponents, RowsTooShortForADeviceAreLeftToTheCpu) {
  Request request{ElementType::kFloat32, 4, Transform::kNone, {7, 0, 1, nullptr}, false};
  EXPECT_FALSE(cuda::device_can_encode(request.task(5000)));
  request.exponents.row = 8;
  EXPECT_TRUE(cuda::device_can_encode(request.task(5000)));
  alignas(64) static float elements[5000];
  cuda::DeviceTask task = request.task(5000);
  task.source = task.target = elements;
  EXPECT_FALSE(cuda::device_can_encode_in_place(task));
  task.exponents = {};
  EXPECT_TRUE(cuda::device_can_encode_in_place(task));
  task.zeros = true;
  EXPECT_FALSE(cuda::device_can_encode_in_place(task));
}

}  // namespace
}  // namespace pleat::compress::test

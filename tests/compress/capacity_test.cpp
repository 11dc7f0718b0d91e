// Tests lossless requests into buffers that may be too small: no byte beyond the buffer is written.
#include <algorithm>
#include <limits>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

struct Attempt {
  Status status;
  std::vector<unsigned char> payload;
  SpanStatistics statistics;
};
Attempt attempt(const Span& span, std::size_t capacity,
                const Executor& executor = serial_executor(), std::uint8_t bits = 0) {
  Bytes buffer(capacity);
  Attempt out;
  const EncodeResult result =
      encode(span, {bits, false}, 5, buffer.data(), capacity, executor, &out.statistics);
  EXPECT_TRUE(buffer.guard_intact()) << name_of(span.type) << " " << span.elements;
  out.status = result.status;
  if (result.status == Status::kOk) {
    EXPECT_LE(result.payload_bytes, capacity);
    out.payload.assign(buffer.data(), buffer.data() + result.payload_bytes);
  }
  return out;
}

// Fits into exactly its payload, same bytes, and into nothing less; `working`: bytes that it needs
// while it is being made, if those are more.
void expect_exact_fit(const Span& span, std::size_t expected = 0, std::size_t working = 0) {
  const Encoded full = encode_span(span.data, span.elements, span.type, 0, 5);
  ASSERT_EQ(full.status, Status::kOk);
  const std::size_t needed = std::max(full.payload.size(), working);
  if (expected != 0) {
    EXPECT_EQ(full.payload.size(), expected) << name_of(span.type) << " " << span.elements;
  }
  for (const Executor& executor : {serial_executor(), thread_executor(3)}) {
    const Attempt fits = attempt(span, needed, executor);
    ASSERT_EQ(fits.status, Status::kOk) << name_of(span.type) << " " << span.elements;
    EXPECT_TRUE(fits.payload == full.payload);
    EXPECT_EQ(fits.statistics.two_valued_groups, full.statistics.two_valued_groups);
    EXPECT_EQ(fits.statistics.constant_groups, full.statistics.constant_groups);
    EXPECT_EQ(fits.statistics.escaped_groups, full.statistics.escaped_groups);
    for (const std::size_t less : {needed - 1, needed - needed / 3, needed / 2, std::size_t{64},
                                   std::size_t{63}, std::size_t{0}}) {
      if (less >= needed) continue;
      EXPECT_EQ(attempt(span, less, executor).status, Status::kNoRoom)
          << name_of(span.type) << " " << span.elements << " in " << less << " of " << needed;
    }
  }
}

constexpr std::size_t kSizes[] = {2, 7, 8, 9, 64, 65, 300, 16384, 16385, 70001};

TEST(Capacity, Booleans) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const std::size_t elements : kSizes) {
      std::vector<unsigned char> flags(elements);
      for (auto& flag : flags) flag = random() & 1;
      flags[0] = 0, flags[1] = 1;
      const Span span{flags.data(), elements, ElementType::kBool};
      const std::size_t packed = 64 + (elements + 7) / 8;
      expect_exact_fit(span, packed);
      for (const std::size_t odd : {std::size_t{1}, elements / 2, elements - 1}) {
        const unsigned char kept = flags[odd];
        flags[odd] = 2;
        expect_exact_fit(span, 64 + elements);
        EXPECT_EQ(attempt(span, packed).status, elements == 1 ? Status::kOk : Status::kNoRoom);
        EXPECT_EQ(attempt(span, elements / 8 + 128).status,
                  elements / 8 + 128 >= 64 + elements ? Status::kOk : Status::kNoRoom);
        flags[odd] = kept;
      }
    }
  }
}

TEST(Capacity, Integers) {
  std::mt19937_64 random(seed());
  for (const std::size_t elements : kSizes) {
    for (unsigned width = 1; width < 64; width *= 2) {
      std::vector<std::int64_t> numbers(elements);
      const std::uint64_t span = (std::uint64_t{1} << width) - 1;
      for (auto& number : numbers) number = static_cast<std::int64_t>(random() & span) - 3;
      numbers[0] = -3;
      numbers[1] = static_cast<std::int64_t>(span) - 3;
      const std::size_t size = framed_size(numbers);
      expect_exact_fit({numbers.data(), elements, ElementType::kInt64}, size);
      // Integers have no lossy form: asking for one changes nothing.
      EXPECT_EQ(attempt({numbers.data(), elements, ElementType::kInt64}, size, serial_executor(), 4)
                    .status,
                Status::kOk);
      if (width > 16) continue;
      std::vector<std::int32_t> narrow(numbers.begin(), numbers.end());
      expect_exact_fit({narrow.data(), elements, ElementType::kInt32}, framed_size(narrow));
    }
    std::vector<std::int64_t> wide(elements, 1);
    for (std::size_t e = 0; e < elements; ++e)  // also the last frame, however short
      wide[e] = e % 2 == 0 ? std::numeric_limits<std::int64_t>::min()
                           : std::numeric_limits<std::int64_t>::max();
    if (elements % 1024 == 1) wide.back() = wide[0];
    const Span span{wide.data(), elements, ElementType::kInt64};
    expect_exact_fit(span, 64 + 8 * elements);
    EXPECT_EQ(attempt(span, 4 * elements + 128).status,
              4 * elements + 128 >= 64 + 8 * elements ? Status::kOk : Status::kNoRoom);
  }
}

TEST(Capacity, TwoValuedFloats) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const std::size_t elements :
           {std::size_t{300}, std::size_t{16384}, std::size_t{16400}, std::size_t{1200001 + 50}}) {
        if (path.name == "avx512 emulated" && elements > 100000) continue;  // slow
        const std::size_t size = element_size(type), groups = (elements + 255) / 256;
        Bytes source(elements * size);
        for (std::size_t e = 0; e < elements; ++e)
          set_value(type, source.data(), e, e % 256 < 2 ? double(e % 2) : double(random() % 2));
        const Span span{source.data(), elements, type};
        const std::size_t short_form = 64 + (groups * 2 * size + 63) / 64 * 64 + groups * 32;
        const std::size_t blocks = (groups + 63) / 64, working = short_form + 8 * blocks;
        expect_exact_fit(span, short_form, blocks == 1 ? 0 : working);
        if (elements < 1000) continue;

        // No longer two-valued in the end: one group in the escape table.
        set_value(type, source.data(), elements - 1, 7);
        expect_exact_fit(span, short_form + 256 * size, blocks == 1 ? 0 : working);
        EXPECT_EQ(attempt(span, short_form).status, Status::kNoRoom);
        EXPECT_EQ(attempt(span, elements / 4 + 256).status,
                  elements / 4 + 256 >= short_form + 256 * size ? Status::kOk : Status::kNoRoom);

        // Too many such groups: frames, whose size every group decides.
        for (std::size_t g = groups / 2; g < groups; ++g)
          set_value(type, source.data(), g * 256, -3);
        expect_exact_fit(span);
        EXPECT_EQ(attempt(span, elements / 8).status, Status::kNoRoom);
      }
    }
  }
}

// The one exception to the exact fit: compaction happens inside the buffer.
TEST(Capacity, FloatsThatCompactNeedRoomForTheFormBefore) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 256 * 1000, size = element_size(type);
    Bytes source(elements * size);
    for (std::size_t e = 0; e < elements; ++e)
      set_value(type, source.data(), e, e / 256 % 10 == 0 ? double(e % 2) : double(e / 256 % 7));
    const Span span{source.data(), elements, type};
    const Encoded full = encode_span(source.data(), elements, type, 0, 5);
    const std::size_t blocks = 16;
    const std::size_t before = 64 + (1000 * 2 * size + 63) / 64 * 64 + 1000 * 32 + 8 * blocks;
    ASSERT_LT(full.payload.size(), before);
    EXPECT_TRUE(attempt(span, before).payload == full.payload);
    EXPECT_EQ(attempt(span, before - 1).status, Status::kNoRoom);
    EXPECT_EQ(attempt(span, full.payload.size()).status, Status::kNoRoom);
  }
}

TEST(Capacity, ConstantRawAndEmptySpans) {
  std::mt19937_64 random(seed());
  for (int t = 0; t <= 6; ++t) {
    const auto type = static_cast<ElementType>(t);
    std::vector<unsigned char> bytes(8000);
    expect_exact_fit({bytes.data(), 1000, type}, 64);
    expect_exact_fit({bytes.data(), 0, type}, 64);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
    expect_exact_fit({bytes.data(), 1000, type}, 64 + 1000 * element_size(type));
  }
}

}  // namespace
}  // namespace pleat::compress::test

#include <atomic>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "compress/format.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

void expect_same(const Encoded& a, const Encoded& b, const std::string& what) {
  ASSERT_EQ(a.status, b.status) << what;
  EXPECT_EQ(a.payload == b.payload, true) << what;
  EXPECT_EQ(a.statistics.constant_groups, b.statistics.constant_groups) << what;
  EXPECT_EQ(a.statistics.two_valued_groups, b.statistics.two_valued_groups) << what;
  EXPECT_EQ(a.statistics.escaped_groups, b.statistics.escaped_groups) << what;
}

constexpr std::size_t kIdentitySizes[] = {1, 100, 255, 256, 257, 2048, 16384, 65536 + 3, 300001};

TEST(Identity, EveryInstructionSetGivesTheSameBytes) {
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
      for (const std::size_t elements : kIdentitySizes) {
        const Bytes source = mixed(type, elements, bits);
        use_kernels(&kScalarKernels);
        const Encoded reference =
            encode_span(source.data(), elements, type, bits, 0xABCDEF0123456789);
        ASSERT_EQ(reference.status, Status::kOk);
        const auto restored = decode_span(reference.payload, source.size());
        for (const Path& path : paths()) {
          const UsePath use(path);
          const std::string what = path.name + " " + name_of(type) + " " + std::to_string(bits) +
                                   " bits, " + std::to_string(elements);
          expect_same(reference,
                      encode_span(source.data(), elements, type, bits, 0xABCDEF0123456789), what);
          EXPECT_TRUE(restored == decode_span(reference.payload, source.size())) << what;
        }
        set_isa(Isa::kAuto);
      }
    }
  }
}

TEST(Identity, UnalignedSourcesGiveTheSameBytes) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 5000, size = element_size(type);
    const Bytes source = mixed(type, elements, 3);
    Bytes shifted(elements * size, size);
    std::memcpy(shifted.data(), source.data(), source.size());
    for (const Path& path : paths()) {
      const UsePath use(path);
      const Encoded a = encode_span(source.data(), elements, type, 4);
      expect_same(a, encode_span(shifted.data(), elements, type, 4), path.name);
      const auto restored = decode_span(a.payload, source.size());
      Bytes target(source.size(), size);
      Bytes payload(a.payload.size(), 1);  // a payload may lie anywhere
      std::memcpy(payload.data(), a.payload.data(), a.payload.size());
      ASSERT_EQ(
          decode(payload.data(), payload.size(), target.data(), target.size(), serial_executor()),
          Status::kOk);
      EXPECT_EQ(std::memcmp(target.data(), restored.data(), restored.size()), 0);
      EXPECT_TRUE(target.guard_intact());
    }
  }
}

TEST(Identity, AnySplitGivesTheSameBytesAndStatistics) {
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : {0u, 3u, 4u}) {
      const std::size_t elements = 1 << 20 | 77;
      const Bytes source = mixed(type, elements, 1);
      const Encoded reference = encode_span(source.data(), elements, type, bits, 3);
      const auto restored = decode_span(reference.payload, source.size());
      for (const Executor& executor :
           {thread_executor(1), thread_executor(3), thread_executor(40), backwards_executor()}) {
        expect_same(reference, encode_span(source.data(), elements, type, bits, 3, executor),
                    "split");
        EXPECT_TRUE(restored == decode_span(reference.payload, source.size(), executor));
      }
    }
  }
  std::mt19937_64 random(seed());
  std::vector<std::int64_t> numbers(500001);
  for (auto& number : numbers) number = static_cast<std::int64_t>(random() % 200) - 50;
  std::vector<unsigned char> flags(500001);
  for (auto& flag : flags) flag = random() & 1;
  for (const Executor& executor : {thread_executor(1), thread_executor(5), backwards_executor()}) {
    const auto a = encode_span(numbers.data(), numbers.size(), ElementType::kInt64, 0);
    EXPECT_TRUE(
        a.payload ==
        encode_span(numbers.data(), numbers.size(), ElementType::kInt64, 0, 1, executor).payload);
    EXPECT_EQ(std::memcmp(decode_span(a.payload, numbers.size() * 8, executor).data(),
                          numbers.data(), numbers.size() * 8),
              0);
    const auto b = encode_span(flags.data(), flags.size(), ElementType::kBool, 0);
    EXPECT_TRUE(
        b.payload ==
        encode_span(flags.data(), flags.size(), ElementType::kBool, 0, 1, executor).payload);
    EXPECT_TRUE(decode_span(b.payload, flags.size(), executor) == flags);
  }
}

// Streaming stores take over for large results: same bytes.
TEST(Identity, LargeResultsAreTheSameAsSmallOnes) {
  struct Reset {
    ~Reset() { set_stream_threshold(0); }
  } reset;
  EXPECT_GE(stream_threshold(), std::size_t{1} << 20) << "smaller results fit a core's own caches";
  const std::size_t elements = (std::size_t{4} << 20) / 4 + 300;
  std::vector<unsigned char> flags(elements);
  std::mt19937_64 random(seed());
  for (auto& flag : flags) flag = random() & 1;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16, ElementType::kBool}) {
    const std::size_t size = element_size(type), bytes = elements * size;
    for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
      if (type == ElementType::kBool && bits != 0) continue;
      std::vector<unsigned char> source(bytes);
      if (bits != 0) {
        std::memcpy(source.data(), mixed(type, elements, 9).data(), bytes);
      } else {  // two values: the only groups that are coded at no width
        for (std::size_t at = 0; at < bytes; ++at)
          source[at] = flags[at / size] * (type == ElementType::kBool ? 1 : 0x3C);
      }
      const Encoded out = encode_span(source.data(), elements, type, bits);
      ASSERT_EQ(out.status, Status::kOk);
      EXPECT_LT(out.payload.size(), bytes * 2 / 3) << name_of(type) << ' ' << bits;
      for (const Path& path : paths()) {
        const UsePath use(path);
        const auto decoded = [&](std::size_t threshold, std::size_t misaligned) {
          set_stream_threshold(threshold);
          Bytes target(bytes, misaligned);
          EXPECT_EQ(decode(out.payload.data(), out.payload.size(), target.data(), target.size(),
                           serial_executor()),
                    Status::kOk);
          EXPECT_TRUE(target.guard_intact());
          return std::vector<unsigned char>(target.data(), target.data() + bytes);
        };
        const auto plain = decoded(SIZE_MAX, 0);
        EXPECT_TRUE(decoded(1, 0) == plain) << path.name << ' ' << name_of(type) << ' ' << bits;
        EXPECT_TRUE(decoded(1, 4) == plain) << path.name << ' ' << name_of(type) << ' ' << bits;
      }
    }
  }
}

// A table's functions called directly: no tensor in memory has 2^32 groups.
struct Groups {
  std::vector<unsigned char> metadata, codes, restored;
  unsigned escaped = 0;
};
Groups code_groups(const Kernels& table, ElementType type, unsigned bits, Transform transform,
                   const Bytes& source, std::uint64_t encoded_as, std::uint64_t decoded_as) {
  const std::size_t elements = source.size() / element_size(type);
  const bool transformed = transform != Transform::kNone;
  const GroupedLayout layout(type, bits, elements, transformed);
  Bytes metadata(layout.groups * layout.metadata_bytes_per_group), codes(layout.code_bytes);
  Bytes restored(source.size());
  BlockResult seen{};
  EncodeGroups job{};
  job.source = source.data();
  job.first_group = encoded_as;
  job.groups = elements / kGroupElements;
  job.tail_elements = elements % kGroupElements;
  job.bits = bits;
  job.transformed = transformed;
  job.scaled = transform == Transform::kHadamardScaled && has_scaled_groups(bits);
  job.nonce = 0x0123456789ABCDEF;
  job.metadata = metadata.data();
  job.codes = codes.data();
  job.result = &seen;
  table.encode[static_cast<int>(type)](job);
  EXPECT_EQ(table.count_escapes[static_cast<int>(type)](job), seen.escaped_groups);
  DecodeGroups back{};
  back.metadata = metadata.data();
  back.codes = codes.data();
  back.codes_end = codes.data() + codes.size();
  back.escapes = source.data();  // an escaped group's slot is zero: all of them read this one
  back.escape_count = 1;
  back.first_group = decoded_as;
  back.groups = job.groups;
  back.tail_elements = job.tail_elements;
  back.bits = bits;
  back.transformed = transformed;
  back.scaled = job.scaled;
  back.nonce = job.nonce;
  back.target = restored.data();
  EXPECT_TRUE(table.decode[static_cast<int>(type)](back));
  EXPECT_TRUE(metadata.guard_intact() && codes.guard_intact() && restored.guard_intact());
  const auto copy = [](const Bytes& bytes) {
    return std::vector<unsigned char>(bytes.data(), bytes.data() + bytes.size());
  };
  return {copy(metadata), copy(codes), copy(restored), seen.escaped_groups};
}

TEST(Identity, GroupNumbersBeyond32BitsCountInFullOnEveryPath) {
  const std::uint64_t low = 5, high = (std::uint64_t{1} << 32) + low;
  for (const ElementType type : kFloatTypes) {
    const Bytes source = mixed(type, 256 * 21 + 100, 6);
    for (const unsigned bits : {1u, 4u}) {
      for (const Transform transform :
           {Transform::kNone, Transform::kHadamard, Transform::kHadamardScaled}) {
        const auto code = [&](const Kernels& table, std::uint64_t encoded_as,
                              std::uint64_t decoded_as) {
          return code_groups(table, type, bits, transform, source, encoded_as, decoded_as);
        };
        const std::string what = std::string(name_of(type)) + " " + std::to_string(bits) +
                                 " bits, transform " + std::to_string(int(transform));
        const Groups expected = code(kScalarKernels, high, high);
        const Groups other = code(kScalarKernels, low, low);
        std::size_t differing = 0;
        for (std::size_t i = 0; i < expected.codes.size(); ++i)
          differing += expected.codes[i] != other.codes[i];
        EXPECT_GT(differing, expected.codes.size() / 8) << what;
        for (const Path& path : paths()) {
          const Groups out = code(*path.table, high, high);
          EXPECT_TRUE(out.metadata == expected.metadata) << path.name << " " << what;
          EXPECT_TRUE(out.codes == expected.codes) << path.name << " " << what;
          EXPECT_TRUE(out.restored == expected.restored) << path.name << " " << what;
          EXPECT_EQ(out.escaped, expected.escaped) << path.name << " " << what;
          const Groups mistaken = code(*path.table, high, low);
          EXPECT_FALSE(mistaken.restored == expected.restored) << path.name << " " << what;
        }
      }
    }
  }
}

#if defined(__x86_64__)
// Requests that have all of the codec's arithmetic between them.
struct Work {
  unsigned bits;
  Transform transform;
};
constexpr Work kWork[] = {{0, Transform::kNone},           {1, Transform::kNone},
                          {4, Transform::kNone},           {8, Transform::kNone},
                          {1, Transform::kHadamard},       {4, Transform::kHadamard},
                          {8, Transform::kHadamard},       {1, Transform::kHadamardScaled},
                          {2, Transform::kHadamardScaled}, {8, Transform::kHadamardScaled}};
// Lossless spans become frames; rotated ones have no more to escape than a payload holds.
Bytes normal(ElementType type, std::size_t elements) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> draw;
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) set_value(type, source.data(), e, draw(random));
  return source;
}

Encoded encode_over(const Bytes& source, std::size_t elements, ElementType type, const Work& work,
                    const Executor& executor) {
  Bytes buffer(source.size() + 4096);
  std::memcpy(buffer.data(), source.data(), source.size());
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(work.bits);
  spec.transform = work.transform;
  Encoded out;
  const EncodeResult result = encode_in_place(buffer.data(), buffer.size(), elements, type, spec, 1,
                                              executor, &out.statistics);
  out.status = result.status;
  if (result.status == Status::kOk)
    out.payload.assign(buffer.data(), buffer.data() + result.payload_bytes);
  return out;
}

// encode(), encode_in_place() and decode() within `run` against the same without.
template <class Run>
void expect_float_mode_changes_nothing(ElementType type, std::size_t elements,
                                       const Executor& executor, const Path& path, const Run& run) {
  const Bytes all_kinds = mixed(type, elements, 4), plain = normal(type, elements);
  for (const Work& work : kWork) {
    const bool quantised_as_is = work.bits != 0 && work.transform == Transform::kNone;
    const Bytes& source = quantised_as_is ? all_kinds : plain;
    const std::string what = path.name + " " + name_of(type) + " " + std::to_string(work.bits) +
                             " bits, transform " + std::to_string(int(work.transform));
    const Encoded reference = encode_span(source.data(), elements, type, work.bits, 1,
                                          serial_executor(), false, work.transform);
    ASSERT_EQ(reference.status, Status::kOk) << what;
    const auto kind = work.bits == 0 ? PayloadKind::kFramed : PayloadKind::kGrouped;
    ASSERT_EQ(reference.payload[6], static_cast<int>(kind)) << what;
    const auto restored = decode_span(reference.payload, source.size());
    Encoded out, over;
    std::vector<unsigned char> again;
    run([&] {
      out =
          encode_span(source.data(), elements, type, work.bits, 1, executor, false, work.transform);
      over = encode_over(source, elements, type, work, executor);
      again = decode_span(reference.payload, source.size(), executor);
    });
    expect_same(reference, out, what);
    expect_same(reference, over, what + ", in place");
    EXPECT_TRUE(restored == again) << what;
  }
}

constexpr unsigned kUsualMode = 0x1F80, kModeBits = 0xFFC0;

TEST(Identity, TheCallersFloatModeChangesNothingAndIsPutBack) {
  const unsigned original = _mm_getcsr();
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      // FTZ and DAZ, then each rounding direction, then both
      for (const unsigned mode : {0x8040u, 0x2000u, 0x4000u, 0x6000u, 0xE040u}) {
        expect_float_mode_changes_nothing(type, 20000, serial_executor(), path, [&](auto&& work) {
          _mm_setcsr(kUsualMode | mode);
          work();
          const unsigned after = _mm_getcsr();
          _mm_setcsr(original);
          EXPECT_EQ(after & kModeBits, kUsualMode | mode);
        });
      }
    }
  }
}

// Worker threads that another library left flushing subnormals and rounding towards zero.
TEST(Identity, TheWorkersFloatModeChangesNothingAndIsPutBack) {
  constexpr unsigned kMode = kUsualMode | 0xE040;
  std::atomic<int> calls{0};
  const Executor threads = thread_executor(7);
  const Executor flushing = [&](std::size_t items, std::size_t grain,
                                const std::function<void(std::size_t, std::size_t)>& body) {
    ++calls;
    threads(items, grain, [&](std::size_t begin, std::size_t end) {
      _mm_setcsr(kMode);
      body(begin, end);
      EXPECT_EQ(_mm_getcsr() & kModeBits, kMode);
    });
  };
  for (const Path& path : paths()) {
    if (path.name == "avx512 emulated") continue;  // slow
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      // 19 blocks of 64 groups: fewer than 17 are not worth a thread
      expect_float_mode_changes_nothing(type, 300001, flushing, path, [&](auto&& work) {
        calls = 0;
        work();
        EXPECT_GE(calls, 3) << "too small for threads";
      });
    }
  }
}
#endif

// A copy of `source` encoded in place holds what encode() makes of it.
void expect_bytes_of_encode_in_place(ElementType type, unsigned bits, const Bytes& source,
                                     const std::string& what) {
  const std::size_t elements = source.size() / element_size(type);
  const Encoded reference = encode_span(source.data(), elements, type, bits, 8);
  ASSERT_EQ(reference.status, Status::kOk) << what;
  Bytes place(source.size());
  std::memcpy(place.data(), source.data(), source.size());
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(bits);
  SpanStatistics statistics;
  const EncodeResult result = encode_in_place(place.data(), place.size(), elements, type, spec, 8,
                                              thread_executor(7), &statistics);
  EXPECT_TRUE(place.guard_intact()) << what;
  const bool larger = reference.payload.size() > source.size();
  if (larger || result.status == Status::kNoRoom) {  // or not provable beforehand: untouched
    EXPECT_EQ(result.status, Status::kNoRoom) << what;
    EXPECT_EQ(std::memcmp(place.data(), source.data(), source.size()), 0) << what;
    EXPECT_TRUE(larger || elements < 2000) << what;
    return;
  }
  ASSERT_EQ(result.status, Status::kOk) << what;
  ASSERT_EQ(result.payload_bytes, reference.payload.size()) << what;
  EXPECT_EQ(std::memcmp(place.data(), reference.payload.data(), result.payload_bytes), 0) << what;
  expect_same(reference, {result.status, reference.payload, statistics}, what);
}

TEST(InPlace, GivesTheBytesOfEncode) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    for (const std::size_t elements : {256, 1000, 65539, 4000001}) {
      const bool large = elements > 70000;
      for (const bool plain : {true, false}) {
        Bytes source =
            plain ? mixed(type, elements, 8, large) : Bytes(elements * element_size(type));
        if (!plain)
          for (std::size_t e = 0; e < elements; ++e)
            set_value(type, source.data(), e, double(random() % 2));
        for (const Path& path : paths()) {
          if (path.name == "avx512 emulated" && large) continue;  // slow
          const UsePath use(path);
          for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
            if (path.name == "scalar" && large && bits != 4) continue;
            if (large && !plain && bits % 4 != 0) continue;
            expect_bytes_of_encode_in_place(type, bits, source,
                                            path.name + " " + name_of(type) + " " +
                                                std::to_string(bits) + " bits, " +
                                                std::to_string(elements));
          }
        }
      }
    }
  }
}

TEST(InPlace, IntegersAndBooleansToo) {
  std::mt19937_64 random(seed());
  for (const std::size_t elements : {std::size_t{300}, std::size_t{70001}, std::size_t{3000001}}) {
    for (const std::int64_t values : {2, 3, 200, 60000, 3000000}) {
      std::vector<std::int64_t> numbers(elements);
      for (auto& number : numbers) number = static_cast<std::int64_t>(random() % values) - 7;
      numbers[0] = -7;
      numbers[1] = values - 8;
      const Encoded reference = encode_span(numbers.data(), elements, ElementType::kInt64, 0);
      Bytes buffer(elements * 8);
      std::memcpy(buffer.data(), numbers.data(), buffer.size());
      const EncodeResult result =
          encode_in_place(buffer.data(), buffer.size(), elements, ElementType::kInt64, {}, 1,
                          thread_executor(5), nullptr);
      ASSERT_EQ(result.status, Status::kOk);
      ASSERT_EQ(result.payload_bytes, reference.payload.size());
      EXPECT_EQ(std::memcmp(buffer.data(), reference.payload.data(), result.payload_bytes), 0);
    }
    Bytes flags(elements);
    for (std::size_t e = 0; e < elements; ++e) flags.data()[e] = random() & 1;
    const Encoded reference = encode_span(flags.data(), elements, ElementType::kBool, 0);
    const EncodeResult result = encode_in_place(
        flags.data(), elements, elements, ElementType::kBool, {}, 1, thread_executor(5), nullptr);
    ASSERT_EQ(result.status, Status::kOk);
    EXPECT_EQ(std::memcmp(flags.data(), reference.payload.data(), result.payload_bytes), 0);
  }
}

TEST(InPlace, RefusalsLeaveTheSourceUntouched) {
  const std::size_t elements = 256 * 64;
  Bytes source(elements * 4);
  for (std::size_t e = 0; e < elements; ++e) source.as<float>()[e] = std::sin(double(e));
  source.as<float>()[5] = NAN;
  source.as<float>()[5000] = NAN;
  const std::vector<unsigned char> before(source.data(), source.data() + source.size());
  CodecSpec spec;
  spec.bits = 2;
  EXPECT_EQ(encode_in_place(source.data(), source.size(), elements, ElementType::kFloat32, spec, 1,
                            serial_executor(), nullptr)
                .status,
            Status::kTooManyEscapes);
  EXPECT_EQ(std::memcmp(before.data(), source.data(), source.size()), 0);
  spec.force_raw = true;
  EXPECT_EQ(encode_in_place(source.data(), source.size(), elements, ElementType::kFloat32, spec, 1,
                            serial_executor(), nullptr)
                .status,
            Status::kNoRoom);
  EXPECT_EQ(std::memcmp(before.data(), source.data(), source.size()), 0);
}

TEST(Isa, NamesAndChoice) {
  EXPECT_TRUE(isa_supported(Isa::kScalar));
  EXPECT_STREQ(isa_name(Isa::kAvx512), "avx512");
  set_isa(Isa::kScalar);
  EXPECT_EQ(active_isa(), Isa::kScalar);
  EXPECT_EQ(&kernels(), &kScalarKernels);
  set_isa(Isa::kAuto);
  EXPECT_NE(active_isa(), Isa::kAuto);
}

}  // namespace
}  // namespace pleat::compress::test

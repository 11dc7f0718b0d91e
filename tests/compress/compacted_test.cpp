// Blocks whose slots have the size their group needs: which blocks are compacted, to how many
// bytes, by docs/payload_format.md; and that the restored values do not depend on it.
#include "tests/compress/fixed_payload.h"
#include "tests/compress/support.h"
#include "tests/compress/wide_groups.h"

namespace pleat::compress::test {
namespace {

constexpr unsigned kSomeWidths[] = {0, 1, 2, 3, 4, 6, 8};

enum class Group { kConstant, kTwoValued, kZeroKept, kRegular };

// `zeros` of a zero-kept group's 256 elements, at random places; element 0 is one of them.
void fill_group(ElementType type, unsigned char* data, std::size_t elements, Group group,
                std::size_t zeros, std::mt19937_64& random) {
  std::vector<unsigned char> zero(256, 0);
  std::fill_n(zero.begin(), zeros, 1);
  std::shuffle(zero.begin() + 1, zero.end(), random);
  for (std::size_t e = 0; e < elements; ++e) {
    const double x = 1 + double(random() % 1000) / 8;
    set_value(type, data, e,
              group == Group::kConstant    ? 3.0
              : group == Group::kTwoValued ? double(e % 2)
              : group == Group::kZeroKept  ? (zero[e] ? 0.0 : x)
                                           : x - 60);
  }
}

struct Sizes {
  std::size_t regular, squeezed;
};
// What a block's slots take, by the elements of its groups.
Sizes sizes_of_block(ElementType type, unsigned bits, const unsigned char* block,
                     std::size_t elements) {
  const std::size_t slot = 32 * std::max(bits, 1u), size = element_size(type);
  Sizes sizes{0, 0};
  for (std::size_t from = 0; from < elements; from += 256) {
    const std::size_t count = std::min<std::size_t>(256, elements - from);
    std::vector<std::string> patterns;
    std::size_t above = 0;
    bool below = false;
    for (std::size_t e = from; e < from + count; ++e) {
      const double x = value_at(type, block, e);
      above += x > 0 ? 1 : 0;
      below = below || x < 0;
      const std::string pattern(reinterpret_cast<const char*>(block + e * size), size);
      if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end() &&
          patterns.size() < 3)
        patterns.push_back(pattern);
    }
    const bool zero_kept = bits >= 2 && !below && above < count;
    sizes.regular += slot;
    sizes.squeezed += patterns.size() == 1   ? 0
                      : patterns.size() == 2 ? 32
                      : zero_kept            ? 32 + bits * ((above + 7) / 8)
                                             : slot;
  }
  return sizes;
}

std::size_t expected_bytes(ElementType type, unsigned bits, const unsigned char* source,
                           std::size_t elements, std::size_t* compacted_blocks) {
  const GroupedLayout layout(type, bits, elements, false);
  std::size_t bytes = layout.codes_offset;
  for (std::size_t from = 0; from < elements; from += kBlockElements) {
    const Sizes sizes = sizes_of_block(type, bits, source + from * element_size(type),
                                       std::min(kBlockElements, elements - from));
    const bool pays =
        sizes.squeezed + std::max<std::size_t>(sizes.regular / 8, 16) <= sizes.regular;
    *compacted_blocks += pays ? 1 : 0;
    bytes += pays ? sizes.squeezed : sizes.regular;
  }
  return bytes + (*compacted_blocks != 0 ? layout.offset_table_bytes() : 0);
}

// The payload's size is the promised one, in place too, and what it restores is what the payload of
// which nothing is compacted restores. Returns how many blocks are compacted.
std::size_t check(ElementType type, unsigned bits, const Bytes& source, const std::string& what) {
  const std::size_t elements = source.size() / element_size(type);
  const Encoded out = encode_span(source.data(), elements, type, bits, 77);
  EXPECT_EQ(out.status, Status::kOk) << what;
  std::size_t compacted = 0;
  EXPECT_EQ(out.payload.size(), expected_bytes(type, bits, source.data(), elements, &compacted))
      << what;
  EXPECT_EQ(out.payload[9] & kFlagCompacted, compacted != 0 ? kFlagCompacted : 0) << what;
  const auto fixed = fixed_payload(type, bits, Transform::kNone, elements, 77, source.data());
  EXPECT_FALSE(fixed.empty()) << what;
  const auto restored = decode_span(out.payload, source.size());
  EXPECT_TRUE(restored == decode_span(fixed, source.size())) << what;
  for (const std::size_t threads : {2, 5}) {
    EXPECT_TRUE(
        encode_span(source.data(), elements, type, bits, 77, thread_executor(threads)).payload ==
        out.payload)
        << what;
    EXPECT_TRUE(decode_span(out.payload, source.size(), thread_executor(threads)) == restored)
        << what;
  }
  Bytes place(source.size() + 64);
  std::memcpy(place.data(), source.data(), source.size());
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(bits);
  const EncodeResult result = encode_in_place(place.data(), place.size(), elements, type, spec, 77,
                                              serial_executor(), nullptr);
  EXPECT_EQ(result.status, Status::kOk) << what;
  EXPECT_TRUE(place.guard_intact()) << what;
  EXPECT_TRUE(std::vector<unsigned char>(place.data(), place.data() + result.payload_bytes) ==
              out.payload)
      << what;
  return compacted;
}

TEST(Compacted, BlocksThatSaveAnEighthTakeWhatTheirGroupsNeed) {
  std::mt19937_64 random(seed());
  std::size_t all = 0, none = 0, some = 0;
  for (const ElementType type : kFloatTypes) {
    for (const unsigned bits : kSomeWidths) {
      for (unsigned mixture = 0; mixture < 12; ++mixture) {
        // Blocks of their own density of zeros and of other groups; the last block and group
        // short.
        const std::size_t groups = 64 * 5 + 7, elements = 256 * groups - 101;
        Bytes source(elements * element_size(type));
        for (std::size_t g = 0; g < groups; ++g) {
          const std::size_t block = g / 64, count = std::min<std::size_t>(256, elements - 256 * g);
          // Lossless regular groups would be too many to escape.
          const Group other = bits == 0 ? Group::kTwoValued : Group::kRegular;
          Group group = other;
          if (mixture == 0 || random() % 12 < mixture)
            group = bits == 0 || random() % 4 == 0
                        ? (random() % 2 == 0 ? Group::kConstant : Group::kTwoValued)
                        : Group::kZeroKept;
          const std::size_t zeros = 1 + (mixture == 0 ? 250 : random() % 60 + 40 * block);
          fill_group(type, source.data() + 256 * g * element_size(type), count, group,
                     std::min<std::size_t>(zeros, 250), random);
        }
        for (const Path& path : paths()) {
          if (path.name == "avx512 emulated" && mixture % 5 != 0) continue;  // slow
          const UsePath use(path);
          const std::size_t compacted =
              check(type, bits, source,
                    path.name + " " + name_of(type) + " " + std::to_string(bits) +
                        " bits, mixture " + std::to_string(mixture));
          ++(compacted == 0 ? none : compacted == 6 ? all : some);
        }
      }
    }
  }
  EXPECT_GT(all, 0u);
  EXPECT_GT(none, 0u);
  EXPECT_GT(some, 0u);
}

TEST(Compacted, AnyNumberOfZerosInAGroup) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : {2u, 3u, 4u, 6u, 8u}) {
        // Half of the blocks save enough; the first group of a block has up to 254 zeros.
        for (const std::size_t least : {1, 190}) {
          const std::size_t groups = 64;
          Bytes source(256 * groups * element_size(type));
          for (std::size_t g = 0; g < groups; ++g)
            fill_group(type, source.data() + 256 * g * element_size(type), 256, Group::kZeroKept,
                       least + g, random);
          EXPECT_EQ(check(type, bits, source, path.name + " " + name_of(type)),
                    least == 1 ? 0u : 1u)
              << bits;
        }
      }
    }
  }
}

// One block has no room to grow: a buffer of payload_bound() holds what a group or two become.
TEST(Compacted, SmallSpans) {
  std::mt19937_64 random(seed());
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
        for (const std::size_t elements : {200, 256, 300, 512, 600}) {
          Bytes source(elements * element_size(type));
          for (std::size_t from = 0; from < elements; from += 256)
            fill_group(type, source.data() + from * element_size(type),
                       std::min<std::size_t>(256, elements - from),
                       random() % 3 != 0 ? Group::kZeroKept : Group::kConstant, random() % 190 + 1,
                       random);
          fill_group(type, source.data(), std::min<std::size_t>(256, elements), Group::kZeroKept,
                     random() % 190 + 1, random);
          check(type, bits, source,
                path.name + " " + name_of(type) + " " + std::to_string(bits) + " bits " +
                    std::to_string(elements));
        }
      }
    }
  }
}

// Escaped groups are numbered where their slots are: their block keeps all its slots.
TEST(Compacted, BlocksWithEscapedGroupsAreNot) {
  std::mt19937_64 random(seed());
  const std::size_t groups = 192;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type);
    Bytes source(256 * groups * size);
    for (std::size_t g = 0; g < groups; ++g)
      fill_group(type, source.data() + 256 * g * size, 256, Group::kZeroKept, 200, random);
    set_value(type, source.data(), 256 * 70 + 9, INFINITY);
    const Encoded out = encode_span(source.data(), 256 * groups, type, 2, 77);
    ASSERT_EQ(out.status, Status::kOk);
    EXPECT_EQ(out.statistics.escaped_groups, 1u);
    EXPECT_EQ(out.payload.size(), GroupedLayout(type, 2, 256 * groups, false).codes_offset +
                                      128 * (32 + 2 * 7) + 64 * 64 + 3 * 8 + 256 * size);
    const auto fixed = fixed_payload(type, 2, Transform::kNone, 256 * groups, 77, source.data());
    EXPECT_TRUE(decode_span(out.payload, source.size()) == decode_span(fixed, source.size()));
    // From 3 bits on the group is a wide one, which keeps its slot.
    for (const unsigned bits : {3u, 4u, 6u, 8u}) {
      const Encoded wide = encode_span(source.data(), 256 * groups, type, bits, 77);
      ASSERT_EQ(wide.status, Status::kOk);
      EXPECT_EQ(wide_groups(wide.payload), 1u);
      EXPECT_EQ(wide.payload.size(), GroupedLayout(type, bits, 256 * groups, false).codes_offset +
                                         191 * (32 + bits * 7) + 32 * bits + 3 * 8);
      const auto whole =
          fixed_payload(type, bits, Transform::kNone, 256 * groups, 77, source.data());
      EXPECT_TRUE(decode_span(wide.payload, source.size()) == decode_span(whole, source.size()));
    }
  }
}

// Rotated groups keep their slots; constant and two-valued ones, which are not rotated, do not.
TEST(Compacted, RotatedGroupsKeepTheirSlots) {
  std::mt19937_64 random(seed());
  const std::size_t groups = 128;
  for (const Path& path : paths()) {
    const UsePath use(path);
    for (const ElementType type : kFloatTypes) {
      const std::size_t size = element_size(type);
      Bytes source(256 * groups * size);
      for (std::size_t g = 0; g < groups; ++g)
        fill_group(type, source.data() + 256 * g * size, 256,
                   g >= 64 && g % 2 == 0 ? Group::kConstant : Group::kZeroKept, 200, random);
      const Encoded out = encode_span(source.data(), 256 * groups, type, 4, 77, serial_executor(),
                                      false, Transform::kHadamard);
      ASSERT_EQ(out.status, Status::kOk);
      EXPECT_EQ(out.payload.size(),
                GroupedLayout(type, 4, 256 * groups, true).codes_offset + 96 * 128 + 2 * 8);
      const auto fixed =
          fixed_payload(type, 4, Transform::kHadamard, 256 * groups, 77, source.data());
      EXPECT_TRUE(decode_span(out.payload, source.size()) == decode_span(fixed, source.size()));
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test

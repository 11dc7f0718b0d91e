// Payloads with exponents for parts of rows and for channels, and with kept zeros, byte by byte.
#include <cstring>

#include "compress/format.h"
#include "tests/compress/block_reference.h"
#include "tests/compress/exponent_support.h"

namespace pleat::compress::test {
namespace {

using Buffer = std::vector<unsigned char>;
constexpr std::uint64_t kNonce = kExponentNonce;

struct Expected {
  Buffer payload, without;  // its exponents
  std::vector<std::int8_t> parts;
};
// The payload by the document: that of the raised elements, with the section of exponents, and with
// the source's elements of escaped groups.
Expected expected_payload(const Bytes& source, ElementType type, CodecSpec spec,
                          const ReferenceExponents& exponents) {
  const std::size_t size = element_size(type), elements = source.size() / size;
  const bool transformed = spec.transform != Transform::kNone;
  Raised raised = raise_elements(type, source.data(), elements, exponents, transformed, spec.zeros);
  Bytes words(source.size());
  std::memcpy(words.data(), raised.elements.data(), source.size());
  spec.exponents = {};
  Buffer payload = encode_with(words, type, spec).payload;
  EXPECT_EQ(payload.at(6), 1) << "a case that is not grouped";
  const std::size_t word = transformed ? 4 : size, groups = (elements + 255) / 256;
  std::uint64_t code_bytes;
  std::memcpy(&code_bytes, &payload[48], 8);
  std::size_t at = 64 + (groups * 2 * word + 63) / 64 * 64 + code_bytes;
  if ((payload[9] & 1) != 0) at += 8 * ((groups + 63) / 64);
  std::size_t escaped = at, p = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t from = p;
    for (std::size_t e = g * 256; e < std::min(elements, (g + 1) * 256); ++e)
      p += e % 256 == 0 || e % exponents.row == 0;
    const unsigned char* const metadata = &payload[64 + g * 2 * word];
    Buffer mark(2 * word, 0);
    mark[word - 1] = mark[2 * word - 1] = 0x80;
    if (std::memcmp(metadata, mark.data(), mark.size()) != 0) continue;
    std::fill(raised.parts.begin() + long(from), raised.parts.begin() + long(p), 0);
    const std::size_t begin = g * 256 * size;
    std::memcpy(&payload[escaped], source.data() + begin,
                std::min(source.size() - begin, 256 * size));
    escaped += 256 * size;
  }
  EXPECT_EQ(p, raised.parts.size());
  if (spec.compact && exponents.table.empty() &&
      std::ranges::all_of(raised.parts, [](std::int8_t e) { return e == 0; }))
    return {payload, payload, raised.parts};
  const Buffer without = payload;
  Buffer section(raised.parts.begin(), raised.parts.end());
  if (!exponents.table.empty()) section.resize((section.size() + 7) / 8 * 8);
  section.insert(section.end(), exponents.table.begin(), exponents.table.end());
  section.resize((section.size() + 63) / 64 * 64);
  payload.insert(payload.begin() + long(at), section.begin(), section.end());
  payload[9] |= 64;
  const std::uint32_t numbers[4] = {static_cast<std::uint32_t>(exponents.row),
                                    static_cast<std::uint32_t>(exponents.inner),
                                    static_cast<std::uint32_t>(exponents.table.size()), 0};
  std::memcpy(&payload[40], numbers, 8);
  std::memcpy(&payload[56], numbers + 2, 8);
  const std::uint64_t bytes = payload.size();
  std::memcpy(&payload[32], &bytes, 8);
  return {payload, without, raised.parts};
}

struct Shape {
  std::size_t row, channels, inner, elements;
};
constexpr Shape kShapes[] = {
    {1, 0, 1, 700},  // parts of one element
    {8, 0, 1, 256 * 5 + 3},
    {8, 8, 1, 256 * 4},
    {17, 0, 1, 256 * 9 + 57},
    {24, 24, 1, 256 * 66 + 31},
    {64, 0, 1, 256 * 67},
    {64, 64, 1, 256 * 9 + 57},
    {100, 300, 1, 5000},
    {192, 0, 1, 256 * 70 + 1},
    {300, 0, 1, 256 * 67 + 255},
    {300, 300, 1, 9000},
    {255, 1, 1, 3000},
    {257, 257, 1, 4000},
    {256, 256, 1, 256 * 9},
    {512, 512, 1, 256 * 65 + 9},
    {768, 100, 7, 256 * 20},  // channels of maps
    {1152, 0, 1, 256 * 18},
    {4096, 16, 256, 256 * 40},
    {5000, 0, 1, 5000},  // one row
    {77, 5, 1000, 4000},
    {3000, 3000, 1, 9000},
};

TEST(Exponents, BytesAreThoseOfTheReference) {
  std::mt19937_64 random(seed());
  std::size_t moved = 0, escaped = 0, compacted = 0, in_place = 0;
  for (const Shape& shape : kShapes) {
    for (const ElementType type : kFloatTypes) {
      ReferenceExponents exponents{shape.row, shape.inner, {}};
      if (shape.channels != 0) exponents.table = random_table(shape.channels, random);
      // At 8 bits exponents of single elements would not pay.
      CodecSpec spec = spec_of(kWidths[random() % (shape.row == 1 ? 4 : 6)], exponents);
      const unsigned transform = random() % 4;
      if (transform < 2) spec.transform = Transform(1 + transform);
      spec.zeros = transform >= 2 && spec.bits >= 2 && random() % 2 == 0;
      spec.compact = random() % 2 == 0;
      spec.escape_64ths = 64;
      if (random() % 4 == 0) spec.widest_step = 0.5f;
      const Bytes source =
          rows_of_all_sorts(type, shape.elements, shape.row, shape.channels, random);
      const auto [expected, without, parts] = expected_payload(source, type, spec, exponents);
      const std::string what = std::string(name_of(type)) + " row " + std::to_string(shape.row) +
                               " bits " + std::to_string(spec.bits) + " transform " +
                               std::to_string(int(spec.transform));
      moved += (expected[9] & 64) != 0;
      compacted += expected[9] & 1;
      Buffer restored;
      if (spec.transform == Transform::kNone) {
        restored = reference_block(expected, source.size(), false);
      } else {
        restored = decode_span(without, source.size());
        lower_elements(type, parts, exponents, shape.elements, restored.data());
      }
      for (const Path& path : paths()) {
        const UsePath use(path);
        const bool threads = random() % 2 == 0;
        const Executor executor = threads ? thread_executor(1) : serial_executor();
        const Encoded out = encode_with(source, type, spec, kNonce, executor);
        ASSERT_EQ(out.status, Status::kOk) << what;
        ASSERT_TRUE(out.payload == expected) << path.name << " " << what;
        escaped += out.statistics.escaped_groups;
        EXPECT_EQ(count_escapes({source.data(), shape.elements, type}, spec, kNonce, executor),
                  out.statistics.escaped_groups)
            << path.name << " " << what;
        const Buffer back = decode_span(out.payload, source.size(), executor);
        ASSERT_TRUE(back == restored) << path.name << " " << what;
        Bytes place(source.size() + 4096);
        std::memcpy(place.data(), source.data(), source.size());
        const EncodeResult result = encode_in_place(place.data(), place.size(), shape.elements,
                                                    type, spec, kNonce, executor, nullptr);
        if (result.status == Status::kNoRoom) continue;
        ASSERT_EQ(result.status, Status::kOk) << path.name << " " << what;
        EXPECT_TRUE(Buffer(place.data(), place.data() + result.payload_bytes) == expected)
            << path.name << " " << what;
        EXPECT_TRUE(place.guard_intact());
        ++in_place;
      }
    }
  }
  EXPECT_GT(moved, 50u);
  EXPECT_GT(escaped, 50u);
  EXPECT_GT(compacted, 0u);
  EXPECT_GT(in_place, 100u);
}

TEST(Exponents, NothingBeyondTheBufferIsWritten) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    const std::size_t row = 24, elements = 256 * 70 + 11;
    ReferenceExponents exponents{row, 1, random_table(row, random)};
    CodecSpec spec = spec_of(4, exponents);
    const Bytes source = rows_of_all_sorts(type, elements, row, row, random);
    spec.compact = false;
    const std::size_t groups = (elements + 255) / 256, size = element_size(type);
    const std::size_t section = (part_ends(row, elements).size() + row + 63) / 64 * 64;
    const std::size_t needed = 64 + (groups * 2 * size + 63) / 64 * 64 + groups * 128 + section;
    EXPECT_EQ(payload_bound(spec, type, elements), needed);
    for (const std::size_t capacity : {needed, needed - 1, needed - section, needed / 2}) {
      Bytes buffer(capacity);
      const EncodeResult result = encode({source.data(), elements, type}, spec, kNonce,
                                         buffer.data(), capacity, serial_executor(), nullptr);
      EXPECT_TRUE(buffer.guard_intact());
      EXPECT_EQ(result.status, capacity == needed ? Status::kOk : Status::kNoRoom);
      if (capacity == needed) {
        EXPECT_EQ(result.payload_bytes, needed);
      }
    }
  }
}

}  // namespace
}  // namespace pleat::compress::test

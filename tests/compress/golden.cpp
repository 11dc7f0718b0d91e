#include "tests/compress/golden.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "compress/format.h"
#include "compress/grouped/group_math.h"
#include "tests/compress/fixed_payload.h"
#include "tests/compress/golden_blocks.h"

namespace pleat::compress::golden {
namespace {

class Random {  // splitmix64
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  // The sum of four uniform 16-bit numbers: nearly Gaussian, exact.
  float bell() {
    const std::uint64_t bits = (*this)();
    std::int32_t sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += static_cast<std::int32_t>((bits >> (16 * i)) & 0xFFFF) - 0x8000;
    return static_cast<float>(sum) * (1.0f / 32768.0f);
  }

 private:
  std::uint64_t state_;
};

std::uint32_t word_of(ElementType type, float value) {
  return type == ElementType::kFloat32    ? bits_of(value)
         : type == ElementType::kBFloat16 ? bfloat_of(value)
                                          : half_of(value);
}
float power_of_two(int exponent) {
  return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

constexpr const char* kContents[] = {"bell",    "relu",     "cubed",   "offset", "negative",
                                     "mixture", "extremes", "special", "wide"};

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr std::pair<const char*, Sides> kSides[] = {
    {"above-zero", {Sides::Kind::kOpen, true, 0, kInfinite}},
    {"between", {Sides::Kind::kOpen, false, -0.5f, 1}},
    {"zero-to-one", {Sides::Kind::kClosed, false, 0, 1}},
    {"at-most-a-half", {Sides::Kind::kClosed, true, -kInfinite, 0.5f}},
    {"sign", {Sides::Kind::kThree, false, 0, 0}},
};

float content(int kind, ElementType type, std::size_t e, Random& random) {
  const float x = random.bell();
  const std::size_t group = e / 256;
  const int least = type == ElementType::kFloat16 ? -14 : -90;
  const int reach = type == ElementType::kFloat16 ? 14 : 118;
  switch (kind) {
    case 1:
      return x > 0 ? x : 0;
    case 2:
      return x * x * x * 10.0f;
    case 3:
      return x + 100.0f;
    case 4:
      return -(x * x) - 0.001f;
    case 5:
      return group % 4 == 0   ? 1.25f
             : group % 4 == 1 ? (x > 0 ? 1.0f / 0.875f : 0.0f)
                              : (group % 4 == 2 && x < 0.5f ? 0.0f : x);
    case 6:
      return x * power_of_two(static_cast<int>(group * 31 % unsigned(reach - least)) + least);
    case 8: {  // NaN and Inf in every group, ranges that overflow, zeros beside positive ones
      const float largest = type == ElementType::kFloat16    ? 65504.0f
                            : type == ElementType::kBFloat16 ? float_of(0x7F7F0000)
                                                             : float_of(0x7F7FFFFF);
      const std::uint64_t draw = random();
      const float odd = draw % 3 == 0   ? -kInfinite
                        : draw % 3 == 1 ? kInfinite
                                        : float_of(0x7FC00000);
      switch (group % 6) {
        case 0:
          return draw / 3 % 16 == 0 ? odd : x;
        case 1:
          return draw / 3 % 2 == 0 ? odd : -(x * x) - 1.0f;
        case 2:
          return e % 256 == 77 ? x : odd;
        case 3:
          return largest * (x * 0.25f);
        case 4:
          return e % 256 == 3 ? kInfinite : x > 0 ? x : 0;
        default:
          return e % 256 == 9 ? odd : largest * (e % 2 == 0 ? 1.0f : -1.0f) * (x * 0.1f + 0.6f);
      }
    }
    default:
      return x;
  }
}

}  // namespace

std::vector<unsigned char> floats(int kind, ElementType type, std::size_t elements,
                                  std::uint64_t seed) {
  Random random(seed);
  const std::size_t size = element_size(type);
  std::vector<unsigned char> bytes(elements * size);
  const std::uint32_t sign = size == 4 ? 0x80000000u : 0x8000u;
  for (std::size_t e = 0; e < elements; ++e) {
    std::uint32_t word = word_of(type, content(kind, type, e, random));
    if (kind == 7) {  // one group with NaNs of every sort, then -0, subnormals, zeros
      if (e / 256 == 3) word = static_cast<std::uint32_t>(random());
      if (e == 3 * 256) word = word_of(type, float_of(0x7F800000)) | 1;
      if (e / 256 % 3 == 1 && e % 5 == 0) word = e % 2 ? sign : 0;
      if (e / 256 == 8 && e % 5 == 0) word = static_cast<std::uint32_t>(random() % 100) + 1;
    }
    std::memcpy(bytes.data() + e * size, &word, size);  // little endian
  }
  return bytes;
}

namespace {

// Rows of five sizes, zeros among them, and some that hold NaN, Inf or one value; a channel of each
// 16 is larger than the others.
std::vector<unsigned char> rows(ElementType type, std::size_t elements, std::size_t row,
                                std::size_t inner, std::uint64_t seed) {
  Random random(seed);
  const std::size_t size = element_size(type);
  std::vector<unsigned char> bytes(elements * size);
  constexpr float kScales[] = {1.0f, 0.01f, 0.0f, 1.0f / 1024, -1.0f, 0.3f};
  for (std::size_t e = 0; e < elements; ++e) {
    const std::size_t r = e / row;
    float x = random.bell() * kScales[r % 6];
    if (e / inner % 16 == 3) x *= 20.0f;
    if (e / 256 % 9 == 4) x = e % 3 == 0 ? 1.5f : 0.0f;
    if (r % 23 == 7 && e % 16 == 5) x = e % 32 == 5 ? kInfinite : -kInfinite;
    if (r % 23 == 8 && e % 16 == 5) x = float_of(0x7FC00000);
    const std::uint32_t word = word_of(type, x);
    std::memcpy(bytes.data() + e * size, &word, size);  // little endian
  }
  return bytes;
}

// Entries for up to 4096 channels.
const std::int8_t* exponent_table() {
  static const std::vector<std::int8_t> table = [] {
    std::vector<std::int8_t> entries(4096);
    for (std::size_t c = 0; c < entries.size(); ++c)
      entries[c] = static_cast<std::int8_t>(c % 16 == 3 ? -4 : c % 101 == 100 ? -30 : 0);
    return entries;
  }();
  return table.data();
}

using Add =
    std::function<void(const std::string&, ElementType, CodecSpec, std::vector<unsigned char>)>;

void add_exponents(const Add& add) {
  struct Shape {
    const char* what;
    std::uint32_t row, channels, inner;
  };
  constexpr Shape kShapes[] = {{"row24", 24, 0, 1},
                               {"row64-table", 64, 64, 1},
                               {"row300", 300, 0, 1},
                               {"row1024-table", 1024, 1024, 1},
                               {"map", 784, 16, 49}};
  const std::size_t elements = 256 * 66 + 57;
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const unsigned bits : {1u, 2u, 3u, 4u, 6u, 8u}) {
      for (std::size_t i = 0; i < std::size(kShapes); ++i) {
        const Shape& shape = kShapes[i];
        CodecSpec spec;
        spec.bits = static_cast<std::uint8_t>(bits);
        spec.escape_64ths = 64;
        spec.exponents = {shape.row, shape.channels, shape.inner,
                          shape.channels == 0 ? nullptr : exponent_table()};
        spec.zeros = bits >= 2 && (bits + i) % 2 == 0;
        if ((bits + i) % 3 == 0) spec.transform = Transform::kHadamard;
        if (bits <= 2 && i == 3) spec.transform = Transform::kHadamardScaled;
        add("exponents/" + std::to_string(bits) + "bits/" + shape.what +
                (spec.transform != Transform::kNone ? "/rotated"
                 : spec.zeros                       ? "/zeros"
                                                    : ""),
            type, spec, rows(type, elements, shape.row, shape.inner, 31 * bits + i));
      }
    }
    for (const unsigned bits : {2u, 4u, 8u}) {
      CodecSpec spec;
      spec.bits = static_cast<std::uint8_t>(bits);
      spec.zeros = true;
      add("zeros/" + std::to_string(bits) + "bits", type, spec,
          floats(5, type, elements, 500 + bits));
    }
  }
}

}  // namespace

std::string hash_of(const std::vector<unsigned char>& bytes) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash);
  return digits;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const char* const names[] = {"float32", "bfloat16", "float16", "bool", "int64", "int32", "bytes"};
  const auto add = [&](const std::string& what, ElementType type, CodecSpec spec,
                       std::vector<unsigned char> source) {
    const std::size_t elements = source.size() / element_size(type);
    all.push_back({std::string(names[static_cast<int>(type)]) + "/" + what, type, spec, elements,
                   std::move(source)});
  };
  const std::size_t elements = 256 * 70 + 57;  // more than a block, and a short group
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
      CodecSpec spec;
      spec.bits = static_cast<std::uint8_t>(bits);
      const std::string what = std::to_string(bits) + "bits/";
      for (int kind = 0; kind < 8; ++kind)
        add(what + kContents[kind], type, spec,
            floats(kind, type, elements, 1000 * bits + 10 * unsigned(kind) + unsigned(type)));
      if (bits == 0) continue;
      if (has_wide_groups(bits))
        add(what + kContents[8], type, spec, floats(8, type, elements, 90 + bits));
      spec.transform = Transform::kHadamard;
      if (has_wide_groups(bits))
        add(what + "hadamard/" + kContents[8], type, spec, floats(8, type, elements, 99 * bits));
      for (const int kind : {2, 5, 7})
        add(what + "hadamard/" + kContents[kind], type, spec,
            floats(kind, type, elements, 77 * bits + unsigned(kind)));
      if (bits > 2) continue;
      spec.transform = Transform::kHadamardScaled;
      for (const int kind : {2, 5, 7})
        add(what + "scaled/" + kContents[kind], type, spec,
            floats(kind, type, elements, 77 * bits + unsigned(kind)));
    }
    for (const auto& [what, sides] : kSides)
      for (const int kind : {0, 1, 7})
        add(std::string("sides/") + what + "/" + kContents[kind], type, {.sides = sides},
            floats(kind, type, elements, 5 + unsigned(kind)));
  }
  for (const ElementType type : {ElementType::kInt64, ElementType::kInt32}) {
    const std::size_t size = element_size(type);
    for (const unsigned width : {0u, 1u, 2u, 3u, 7u, 13u, 16u, 30u, 64u}) {
      Random random(width);
      std::vector<unsigned char> source((1024 * 9 + 77) * size);
      for (std::size_t e = 0; e * size < source.size(); ++e) {
        const unsigned wide = e / 1024 == 4 ? 24 : width;  // one frame unlike the others
        const std::uint64_t mask = wide == 64 ? ~0ull : (1ull << wide) - 1;
        const std::uint64_t value = (random() & mask) - (e / 1024) * 1000;
        std::memcpy(source.data() + e * size, &value, size);
      }
      add(std::to_string(width) + "bits", type, {}, std::move(source));
    }
  }
  Random random(5);
  std::vector<unsigned char> flags(70001);
  for (auto& flag : flags) flag = static_cast<unsigned char>(random() & 1);
  add("flags", ElementType::kBool, {}, flags);
  flags[69000] = 2;
  add("not-flags", ElementType::kBool, {}, flags);
  add("repeated", ElementType::kFloat32, {}, std::vector<unsigned char>(4000, 0x41));
  add("any", ElementType::kBytes, {}, floats(0, ElementType::kFloat32, 777, 3));
  CodecSpec raw;
  raw.bits = 4;
  raw.force_raw = true;
  add("forced-raw", ElementType::kFloat16, raw, floats(0, ElementType::kFloat16, 777, 3));
  add_exponents(add);
  return all;
}

Backend library_backend() {
  return {[](const Case& input) {
            std::vector<unsigned char> payload(
                payload_bound(input.spec, input.type, input.elements) + 64);
            auto* const aligned =
                payload.data() + (64 - reinterpret_cast<std::uintptr_t>(payload.data()) % 64) % 64;
            const EncodeResult result = encode(
                {input.source.data(), input.elements, input.type}, input.spec, kNonce, aligned,
                payload_bound(input.spec, input.type, input.elements), serial_executor(), nullptr);
            if (result.status != Status::kOk) return std::vector<unsigned char>{};
            return std::vector<unsigned char>(aligned, aligned + result.payload_bytes);
          },
          [](const std::vector<unsigned char>& payload, std::size_t bytes) {
            std::vector<unsigned char> target(bytes);
            if (decode(payload.data(), payload.size(), target.data(), bytes, serial_executor()) !=
                Status::kOk)
              target.clear();
            return target;
          }};
}

DevicePayload device_payload(const Case& input) {
  if (input.spec.exponents.any() || input.spec.zeros) {
    Case fixed = input;
    fixed.spec.compact = false;
    fixed.spec.escape_64ths = 1;
    auto grouped = library_backend().encode(fixed);
    if (grouped.empty() || grouped[6] != static_cast<unsigned char>(PayloadKind::kGrouped))
      return {DeviceForm::kNone, {}};
    return {DeviceForm::kGrouped, std::move(grouped)};
  }
  if (is_floating(input.type) && !input.spec.force_raw && !input.spec.sides.any()) {
    auto grouped = test::fixed_payload(input.type, input.spec.bits, input.spec.transform,
                                       input.elements, kNonce, input.source.data());
    if (!grouped.empty()) return {DeviceForm::kGrouped, std::move(grouped)};
  }
  auto payload = library_backend().encode(input);
  const auto kind = static_cast<PayloadKind>(payload[6]);
  if (kind == PayloadKind::kBoolean) return {DeviceForm::kBoolean, std::move(payload)};
  if (kind == PayloadKind::kSides) return {DeviceForm::kSides, std::move(payload)};
  if (kind == PayloadKind::kFramed && is_floating(input.type))
    return {DeviceForm::kFramed, std::move(payload)};
  return {DeviceForm::kNone, {}};
}

std::vector<std::string> lines_of(const Backend& backend) {
  std::vector<std::string> lines;
  for (const Case& input : cases()) {
    const std::vector<unsigned char> payload = backend.encode(input);
    const std::vector<unsigned char> restored = backend.decode(payload, input.source.size());
    const DevicePayload device = device_payload(input);
    lines.push_back(input.name + " " + std::to_string(payload.size()) + " " + hash_of(payload) +
                    " " + hash_of(restored) + " " +
                    (device.form == DeviceForm::kNone ? "-" : hash_of(device.bytes)));
  }
  return lines;
}

std::vector<std::string> library_lines() {
  std::vector<std::string> lines = lines_of(library_backend());
  for (std::string& line : block_lines()) lines.push_back(std::move(line));
  return lines;
}

Compared compare_device(const Backend& device, const std::vector<std::string>& committed) {
  Compared all{};
  std::size_t number = 0;
  for (const Case& input : cases()) {
    std::string name, bytes, library, restored, expected;
    if (number < committed.size())
      std::istringstream(committed[number++]) >> name >> bytes >> library >> restored >> expected;
    if (name == input.name && expected == "-") continue;
    ++all.cases;
    const std::vector<unsigned char> payload = device.encode(input);
    const std::string got = hash_of(payload);
    const std::string back = hash_of(device.decode(payload, input.source.size()));
    if (name == input.name && got == expected && back == restored) continue;
    if (++all.differ <= 10)
      std::printf("%s: expected %s %s\n     got %s %s\n", input.name.c_str(), expected.c_str(),
                  restored.c_str(), got.c_str(), back.c_str());
  }
  return all;
}

std::vector<std::string> read_lines(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace pleat::compress::golden

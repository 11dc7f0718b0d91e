#include "tests/compress/golden_blocks.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "compress/block/block_payload.h"
#include "tests/compress/golden.h"

namespace pleat::compress::golden {
namespace {

using block::BlockEncodeResult;
using block::BlockPlan;
using block::BlockSource;
using block::BlockSpec;
using block::Effort;
using block::Kept;
using block::Look;
using block::Steps;

constexpr ElementType kFloats[] = {ElementType::kFloat32, ElementType::kBFloat16,
                                   ElementType::kFloat16};
constexpr const char* kNames[] = {"float32", "bfloat16", "float16"};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Sides kPositive{Sides::Kind::kOpen, true, 0, kInfinity};
constexpr Sides kSign{Sides::Kind::kThree, false, 0, 0};
constexpr Sides kBetween{Sides::Kind::kOpen, false, -0.5f, 1};

std::string name_of(ElementType type) { return kNames[static_cast<int>(type)]; }

// Lines of `length` elements: every eleventh row, or column, has an element's bytes repeated, and
// every thirteenth zeros.
std::vector<unsigned char> lined(ElementType type, std::size_t rows, std::size_t length,
                                 bool columns) {
  auto bytes = floats(0, type, rows * length, 40 + rows);
  const std::size_t size = element_size(type);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < length; ++c) {
      const std::size_t line = columns ? c : r;
      unsigned char* const at = &bytes[(r * length + c) * size];
      if (line % 13 == 5) {
        std::memset(at, 0, size);
      } else if (line % 11 == 3) {
        std::memcpy(at, &bytes[(columns ? c : r * length) * size], size);
      }
    }
  }
  return bytes;
}

std::vector<unsigned char> two_valued(ElementType type, std::size_t elements) {
  const std::size_t size = element_size(type);
  std::vector<unsigned char> bytes(elements * size);
  for (std::size_t e = 0; e < elements; ++e) {
    std::memset(&bytes[e * size], e * e % 11 < 5 ? 0 : 0x3F, size);
  }
  return bytes;
}

// Groups of a bell curve, one element of every `every`th at -100 (0: of none).
std::vector<unsigned char> far_out(ElementType type, std::size_t every) {
  auto bytes = floats(0, type, 256 * 96, 60);
  const std::size_t size = element_size(type);
  const std::uint32_t pattern = type == ElementType::kFloat16 ? 0xD640'0000 : 0xC2C8'0000;
  for (std::size_t g = 0; every != 0 && g < 96; g += every) {
    std::memcpy(&bytes[(g * 256 + 40) * size],
                reinterpret_cast<const unsigned char*>(&pattern) + 4 - size, size);
  }
  return bytes;
}

// Negative numbers, and in every `classes`th place one near zero.
std::vector<unsigned char> logarithms(ElementType type, std::size_t elements, std::size_t classes) {
  auto bytes = floats(0, type, elements, 61);
  const std::size_t size = element_size(type);
  const std::uint32_t near = type == ElementType::kFloat16 ? 0xA000'0000 : 0xBC00'0000;
  const std::uint32_t far = type == ElementType::kFloat16 ? 0xC500'0000 : 0xC0A0'0000;  // -5
  for (std::size_t e = 0; e < elements; ++e) {
    unsigned char* const at = &bytes[e * size];
    at[size - 1] |= 0x80;
    const bool right = e % classes == e / classes % classes;
    if (right || (at[size - 1] & 0x7F) < 0x3F) {  // below 2, or below 1/2
      std::memcpy(at, reinterpret_cast<const unsigned char*>(right ? &near : &far) + 4 - size,
                  size);
    }
  }
  return bytes;
}

}  // namespace

std::vector<BlockCase> block_cases() {
  std::vector<BlockCase> all;
  const auto add = [&](const std::string& name, BlockSpec spec, std::vector<unsigned char> source,
                       std::vector<block::ByteRange> ranges = {}) -> BlockCase& {
    if (ranges.empty()) {
      ranges.push_back({0, source.size()});
    }
    all.push_back({"block/" + name, spec, false, false, std::move(source), std::move(ranges)});
    return all.back();
  };
  for (const ElementType type : kFloats) {
    const std::string of = name_of(type) + "/";
    const std::size_t size = element_size(type);
    const BlockSpec four{type, 4};
    add(of + "whole", four, floats(0, type, 20001, 1));
    add(of + "in-place", four, floats(0, type, 20001, 1)).in_place = true;
    add(of + "gaps", four, floats(5, type, 30000, 2),
        {{0, 5000 * size}, {5001 * size, 5002 * size}, {9000 * size, 29999 * size}});
    add(of + "one-in-the-middle", four, floats(1, type, 30000, 3), {{7 * size, 20000 * size}});
    add(of + "exponent", {.type = type, .bits = 8, .steps = Steps::kExponent},
        floats(0, type, 9000, 4));
    add(of + "exponent-too-coarse", {.type = type, .bits = 4, .steps = Steps::kExponent},
        floats(2, type, 9000, 4));
    // Few groups too wide, which are exact; many, which are not at 8 bits; all, at 2 bits.
    add(of + "curved-outliers", {.type = type, .bits = 4, .steps = Steps::kCurved},
        far_out(type, 25));
    add(of + "exponent-outliers", {.type = type, .bits = 8, .steps = Steps::kExponent},
        far_out(type, 25));
    add(of + "curved-at-eight-bits", {.type = type, .bits = 4, .steps = Steps::kCurved},
        far_out(type, 3));
    add(of + "curved-at-four-bits", {.type = type, .bits = 2, .steps = Steps::kCurved},
        far_out(type, 0));
    add(of + "near-zero", {.type = type, .bits = 8, .steps = Steps::kExponent, .near_zero = true},
        logarithms(type, 30001, 21));
    add(of + "near-zero-in-parts",
        {.type = type, .bits = 8, .steps = Steps::kExponent, .near_zero = true},
        logarithms(type, 30000, 700), {{0, 9000 * size}, {9001 * size, 30000 * size}});
    add(of + "rows-beside-outliers", {.type = type, .bits = 4, .lines = {Look::kRows, 96}},
        far_out(type, 3));
    add(of + "rows", {.type = type, .bits = 4, .lines = {Look::kRows, 300}},
        lined(type, 90, 300, false));
    add(of + "zero-rows", {.type = type, .bits = 2, .lines = {Look::kParts, 40}},
        lined(type, 1500, 40, false));
    add(of + "columns", {.type = type, .bits = 4, .lines = {Look::kColumns, 70}},
        lined(type, 400, 70, true));
    add(of + "rows-in-the-middle", {.type = type, .bits = 3, .lines = {Look::kRows, 50}},
        lined(type, 500, 50, false), {{50 * size, 450 * 50 * size}});
    add(of + "tile", four, floats(0, type, 77, 5)).copy_raw = true;
    add(of + "tiles-and-more", four, floats(0, type, 9000, 6),
        {{0, 77 * size}, {100 * size, 8000 * size}, {8001 * size, 8101 * size}})
        .copy_raw = true;
    add(of + "two-valued", {type, 0}, two_valued(type, 9000),
        {{0, 300 * size}, {400 * size, 9000 * size}});
    add(of + "sides", {.type = type, .kept = Kept::kSides, .sides = kPositive},
        floats(0, type, 9001, 10));
    add(of + "sides-in-place", {.type = type, .kept = Kept::kSides, .sides = kSign},
        floats(1, type, 9001, 10))
        .in_place = true;
    add(of + "sides-with-gaps", {.type = type, .kept = Kept::kSides, .sides = kSign},
        floats(7, type, 9000, 11), {{0, 300 * size}, {400 * size, 9000 * size}});
    add(of + "one-side", {.type = type, .kept = Kept::kSides, .sides = kSign},
        floats(0, type, 1, 12))
        .copy_raw = true;
    add(of + "values-and-sides", {.type = type, .bits = 1, .sides = kPositive},
        floats(1, type, 9001, 13));
    add(of + "values-and-three-sides", {.type = type, .bits = 4, .sides = kBetween},
        floats(0, type, 9001, 14));
    add(of + "values-that-keep-their-sides", {.type = type, .bits = 4, .sides = kPositive},
        floats(1, type, 9001, 15));
    add(of + "values-and-sides-in-place", {.type = type, .bits = 4, .sides = kPositive},
        floats(1, type, 9001, 15))
        .in_place = true;
    add(of + "values-and-sides-with-gaps", {.type = type, .bits = 3, .sides = kPositive},
        floats(5, type, 30000, 16),
        {{0, 5000 * size}, {5001 * size, 5002 * size}, {9000 * size, 29999 * size}});
    add(of + "values-and-sides-at-six-bits", {.type = type, .bits = 6, .sides = kBetween},
        floats(5, type, 30000, 19),
        {{0, 5000 * size}, {5001 * size, 5002 * size}, {9000 * size, 29999 * size}});
    add(of + "rows-at-six-bits", {.type = type, .bits = 6, .lines = {Look::kRows, 300}},
        lined(type, 90, 300, false));
    add(of + "rows-and-sides",
        {.type = type, .bits = 4, .lines = {Look::kRows, 300}, .sides = kBetween},
        lined(type, 90, 300, false));
    add(of + "curved-outliers-and-sides",
        {.type = type, .bits = 4, .steps = Steps::kCurved, .sides = kPositive}, far_out(type, 25));
    add(of + "rows-beside-outliers-and-sides",
        {.type = type, .bits = 4, .lines = {Look::kRows, 96}, .sides = kBetween}, far_out(type, 3));
    add(of + "near-zero-and-sides",
        {.type = type,
         .bits = 4,
         .near_zero = true,
         .sides = {Sides::Kind::kThree, false, -5, -0.5f}},
        logarithms(type, 30001, 21));
    add(of + "tile-and-sides", {.type = type, .bits = 2, .sides = kSign}, floats(0, type, 77, 17))
        .copy_raw = true;
    add(of + "nothing", {.type = type, .kept = Kept::kNothing}, floats(7, type, 9000, 18));
    add(of + "lossless", {type, 0}, floats(0, type, 9000, 8));
    add(of + "lossless-copied", {type, 0}, floats(0, type, 9000, 8)).copy_raw = true;
  }
  auto uneven = floats(0, ElementType::kFloat32, 90 * 300, 9);  // 4 bits would be too few for half
  for (std::size_t e = 0; e < 90 * 300; ++e) {
    float value;
    std::memcpy(&value, &uneven[4 * e], 4);
    value *= e / 300 % 2 == 0 ? 1.0f : 0.03125f;
    std::memcpy(&uneven[4 * e], &value, 4);
  }
  add("float32/rows-at-eight-bits",
      {.type = ElementType::kFloat32, .bits = 4, .lines = {Look::kRows, 300}}, uneven);
  std::vector<unsigned char> flags(30000);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    flags[i] = static_cast<unsigned char>(i * i % 7 % 2);
  }
  add("bool/whole", {ElementType::kBool, 0}, flags);
  add("bool/in-place", {ElementType::kBool, 0}, flags).in_place = true;
  add("bool/gaps", {ElementType::kBool, 0}, flags, {{1, 10000}, {10001, 10002}, {20000, 30000}});
  std::vector<unsigned char> numbers(8 * 5000);
  for (std::size_t i = 0; i < 5000; ++i) {
    const std::uint64_t value = i * 7919 % 251 - 100;
    std::memcpy(&numbers[8 * i], &value, 8);
  }
  add("int64/whole", {ElementType::kInt64, 0}, numbers);
  add("int64/gaps", {ElementType::kInt64, 0}, numbers, {{8, 16000}, {16008, 39992}});
  add("int64/nothing", {.type = ElementType::kInt64, .kept = Kept::kNothing}, numbers,
      {{8, 16000}, {16008, 39992}});
  add("bool/nothing-in-place", {.type = ElementType::kBool, .kept = Kept::kNothing}, flags)
      .in_place = true;
  add("int32/in-place", {ElementType::kInt32, 0}, numbers).in_place = true;
  add("bytes/whole", {ElementType::kBytes, 0}, numbers);
  add("bytes/copied", {ElementType::kBytes, 0}, numbers, {{3, 700}, {701, 39999}}).copy_raw = true;
  add("none", {ElementType::kFloat32, 4}, numbers).ranges.clear();
  return all;
}

BlockRun library_run(const BlockCase& input) {
  struct Freed {
    void operator()(unsigned char* bytes) const { std::free(bytes); }
  };
  const auto aligned = [](std::size_t bytes) {
    return std::unique_ptr<unsigned char, Freed>(
        static_cast<unsigned char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  };
  const std::size_t bytes = input.source.size();
  const auto data = aligned(bytes);
  std::memcpy(data.get(), input.source.data(), bytes);
  const BlockSource source{data.get(), bytes, input.ranges.data(), input.ranges.size()};
  BlockPlan plan = plan_block(source, input.spec, input.copy_raw);
  auto payload = aligned(plan.room);
  const auto encode_planned = [&] {
    return input.in_place
               ? encode_block_in_place(data.get(), bytes, plan, kNonce, serial_executor())
               : encode_block(source, plan, kNonce, payload.get(), plan.room, serial_executor());
  };
  BlockEncodeResult coded = encode_planned();
  if (coded.status != Status::kOk && plan.guesses) {
    plan = plan_block(source, input.spec, input.copy_raw, Effort::kThorough);
    payload = aligned(plan.room);
    coded = encode_planned();
  }
  if (coded.status != Status::kOk) {
    return {};
  }
  const unsigned char* const from = input.in_place ? data.get() : payload.get();
  BlockRun run{{from, from + coded.payload_bytes}, std::vector<unsigned char>(bytes)};
  if (decode_block(coded.form, from, coded.payload_bytes, run.restored.data(), bytes,
                   serial_executor()) != Status::kOk) {
    run.restored.clear();
  }
  return run;
}

std::vector<std::string> block_lines() {
  std::vector<std::string> lines;
  for (const BlockCase& input : block_cases()) {
    const BlockRun done = library_run(input);
    lines.push_back(
        input.name + " " + std::to_string(done.payload.size()) + " " +
        (done.payload.empty() ? "- -" : hash_of(done.payload) + " " + hash_of(done.restored)) +
        " -");
  }
  return lines;
}

}  // namespace pleat::compress::golden

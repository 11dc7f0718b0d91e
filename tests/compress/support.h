// Helpers that the compress tests share: executors that split differently, data of every kind,
// float formats by an independent route, and the list of instruction-set paths this machine can
// run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compress/codec.h"
#include "compress/kernels.h"

#ifdef PLEAT_HAVE_EMULATED_AVX512
namespace pleat::compress {
extern const Kernels kEmulatedAvx512Kernels;
}
#endif

namespace pleat::compress::test {

// PLEAT_TEST_SEED=n repeats a run.
inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("PLEAT_TEST_SEED");
    const std::uint64_t chosen =
        given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::cout << "PLEAT_TEST_SEED=" << chosen << std::endl;
    return chosen;
  }();
  return value;
}

// ---- 16-bit formats, by table-free double arithmetic ----

inline double value_of_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}
inline double value_of_bfloat(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}
// Nearest representable, ties to even, for finite doubles in range: by bisection over the ordered
// bits.
template <class ValueOf>
std::uint16_t nearest16(double x, std::uint16_t largest, ValueOf value_of) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double a = std::fabs(x);
  std::uint16_t low = 0, high = largest;
  if (a >= value_of(high)) return sign | high;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(middle) <= a ? low : high) = middle;
  }
  const double down = a - value_of(low), up = value_of(high) - a;
  if (down < up || (down == up && low % 2 == 0)) return sign | low;
  return sign | high;
}

template <ElementType kType>
struct Element;
template <>
struct Element<ElementType::kFloat32> {
  using Storage = float;
  static double value(Storage x) { return x; }
  static Storage from(double x) { return static_cast<float>(x); }
  static constexpr double kLargest = 3.4028234663852886e38;
};
template <>
struct Element<ElementType::kBFloat16> {
  using Storage = std::uint16_t;
  static double value(Storage x) { return value_of_bfloat(x); }
  static Storage from(double x) { return nearest16(x, 0x7F7F, value_of_bfloat); }
  static constexpr double kLargest = 3.3895313892515355e38;
};
template <>
struct Element<ElementType::kFloat16> {
  using Storage = std::uint16_t;
  static double value(Storage x) { return value_of_half(x); }
  static Storage from(double x) { return nearest16(x, 0x7BFF, value_of_half); }
  static constexpr double kLargest = 65504;
};

inline double value_at(ElementType type, const void* data, std::size_t e) {
  if (type == ElementType::kFloat32) {
    float x;
    std::memcpy(&x, static_cast<const char*>(data) + 4 * e, 4);
    return x;
  }
  std::uint16_t x;
  std::memcpy(&x, static_cast<const char*>(data) + 2 * e, 2);
  return type == ElementType::kBFloat16 ? value_of_bfloat(x) : value_of_half(x);
}
inline void set_value(ElementType type, void* data, std::size_t e, double value) {
  if (type == ElementType::kFloat32) {
    const float x = static_cast<float>(value);
    std::memcpy(static_cast<char*>(data) + 4 * e, &x, 4);
    return;
  }
  const bool bfloat = type == ElementType::kBFloat16;
  std::uint16_t x = 0;
  if (std::isnan(value))
    x = bfloat ? 0x7FC0 : 0x7E00;
  else if (std::isinf(value))
    x = static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | (bfloat ? 0x7F80 : 0x7C00));
  else
    x = bfloat ? Element<ElementType::kBFloat16>::from(value)
               : Element<ElementType::kFloat16>::from(value);
  std::memcpy(static_cast<char*>(data) + 2 * e, &x, 2);
}

// ---- memory with guards ----

// 64-byte aligned (plus `shift`); under AddressSanitizer any access outside is caught.
class Bytes {
 public:
  explicit Bytes(std::size_t size, std::size_t shift = 0)
      : block_(static_cast<unsigned char*>(std::aligned_alloc(64, (size + shift + 127) / 64 * 64))),
        data_(block_ + shift),
        size_(size),
        room_((size + shift + 127) / 64 * 64 - shift - size) {
    std::memset(block_, 0xA5, (size + shift + 127) / 64 * 64);
  }
  ~Bytes() { std::free(block_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  Bytes(Bytes&& other) noexcept
      : block_(other.block_), data_(other.data_), size_(other.size_), room_(other.room_) {
    other.block_ = nullptr;
  }
  unsigned char* data() { return data_; }
  const unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool guard_intact() const {
    for (std::size_t i = 0; i < room_; ++i)
      if (data_[size_ + i] != 0xA5) return false;
    return true;
  }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }

 private:
  unsigned char* block_;
  unsigned char* data_;
  std::size_t size_;
  std::size_t room_;
};

// ---- content ----

// A tensor with every kind of group in it.
inline Bytes mixed(ElementType type, std::size_t elements, std::uint64_t stream,
                   bool escapes = true) {
  std::mt19937_64 random(seed() + stream);
  std::normal_distribution<double> normal;
  const bool half = type == ElementType::kFloat16;
  const double smallest = std::ldexp(1, half ? -24 : type == ElementType::kBFloat16 ? -133 : -149);
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) {
    const std::size_t g = e / 256;
    double x = normal(random);
    switch (g % 13) {
      case 0:
        x = std::max(x, 0.0);
        break;
      case 1:
        x = -std::exp(x);
        break;
      case 2:
        x = std::min(x, 0.0);
        break;
      case 3:
        x = 0.25 * double(g % 9);
        break;
      case 4:
        x = e % 3 == 0 ? -0.0 : 1.25;
        break;
      case 5:
        x = 100 + x;
        break;
      case 6:
        x = e % 2 == 0 ? 0.0 : e % 3 == 0 ? -0.0 : x;
        break;
      case 7:
        x *= half ? 2e4 : 1e37;
        x = std::max(-6e37, std::min(6e37, x));
        break;
      case 8:
        x *= half ? 1e-6 : 1e-30;
        break;
      case 9:
        x = (half ? 65504 : 3.3e38) * double(random() % 1000) / 999;
        break;
      case 10:  // one zero far below the others
        x = e % 256 == g % 256 ? 0 : 5000 + 100 * x;
        break;
      case 11:  // zeros of both signs, the smallest number, and a wide range
        x = e % 3 == 0 ? (e % 2 == 0 ? -0.0 : 0.0) : e % 64 == 1 ? smallest : std::exp(3 * x);
        break;
      default:
        break;
    }
    if (half) x = std::max(-65504.0, std::min(65504.0, x));
    set_value(type, source.data(), e, x);
  }
  if (escapes) {
    for (std::size_t g = 10; g * 256 + 1 < elements; g += 97) {
      const std::uint32_t nan = 0x7FC00000;
      const std::uint16_t nan16 = type == ElementType::kBFloat16 ? 0x7FC0 : 0x7E00;
      std::memcpy(source.data() + g * 256 * element_size(type),
                  element_size(type) == 4 ? static_cast<const void*>(&nan) : &nan16,
                  element_size(type));
    }
  }
  return source;
}

// ---- executors ----

// As many threads as parts of `part` items.
inline Executor thread_executor(std::size_t part) {
  return [part](std::size_t items, std::size_t,
                const std::function<void(std::size_t, std::size_t)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t begin = 0; begin < items; begin += part)
      threads.emplace_back(
          [&body, begin, end = std::min(items, begin + part)] { body(begin, end); });
    for (std::thread& thread : threads) thread.join();
  };
}
// Last part first, one item at a time.
inline Executor backwards_executor() {
  return [](std::size_t items, std::size_t,
            const std::function<void(std::size_t, std::size_t)>& body) {
    for (std::size_t item = items; item-- > 0;) body(item, item + 1);
  };
}

// ---- paths ----

struct Path {
  std::string name;
  const Kernels* table;
};
inline std::vector<Path> paths() {
  static const std::vector<Path> all = [] {
    std::vector<Path> found{{"scalar", &kScalarKernels}};
#if defined(__x86_64__)
    if (isa_supported(Isa::kAvx2))
      found.push_back({"avx2", &kAvx2Kernels});
    else
      std::cout << "skipped: avx2 (not on this CPU)" << std::endl;
    if (isa_supported(Isa::kAvx512))
      found.push_back({"avx512", &kAvx512Kernels});
    else
      std::cout << "skipped: native avx512 (not on this CPU)" << std::endl;
#ifdef PLEAT_HAVE_EMULATED_AVX512
    if (isa_supported(Isa::kAvx2)) found.push_back({"avx512 emulated", &kEmulatedAvx512Kernels});
#else
    if (const char* const ci = std::getenv("CI"); ci != nullptr && *ci != '\0')
      ADD_FAILURE() << "emulated avx512 is not built (no SIMDe)";
    else
      std::cout << "skipped: emulated avx512 (no SIMDe)" << std::endl;
#endif
#endif
    return found;
  }();
  return all;
}
class UsePath {
 public:
  explicit UsePath(const Path& path) { use_kernels(path.table); }
  ~UsePath() { set_isa(Isa::kAuto); }
};

// ---- shorthand ----

inline const char* name_of(ElementType type) {
  const char* const names[] = {"float32", "bfloat16", "float16", "bool", "int64", "int32", "bytes"};
  return names[static_cast<int>(type)];
}
inline constexpr ElementType kFloatTypes[] = {ElementType::kFloat32, ElementType::kBFloat16,
                                              ElementType::kFloat16};
inline constexpr unsigned kWidths[] = {1, 2, 3, 4, 6, 8};

// Payload bytes of integers by docs/payload_format.md: frames of 1024, each as wide as it needs.
template <class Integer>
std::size_t framed_size(const std::vector<Integer>& values) {
  const std::size_t frames = (values.size() + 1023) / 1024;
  std::size_t bytes = 64 + (frames * 2 * sizeof(Integer) + 63) / 64 * 64;
  for (std::size_t from = 0; from < values.size(); from += 1024) {
    const std::size_t to = std::min(from + 1024, values.size());
    const auto [low, high] =
        std::minmax_element(values.begin() + long(from), values.begin() + long(to));
    const auto range = static_cast<std::uint64_t>(*high) - static_cast<std::uint64_t>(*low);
    std::size_t width = range == 0 ? 0 : 1;
    while (width != 0 && width < 64 && range >> width != 0) width *= 2;
    bytes += (to - from + 7) / 8 * width;
  }
  return std::min(bytes, 64 + values.size() * sizeof(Integer));
}

// What a rotation does not make subnormal: more of that escapes than a payload may hold.
inline Bytes ordinary(ElementType type, std::size_t elements) {
  std::mt19937_64 random(seed());
  std::normal_distribution<double> normal;
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e)
    set_value(type, source.data(), e, normal(random) * (e % 97 == 0 ? 1000 : 1));
  return source;
}

// The same, but every second group is Gaussian: those become scaled groups where there are any.
inline Bytes ordinary_and_gaussian(ElementType type, std::size_t elements) {
  std::mt19937_64 random(seed() + 1);
  std::normal_distribution<double> normal;
  Bytes source = ordinary(type, elements);
  for (std::size_t e = 0; e < elements; ++e)
    if (e / 256 % 2 == 0) set_value(type, source.data(), e, normal(random));
  return source;
}

struct Encoded {
  Status status;
  std::vector<unsigned char> payload;
  SpanStatistics statistics;
};
inline Encoded encode_span(const void* data, std::size_t elements, ElementType type, unsigned bits,
                           std::uint64_t nonce = 1, const Executor& executor = serial_executor(),
                           bool force_raw = false, Transform transform = Transform::kNone) {
  CodecSpec spec;
  spec.bits = static_cast<std::uint8_t>(bits);
  spec.force_raw = force_raw;
  spec.transform = transform;
  const std::size_t bound = payload_bound(spec, type, elements);
  Bytes buffer(bound);
  Encoded out;
  const EncodeResult result =
      encode({data, elements, type}, spec, nonce, buffer.data(), bound, executor, &out.statistics);
  out.status = result.status;
  EXPECT_LE(result.payload_bytes, bound);
  EXPECT_TRUE(buffer.guard_intact());
  if (result.status == Status::kOk)
    out.payload.assign(buffer.data(), buffer.data() + result.payload_bytes);
  return out;
}
inline std::vector<unsigned char> decode_span(const std::vector<unsigned char>& payload,
                                              std::size_t bytes,
                                              const Executor& executor = serial_executor()) {
  Bytes target(bytes);
  EXPECT_EQ(decode(payload.data(), payload.size(), target.data(), bytes, executor), Status::kOk);
  EXPECT_TRUE(target.guard_intact());
  return {target.data(), target.data() + bytes};
}

// A number that some nonces show, and how sure it is.
struct Mean {
  double value = 0, deviation = 0;
};
template <class Sample>
Mean mean_of(std::size_t nonces, const Sample& sample) {
  double sum = 0, squares = 0;
  const double n = double(nonces);
  for (std::size_t i = 0; i < nonces; ++i) {
    const double x = sample(i);
    sum += x / n;
    squares += x * x / n;
  }
  return {sum, std::sqrt(std::max(0.0, squares - sum * sum) / (n - 1))};
}

// A figure against its bar, for --gtest_output=json to tell.
inline void expect_at_most(const std::string& name, double seen, double bar) {
  testing::Test::RecordProperty(name, std::to_string(seen));
  EXPECT_LE(seen, bar) << name;
}
inline void expect_at_least(const std::string& name, double seen, double bar) {
  testing::Test::RecordProperty(name, std::to_string(seen));
  EXPECT_GE(seen, bar) << name;
}

}  // namespace pleat::compress::test

// Blocks of every kind that the codec treats in its own way, to test width costs and artificial
// noise.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "compress/block/block_payload.h"
#include "tests/compress/support.h"

namespace pleat::compress::block::testing {

struct NoiseCase {
  std::string name;
  BlockSpec spec;
  test::Bytes data;
  std::vector<ByteRange> ranges;

  [[nodiscard]] BlockSource source() const noexcept {
    return {data.data(), data.size(), ranges.data(), ranges.size()};
  }
  [[nodiscard]] std::size_t elements() const noexcept {
    return data.size() / element_size(spec.type);
  }
};

// Makes the cases of one type.
class NoiseCases {
 public:
  explicit NoiseCases(ElementType type) : type_(type), random_(test::seed()) {}

  [[nodiscard]] std::vector<NoiseCase> all() {
    values();
    kinds();
    requests();
    return std::move(cases_);
  }

 private:
  static constexpr std::size_t kElements = 80 * 256 + 100;

  double normal() { return normal_(random_); }
  double uniform() { return std::uniform_real_distribution<double>()(random_); }

  // `value` is called for each element, in order.
  template <class Value>
  NoiseCase& add(std::string name, const Value& value, std::size_t elements = kElements) {
    test::Bytes data(elements * element_size(type_));
    for (std::size_t e = 0; e < elements; ++e) {
      test::set_value(type_, data.data(), e, value(e));
    }
    const std::size_t bytes = data.size();
    cases_.push_back({std::move(name), {.type = type_}, std::move(data), {{0, bytes}}});
    return cases_.back();
  }

  // What layers leave behind.
  void values() {
    add("gaussian", [&](std::size_t) { return normal(); });
    add("relu", [&](std::size_t) { return std::max(normal(), 0.0); });
    add("gelu", [&](std::size_t) {
      const double x = normal();
      return x / 2 * std::erfc(-x / std::sqrt(2));
    });
    add("dropout", [&](std::size_t) { return uniform() < 0.5 ? 0.0 : 2 * normal(); });
    add("all negative", [&](std::size_t) { return -std::exp(normal()); });
    add("zeros and below", [&](std::size_t) { return std::min(normal(), 0.0); });
    add("far from zero", [&](std::size_t) { return 100 + normal(); });
    add("two clusters", [&](std::size_t e) { return (e % 3 == 0 ? 0.64 : 1) * (100 + normal()); });
    add("near zero", [&](std::size_t) { return std::fabs(normal()) + 1e-3; });
    add("sigmoid", [&](std::size_t) { return 1 / (1 + std::exp(-2 * normal())); });
    add("outliers", [&](std::size_t e) { return normal() * (e % 200 == 7 ? 30 : 1); });
    double sum = 1;
    add("softmax", [&](std::size_t e) {
      if (e % 64 == 0) {
        sum = 200 * (0.7 + 0.6 * uniform());
      }
      return std::exp(1.5 * std::clamp(normal(), -2.5, 2.5)) / sum;
    });
  }

  // What groups are.
  void kinds() {
    add("one value", [&](std::size_t) { return 0.75; });
    add("constants", [&](std::size_t e) { return 0.25 * double(e / 256 % 9); });
    add("two values", [&](std::size_t e) { return e % 3 == 0 ? 1.5 : -0.5; });
    add("mixture", [&](std::size_t e) {
      const double x = normal();
      switch (e / 256 % 5) {
        case 0:
          return 3.0;
        case 1:
          return e % 2 == 0 ? 0.0 : 1.25;
        case 2:
          return std::max(x, 0.0);
        case 3:
          return 50 * x;
        default:
          return x;
      }
    });
    add("a few not finite", [&](std::size_t e) { return e == 3000 ? NAN : normal(); });
    add("many not finite", [&](std::size_t e) {
      const double x = normal();
      return e % 256 == 17 && e / 256 % 3 == 0 ? (e % 512 < 256 ? INFINITY : NAN) : x;
    });
    add("masked scores", [&](std::size_t) { return uniform() < 0.3 ? -INFINITY : 4 * normal(); });
  }

  // What callers ask for.
  void requests() {
    using enum Sides::Kind;
    const std::size_t size = element_size(type_);
    const float infinite = INFINITY;
    add(
        "padded rows", [&](std::size_t e) { return e / 100 % 10 < 4 ? 0.0 : normal(); }, 20000)
        .spec.lines = {Look::kParts, 100};
    add(
        "small rows of results of ReLU",
        [&](std::size_t e) { return std::max(normal(), 0.0) * (e / 100 % 10 < 4 ? 0.02 : 1); },
        20000)
        .spec.lines = {Look::kParts, 100};
    add(
        "flat rows", [&](std::size_t e) { return normal() * (e / 100 % 10 == 4 ? 1e-3 : 1); },
        20000)
        .spec.lines = {Look::kRows, 100};
    add(
        "flat columns", [&](std::size_t e) { return normal() * (e % 80 < 3 ? 1e-3 : 1); }, 20000)
        .spec.lines = {Look::kColumns, 80};
    for (const std::size_t classes : {21, 1000}) {
      std::size_t right = 0;
      NoiseCase& c = add("log-probabilities of " + std::to_string(classes), [&](std::size_t e) {
        if (e % classes == 0) {
          right = random_() % classes;
        }
        return e % classes == right ? -0.5 * uniform()
                                    : -2 - 3 * uniform() - 2 * std::fabs(normal());
      });
      c.spec.near_zero = true;
      c.spec.steps = classes == 21 ? Steps::kAny : Steps::kExponent;
    }
    add("curved", [&](std::size_t) { return 0.3 * normal(); }).spec.steps = Steps::kCurved;
    add("curved, some wide", [&](std::size_t e) {
      return (e / 256 % 8 == 3 ? 4 : 0.4) * normal();
    }).spec.steps = Steps::kCurved;
    add("curved, half wide", [&](std::size_t e) {
      return (e / 256 % 2 == 1 ? 4 : 0.4) * normal();
    }).spec.steps = Steps::kCurved;
    add("exponent", [&](std::size_t) { return 2 * normal(); }).spec.steps = Steps::kExponent;
    add("sides of zero", [&](std::size_t) { return normal(); }).spec.sides = {kClosed, false, 0,
                                                                              infinite};
    add("three sides", [&](std::size_t) { return normal(); }).spec.sides = {kThree, false, -1, 1};
    add("sides that codes keep", [&](std::size_t) {
      return std::max(normal(), 0.0);
    }).spec.sides = {kOpen, false, 0, infinite};
    add("spans", [&](std::size_t) { return normal(); }).ranges = {
        {0, 5000 * size}, {5001 * size, 5020 * size}, {9000 * size, 19998 * size}};
    add("spans of zeros and above", [&](std::size_t) { return std::max(normal(), 0.0); }).ranges = {
        {256 * size, 15000 * size}, {15000 * size, 20000 * size}};
    add(
        "five groups", [&](std::size_t) { return normal(); }, 5 * 256);
    add(
        "a short group", [&](std::size_t) { return normal(); }, 300);
  }

  ElementType type_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<NoiseCase> cases_;
};

inline const std::vector<NoiseCase>& noise_cases(ElementType type) {
  static std::map<ElementType, std::vector<NoiseCase>> all;
  std::vector<NoiseCase>& cases = all[type];
  if (cases.empty()) {
    cases = NoiseCases(type).all();
  }
  return cases;
}
inline const NoiseCase& noise_case(ElementType type, const std::string& name) {
  for (const NoiseCase& c : noise_cases(type)) {
    if (c.name == name) {
      return c;
    }
  }
  throw std::invalid_argument(name);
}
inline test::Bytes copy_of(const test::Bytes& data) {
  test::Bytes copy(data.size());
  std::memcpy(copy.data(), data.data(), data.size());
  return copy;
}
inline bool same(const test::Bytes& a, const test::Bytes& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}
inline NoiseCase copy_of(const NoiseCase& c) { return {c.name, c.spec, copy_of(c.data), c.ranges}; }

// A payload as the bridge makes it: a quick plan first, a thorough one if encoding refuses that.
struct NoisePayload {
  BlockForm form;
  std::vector<unsigned char> bytes;
};
inline std::optional<NoisePayload> noise_payload(const BlockSource& source, const BlockSpec& spec,
                                                 std::uint64_t nonce) {
  for (const Effort effort : {Effort::kQuick, Effort::kThorough}) {
    const BlockPlan plan = plan_block(source, spec, false, effort);
    if (plan.room == 0) {
      return std::nullopt;
    }
    test::Bytes room(plan.room);
    const BlockEncodeResult result =
        encode_block(source, plan, nonce, room.data(), room.size(), serial_executor());
    if (result.status == Status::kOk) {
      return NoisePayload{result.form, {room.data(), room.data() + result.payload_bytes}};
    }
    if (!plan.guesses) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

inline test::Bytes restored_block(const NoisePayload& payload, std::size_t bytes) {
  test::Bytes target(bytes);
  EXPECT_EQ(decode_block(payload.form, payload.bytes.data(), payload.bytes.size(), target.data(),
                         bytes, serial_executor()),
            Status::kOk);
  return target;
}

// Calls visit(first, count) for each group of 256, from the start of each span.
template <class Visit>
void for_each_group(const NoiseCase& c, const Visit& visit) {
  const std::size_t size = element_size(c.spec.type);
  for (const ByteRange& range : c.ranges) {
    for (std::size_t first = range.begin / size; first < range.end / size; first += 256) {
      visit(first, std::min<std::size_t>(256, range.end / size - first));
    }
  }
}

// Squared difference, summed over the elements in the ranges that are finite in both.
inline double squared_difference(const NoiseCase& c, const void* a, const void* b) {
  const std::size_t size = element_size(c.spec.type);
  double sum = 0;
  for (const ByteRange& range : c.ranges) {
    for (std::size_t e = range.begin / size; e < range.end / size; ++e) {
      const double difference =
          test::value_at(c.spec.type, a, e) - test::value_at(c.spec.type, b, e);
      sum += std::isfinite(difference) ? difference * difference : 0;
    }
  }
  return sum;
}

}  // namespace pleat::compress::block::testing

// Groups that hold NaN or Inf, or whose range overflows: of every kind that treats them
// differently.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "compress/float_types.h"
#include "compress/format.h"
#include "compress/grouped/group_math.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {

enum class Wide {
  kOneNan,
  kOneInfinity,
  kAnyMixture,        // each element is finite or of one of the three kinds
  kNothingFinite,     // all three kinds, no finite element
  kOneFinite,         // among all three kinds
  kOneZero,           // likewise, and the finite element is 0
  kLargestOfBoth,     // both largest values alternate, with a NaN
  kOverflow,          // all are finite (not float16, whose differences a float holds)
  kOverflowBeside,    // a range that overflows, and infinities
  kSubnormals,        // and a NaN
  kNearEachOther,     // two neighbours of the type, an infinity
  kZerosAndAbove,     // as a ReLU leaves them, and a NaN
  kZerosOfBothSigns,  // and infinities
  kNegative,          // and -Inf, as masked scores
  kPositive,          // and Inf
  kFarFromZero,       // and a NaN
};
inline constexpr Wide kAllWide[] = {
    Wide::kOneNan,           Wide::kOneInfinity, Wide::kAnyMixture,    Wide::kNothingFinite,
    Wide::kOneFinite,        Wide::kOneZero,     Wide::kLargestOfBoth, Wide::kOverflow,
    Wide::kOverflowBeside,   Wide::kSubnormals,  Wide::kNearEachOther, Wide::kZerosAndAbove,
    Wide::kZerosOfBothSigns, Wide::kNegative,    Wide::kPositive,      Wide::kFarFromZero};

inline double largest_of(ElementType type) {
  return type == ElementType::kFloat32    ? Element<ElementType::kFloat32>::kLargest
         : type == ElementType::kBFloat16 ? Element<ElementType::kBFloat16>::kLargest
                                          : Element<ElementType::kFloat16>::kLargest;
}

// Fills elements [0, count) of `to`. No group is constant or two-valued unless it is very short.
inline void fill_wide(Wide kind, ElementType type, void* to, std::size_t count,
                      std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const bool half = type == ElementType::kFloat16;
  const double largest = largest_of(type);
  const double least = std::ldexp(1, half ? -24 : type == ElementType::kBFloat16 ? -133 : -149);
  const double spacing = std::ldexp(1, half ? -10 : type == ElementType::kBFloat16 ? -7 : -23);
  const double others[] = {-INFINITY, INFINITY, NAN};
  const std::size_t odd = random() % count;
  const double shift = 10 * double(random() % 100);
  for (std::size_t e = 0; e < count; ++e) {
    const double x = normal(random), other = others[random() % 3];
    const bool is_odd = e == odd;
    double value = x;
    switch (kind) {
      case Wide::kOneNan:
        value = is_odd ? NAN : x;
        break;
      case Wide::kOneInfinity:
        value = is_odd ? (odd % 2 == 0 ? INFINITY : -INFINITY) : x;
        break;
      case Wide::kAnyMixture:
        value = random() % 2 == 0 ? other : x;
        break;
      case Wide::kNothingFinite:
        value = others[e % 3];
        break;
      case Wide::kOneFinite:
        value = is_odd ? x : others[e % 3];
        break;
      case Wide::kOneZero:
        value = is_odd ? 0 : others[e % 3];
        break;
      case Wide::kLargestOfBoth:
        value = is_odd ? NAN : e % 2 == 0 ? largest : -largest;
        break;
      case Wide::kOverflow:
        value =
            e % 17 == 0 ? largest * (e % 2 == 0 ? 1 : -1) : largest * std::clamp(x / 3, -1.0, 1.0);
        break;
      case Wide::kOverflowBeside:
        value = random() % 8 == 0 ? other : largest * std::clamp(x, -1.0, 1.0);
        break;
      case Wide::kSubnormals:
        value = is_odd ? NAN : least * double(1 + random() % 60) * (e % 2 == 0 ? 1 : -1);
        break;
      case Wide::kNearEachOther:
        value = is_odd ? INFINITY : 1 + spacing * double(e % 2);
        break;
      case Wide::kZerosAndAbove:
        value = is_odd ? NAN : std::max(x, 0.0);
        break;
      case Wide::kZerosOfBothSigns:
        value = random() % 3 == 0 ? other : e % 2 == 0 ? 0.0 : -0.0;
        break;
      case Wide::kNegative:
        value = random() % 2 == 0 ? -INFINITY : -std::exp(x);
        break;
      case Wide::kPositive:
        value = is_odd ? INFINITY : std::exp(x);
        break;
      case Wide::kFarFromZero:
        value = is_odd ? NAN : shift + 5 + x;
        break;
    }
    set_value(type, to, e, value);
  }
}

// `groups` groups of all kinds in turn, `between` ordinary ones after each, and a short last one.
inline Bytes wide_span(ElementType type, std::size_t groups, std::size_t tail,
                       std::mt19937_64& random, std::size_t between = 0) {
  const std::size_t size = element_size(type), elements = groups * 256 + tail;
  Bytes source(elements * size);
  std::normal_distribution<double> normal;
  for (std::size_t g = 0; g * 256 < elements; ++g) {
    const std::size_t count = std::min<std::size_t>(256, elements - g * 256);
    unsigned char* const to = source.data() + g * 256 * size;
    if (g % (between + 1) == 0)
      fill_wide(kAllWide[g / (between + 1) % std::size(kAllWide)], type, to, count, random);
    else
      for (std::size_t e = 0; e < count; ++e) set_value(type, to, e, normal(random));
  }
  return source;
}

// How many groups of a payload are wide.
inline std::size_t wide_groups(const std::vector<unsigned char>& payload) {
  Header header;
  std::memcpy(&header, payload.data(), sizeof header);
  const auto type = (header.flags & kFlagTransformed) != 0 ? ElementType::kFloat32
                                                           : static_cast<ElementType>(header.type);
  return with_type(type, [&]<class T>() {
    std::size_t count = 0;
    for (std::size_t g = 0; g < ceil_divide(header.elements, kGroupElements); ++g) {
      Metadata<T> metadata;
      std::memcpy(&metadata, payload.data() + kHeaderBytes + g * sizeof metadata, sizeof metadata);
      count += kind_of<T>(metadata) == GroupKind::kWide;
    }
    return count;
  });
}

}  // namespace pleat::compress::test

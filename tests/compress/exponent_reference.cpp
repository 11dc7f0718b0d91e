#include "tests/compress/exponent_reference.h"

#include <cmath>
#include <cstring>
#include <set>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr int kZeros = -128;

std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
// A product of float32, rounded once.
float times_power(double value, int exponent) {
  return static_cast<float>(std::ldexp(value, exponent));
}
std::uint32_t word_at(const unsigned char* elements, std::size_t size, std::size_t e) {
  std::uint32_t word = 0;
  std::memcpy(&word, elements + e * size, size);
  return word;
}

struct Part {
  std::size_t begin, end;
};
// The parts of each group.
std::vector<std::vector<Part>> parts_of_groups(std::size_t row, std::size_t elements) {
  std::vector<std::vector<Part>> groups((elements + 255) / 256);
  std::size_t begin = 0;
  for (const std::size_t end : part_ends(row, elements)) {
    groups[begin / 256].push_back({begin, end});
    begin = end;
  }
  return groups;
}

double largest_of(ElementType type) {
  return type == ElementType::kFloat32    ? Element<ElementType::kFloat32>::kLargest
         : type == ElementType::kBFloat16 ? Element<ElementType::kBFloat16>::kLargest
                                          : Element<ElementType::kFloat16>::kLargest;
}

// The element that stands for those of zero parts, from the raised values of all others.
double fill_of(const std::vector<double>& others, bool zeros) {
  double least = INFINITY, most = -INFINITY;
  for (const double value : others) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (least > most || (zeros && least < 0 && most > 0)) return 0;
  return most <= 0 ? most : least;
}

}  // namespace

std::vector<std::size_t> part_ends(std::size_t row, std::size_t elements) {
  std::vector<std::size_t> ends;
  for (std::size_t e = 1; e <= elements; ++e)
    if (e % row == 0 || e % 256 == 0 || e == elements) ends.push_back(e);
  return ends;
}

Raised raise_elements(ElementType type, const unsigned char* source, std::size_t elements,
                      const ReferenceExponents& exponents, bool fill_zero, bool zeros) {
  const std::size_t size = element_size(type);
  Raised out;
  out.elements.assign(source, source + elements * size);
  for (const std::vector<Part>& group : parts_of_groups(exponents.row, elements)) {
    const std::size_t from = group.front().begin, to = group.back().end;
    std::set<std::uint32_t> patterns;
    double largest = 0;
    for (std::size_t e = from; e < to; ++e) {
      if (patterns.size() < 3) patterns.insert(word_at(source, size, e));
      const double value = std::fabs(value_at(type, source, e));
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    // m of each part, and the largest of them.
    std::vector<float> sizes;
    for (const Part& part : group) {
      float most = 0;
      for (std::size_t e = part.begin; e < part.end; ++e) {
        const double value = value_at(type, source, e);
        if (std::isfinite(value))
          most = std::max(most, times_power(std::fabs(value), exponents.of_channel(e)));
      }
      sizes.push_back(most);
    }
    const std::uint32_t widest = bits_of_float(*std::max_element(sizes.begin(), sizes.end()));
    // The ratio's nearest power of two, unless elements could become too large.
    const std::uint32_t most = bits_of_float(static_cast<float>(largest));
    const bool near = most + (1u << 22) > bits_of_float(static_cast<float>(largest_of(type)));
    const std::uint32_t common = (most - widest + (near ? 0 : 1u << 22)) >> 23;
    std::vector<int> own;
    bool moved = false;
    for (std::size_t p = 0; p < group.size(); ++p) {
      const Part& part = group[p];
      bool zero = true;
      for (std::size_t e = part.begin; e < part.end; ++e)
        zero = zero && value_at(type, source, e) == 0;
      int exponent = 0;
      if (zero)
        exponent = kZeros;
      else if (sizes[p] != 0)
        exponent = std::min<int>(120, int(common + ((widest - bits_of_float(sizes[p])) >> 23)));
      own.push_back(exponent);
      for (std::size_t e = part.begin; e < part.end; ++e)
        moved = moved || zero || exponent + exponents.of_channel(e) > 0;
    }
    if (!moved || patterns.size() < 3) {
      out.parts.insert(out.parts.end(), group.size(), 0);
      continue;
    }
    std::vector<double> others;
    for (std::size_t p = 0; p < group.size(); ++p) {
      out.parts.push_back(static_cast<std::int8_t>(own[p]));
      for (std::size_t e = group[p].begin; own[p] != kZeros && e < group[p].end; ++e) {
        const double value = value_at(type, source, e);
        if (std::isfinite(value)) {
          set_value(type, out.elements.data(), e,
                    times_power(value, std::max(0, own[p] + exponents.of_channel(e))));
          others.push_back(value_at(type, out.elements.data(), e));
        }
      }
    }
    const double fill = fill_zero ? 0 : fill_of(others, zeros);
    for (std::size_t p = 0; p < group.size(); ++p)
      for (std::size_t e = group[p].begin; own[p] == kZeros && e < group[p].end; ++e)
        set_value(type, out.elements.data(), e, fill);
  }
  return out;
}

void lower_elements(ElementType type, const std::vector<std::int8_t>& parts,
                    const ReferenceExponents& exponents, std::size_t elements,
                    unsigned char* restored) {
  std::size_t p = 0, begin = 0;
  for (const std::size_t end : part_ends(exponents.row, elements)) {
    const int exponent = parts.at(p++);
    for (std::size_t e = begin; e < end; ++e) {
      const double value = value_at(type, restored, e);
      if (exponent == kZeros) {
        std::memset(restored + e * element_size(type), 0, element_size(type));
      } else if (std::isfinite(value)) {
        const int own = std::max(0, exponent + exponents.of_channel(e));
        set_value(type, restored, e, times_power(value, -own));
      }
    }
    begin = end;
  }
}

}  // namespace pleat::compress::test

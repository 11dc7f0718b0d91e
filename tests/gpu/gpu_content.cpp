#include "tests/gpu/gpu_content.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace pleat::compress::test {

const char* type_name(ElementType type) {
  const char* const names[] = {"float32", "bfloat16", "float16", "bool", "int64", "int32"};
  return names[static_cast<int>(type)];
}

const char* transform_name(Transform transform) {
  const char* const names[] = {"none", "rotated", "scaled"};
  return names[static_cast<int>(transform)];
}

void set_float(ElementType type, unsigned char* data, std::size_t e, float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (type == ElementType::kFloat32) {
    std::memcpy(data + 4 * e, &bits, 4);
    return;
  }
  std::uint16_t half = static_cast<std::uint16_t>(bits >> 16);  // bfloat16, truncated: any will do
  if (type == ElementType::kFloat16) {
    const auto narrow = static_cast<_Float16>(value);
    std::memcpy(&half, &narrow, 2);
  }
  std::memcpy(data + 2 * e, &half, 2);
}

std::vector<unsigned char> floats(ElementType type, std::size_t elements, std::uint64_t seed,
                                  bool escapes) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<unsigned char> data(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) {
    const std::size_t g = e / 256;
    float x = normal(random);
    switch (g % 11) {
      case 0:
        x = std::max(x, 0.0f);
        break;
      case 1:
        x = -std::exp(x);
        break;
      case 2:
        x = e % 3 == 0 ? -0.0f : 1.25f;
        break;
      case 3:
        x = 0.25f * static_cast<float>(g % 9);
        break;
      case 4:
        x = e % 256 == g % 256 ? 0.0f : 500 + 10 * x;
        break;
      case 5:
        x *= 1e4f;
        break;
      case 6:
        x *= 1e-6f;
        break;
      case 7:
        x = x > 2 ? x : 0.0f;
        break;
      default:
        break;
    }
    set_float(type, data.data(), e, x);
  }
  for (std::size_t g = 8; escapes && g * 256 + 5 < elements; g += 89)
    set_float(type, data.data(), g * 256 + 5, g % 2 == 0 ? INFINITY : NAN);
  return data;
}

std::vector<unsigned char> masks(ElementType type, std::size_t elements, std::uint64_t seed) {
  std::vector<unsigned char> data = floats(type, elements, seed, true);
  for (std::size_t e = 0; e < elements; ++e)
    if (const std::size_t g = e / 256; g % 16 != 5)
      set_float(type, data.data(), e, g % 4 == 3 || e * 7 % 3 == 0 ? 1.25f : 0.0f);
  return data;
}

}  // namespace pleat::compress::test

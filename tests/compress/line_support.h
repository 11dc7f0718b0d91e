// Helpers that the tests of exact lines share.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace pleat::compress::block::testing {

inline std::vector<float> noise(std::size_t elements) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(elements);
  for (float& value : values) {
    value = normal(generator);
  }
  return values;
}

}  // namespace pleat::compress::block::testing

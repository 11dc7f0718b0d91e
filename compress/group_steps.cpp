#include "compress/group_steps.h"

#include <cstdint>
#include <cstring>

#include "compress/format.h"
#include "compress/step_math.h"

namespace pleat::compress {
namespace {

template <class T>
void read_steps(const Header& header, const std::uint8_t* metadata, std::vector<float>& steps) {
  const bool scaled = (header.flags & kFlagScaled) != 0;
  for (std::size_t g = 0; g < steps.size(); ++g) {
    Metadata<T> words;
    std::memcpy(&words, metadata + g * sizeof words, sizeof words);
    steps[g] = step_of_group(words, header.bits, scaled);
  }
}

}  // namespace

std::vector<float> group_steps(const void* payload) {
  Header header;
  std::memcpy(&header, payload, sizeof header);
  std::vector<float> steps;
  if (static_cast<PayloadKind>(header.kind) != PayloadKind::kGrouped || header.bits == 0)
    return steps;
  steps.resize(ceil_divide(header.elements, kGroupElements));
  const auto* const metadata = static_cast<const std::uint8_t*>(payload) + kHeaderBytes;
  const auto type = (header.flags & kFlagTransformed) != 0 ? ElementType::kFloat32
                                                           : static_cast<ElementType>(header.type);
  if (type == ElementType::kFloat32)
    read_steps<Float32>(header, metadata, steps);
  else if (type == ElementType::kBFloat16)
    read_steps<BFloat16>(header, metadata, steps);
  else
    read_steps<Float16>(header, metadata, steps);
  return steps;
}

}  // namespace pleat::compress

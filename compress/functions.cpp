#include "compress/functions.h"

#include <cstring>

#include "compress/format.h"
#include "compress/group_math.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"

namespace pleat::compress {
namespace {

// The largest and the smallest of a group.
template <class T>
void extremes(const typename T::Word* words, float* low, float* high) noexcept {
  *low = *high = T::to_float(words[0]);
  for (std::size_t e = 1; e < kGroupElements; ++e) {
    const float value = T::to_float(words[e]);
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
  }
}

template <class T>
bool looks_like_result(const Header& header, const std::uint8_t* payload, Function function,
                       const void* results, float tolerance) noexcept {
  constexpr std::size_t kLooks = 16;
  constexpr float kWidestStep = 2.0f;  // beyond, the function bends within a step
  constexpr float kMostNoise = 9.0f;   // steps may be three times as wide as the results' own
  const std::size_t whole = header.elements / kGroupElements;
  const std::size_t stride = ceil_divide(whole, kLooks) | 1;  // not the rhythm of rows and masks
  bool compared = false;
  float noise = 0.0f, own_noise = 0.0f;
  for (std::size_t g = 0; g < whole; g += stride) {
    Metadata<T> metadata;
    std::memcpy(&metadata, payload + kHeaderBytes + g * sizeof metadata, sizeof metadata);
    if (kind_of<T>(metadata) != GroupKind::kRegular) continue;
    const Dequantiser group = read_group<T>(metadata, header.bits);
    const float codes = static_cast<float>((1u << header.bits) - (group.keep_zero ? 2 : 1));
    float low, high;
    extremes<T>(static_cast<const typename T::Word*>(results) + g * kGroupElements, &low, &high);
    const float own_step = (high - low) / codes;
    noise += group.step * group.step;
    own_noise += own_step * own_step;
    if (!(magnitude(group.step) <= kWidestStep)) return false;
    const float argument = group.anchor + group.step * codes;  // the largest
    if (group.step < 0.0f || !(argument > 0.0f)) continue;     // all three rise from zero on
    float expected = argument;
    apply_function(&expected, 1, ElementType::kFloat32, function, serial_executor());
    if (!(magnitude(high - expected) <= tolerance * (1.0f + argument))) return false;
    compared = true;
  }
  return compared && noise <= kMostNoise * own_noise;
}

}  // namespace

ApplyFunction application(Function function) noexcept {
  ApplyFunction job{};
  job.function = function == Function::kGelu       ? ApplyFunction::kGelu
                 : function == Function::kGeluTanh ? ApplyFunction::kGeluTanh
                                                   : ApplyFunction::kSilu;
  return job;
}

bool groups_may_be_result(const Header& header, const std::uint8_t* payload, Function function,
                          const void* results) noexcept {
  switch (static_cast<ElementType>(header.type)) {  // a step of the others is rounded up to 8 bits
    case ElementType::kFloat32:
      return looks_like_result<Float32>(header, payload, function, results, 1e-3f);
    case ElementType::kBFloat16:
      return looks_like_result<BFloat16>(header, payload, function, results, 3e-2f);
    case ElementType::kFloat16:
      return looks_like_result<Float16>(header, payload, function, results, 3e-2f);
    default:
      return false;
  }
}

void apply_function(void* data, std::size_t elements, ElementType type, Function function,
                    const Executor& executor) noexcept {
  run_parts(executor, ceil_divide(elements, kBlockElements), kGrainBlocks,
            [&](std::size_t begin, std::size_t end) {
              const std::size_t first = begin * kBlockElements;
              const std::size_t last =
                  end * kBlockElements < elements ? end * kBlockElements : elements;
              ApplyFunction job = application(function);
              job.groups = (last - first) / kGroupElements;
              job.tail_elements = (last - first) % kGroupElements;
              job.data = static_cast<std::uint8_t*>(data) + first * element_size(type);
              kernels().apply[static_cast<std::size_t>(type)](job);
            });
}

}  // namespace pleat::compress

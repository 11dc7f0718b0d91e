#include "compress/block/group_steps.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "compress/codec.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/format.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/grouped/step_math.h"
#include "compress/rotated/scaled_math.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

template <class T>
void read_steps(const Header& header, const std::uint8_t* metadata, std::vector<float>& steps) {
  const bool scaled = (header.flags & kFlagScaled) != 0;
  for (std::size_t g = 0; g < steps.size(); ++g) {
    Metadata<T> words;
    std::memcpy(&words, metadata + g * sizeof words, sizeof words);
    steps[g] = step_of_any_group(words, header.bits, scaled);
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
  with_type(type, [&]<class T>() { read_steps<T>(header, metadata, steps); });
  return steps;
}

bool may_leave_side(const void* payload, std::size_t payload_bytes, const Sides& sides) noexcept {
  PayloadInfo info;
  if (inspect(payload, payload_bytes, &info) != Status::kOk || !is_floating(info.type)) return true;
  const FloatEnvironment environment;
  Header header;
  std::memcpy(&header, payload, sizeof header);
  if (static_cast<PayloadKind>(header.kind) != PayloadKind::kGrouped || header.bits == 0)
    return static_cast<PayloadKind>(header.kind) == PayloadKind::kSides;
  const std::optional<GroupedSections> sections =
      read_sections(header, static_cast<const std::uint8_t*>(payload));
  if (!sections) return true;
  if (sections->transformed) return (header.flags & kFlagLossy) != 0;
  return with_type(info.type, [&]<class T>() {
    const SideTest test = side_values<T>(sides).test;
    for (std::size_t g = 0; g < sections->layout.groups; ++g) {
      Metadata<T> metadata;
      std::memcpy(&metadata, sections->metadata + g * sizeof metadata, sizeof metadata);
      if (group_may_leave<T>(metadata, header.bits, test)) return true;
    }
    return false;
  });
}

}  // namespace pleat::compress

#include "compress/block/group_steps.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "compress/codec.h"
#include "compress/exponents/group_exponents.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/format.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/rotated/scaled_math.h"
#include "compress/sides/side_values.h"

namespace pleat::compress {
namespace {

// Calls visit(metadata, exponents) for each group until that is false.
template <class T, class Visit>
bool each_group(const GroupedSections& sections, const Visit& visit) {
  for (std::size_t g = 0; g < sections.layout.groups; ++g) {
    Metadata<T> metadata;
    std::memcpy(&metadata, sections.metadata + g * sizeof metadata, sizeof metadata);
    if (!visit(g, metadata, exponents_of_group(sections, g))) return false;
  }
  return true;
}

}  // namespace

std::vector<float> group_steps(const void* payload) {
  Header header;
  std::memcpy(&header, payload, sizeof header);
  std::vector<float> steps;
  if (static_cast<PayloadKind>(header.kind) != PayloadKind::kGrouped || header.bits == 0)
    return steps;
  const std::optional<GroupedSections> sections =
      read_sections(header, static_cast<const std::uint8_t*>(payload));
  if (!sections) return steps;
  steps.resize(sections->layout.groups);
  const auto type =
      sections->transformed ? ElementType::kFloat32 : static_cast<ElementType>(header.type);
  with_type(type, [&]<class T>() {
    each_group<T>(*sections,
                  [&](std::size_t g, const Metadata<T>& metadata, const GroupExponents& exponents) {
                    steps[g] = mean_step(step_of_any_group(metadata, header.bits, sections->scaled),
                                         sections->exponents, exponents);
                    return true;
                  });
  });
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
    return !each_group<T>(
        *sections, [&](std::size_t, const Metadata<T>& metadata, const GroupExponents& exponents) {
          return !group_may_leave(metadata, exponents, header.bits, test);
        });
  });
}

}  // namespace pleat::compress

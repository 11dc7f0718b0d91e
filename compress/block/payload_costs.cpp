// Estimates the costs of groups at other widths from their payload: a part of span_costs.h.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "compress/block/group_tally.h"
#include "compress/block/span_costs.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"

namespace pleat::compress::block {
namespace {

using CodeCounts = std::array<std::uint16_t, 256>;

// The values that decide the metadata of a group at any width.
struct Extent {
  float minimum = 0, maximum = 0, smallest = 0;  // smallest: above zero
  bool finite = true;
};

template <class T>
Metadata<T> metadata_at(const Extent& extent, unsigned bits, std::uint32_t widest_step) {
  const Metadata<T> escape{kEscapeWord<T>, kEscapeWord<T>};
  Metadata<T> metadata;
  if (!extent.finite || !is_finite_value(extent.maximum - extent.minimum)) {
    WidePlan plan;
    return has_wide_groups(bits) && plan_wide<T>({extent.minimum, extent.maximum, extent.smallest},
                                                 bits, &plan, &metadata, widest_step)
               ? metadata
               : escape;
  }
  const float largest_code = static_cast<float>((1u << bits) - 1);
  Quantiser quantiser;
  if (!plan_group<T>(extent.minimum, extent.maximum, largest_code, &quantiser, &metadata,
                     widest_step))
    return escape;
  if (keeps_zero(extent.minimum, bits))
    plan_zero_kept<T>(extent.smallest, extent.maximum, largest_code, &quantiser, &metadata);
  return metadata;
}

// The levels of a regular or wide group. Its anchor is one end, as it was. The other end follows
// from the step, which was rounded up: half of the most that rounding can add is assumed.
template <class T>
CodedLevels levels_of(const Metadata<T>& metadata, unsigned bits, const CodeCounts& counts) {
  const bool wide = kind_of<T>(metadata) == GroupKind::kWide;
  const Dequantiser group = read_lossy_group<T>(metadata, bits);
  const float size = magnitude(group.step);
  CodedLevels levels{};
  levels.anchor = group.anchor;
  levels.step = group.step;
  levels.first_code = group.keep_zero ? 1 : 0;
  levels.count = (wide ? wide_levels(bits) : 1u << bits) - levels.first_code;
  double steps = levels.count - 1;
  if (wide) {  // so few bits are left that the highest code tells more, if there are many
    std::size_t top = levels.count - 1;
    while (top > 1 && counts[levels.first_code + top] == 0) --top;
    constexpr double kRoundedUp = static_cast<double>(2u << T::kWideShift) / (1u << 23);
    const double least = std::max(steps / (1 + kRoundedUp), static_cast<double>(top) - 1);
    steps = (least + std::max(least, std::min(steps, static_cast<double>(top) + 1))) / 2;
  } else {
    steps *= double{float_of(bits_of(size) - T::kStepRounding / 2)} / size;
  }
  const double far =
      std::clamp<double>(group.anchor + group.step * steps, -T::kLargest, T::kLargest);
  const float end = T::to_float(T::from_float(static_cast<float>(far)));
  levels.minimum = std::min(end, group.anchor);
  levels.maximum = std::max(end, group.anchor);
  if (group.anchor <= 0.0f && group.step > 0.0f)  // some element is above zero
    levels.maximum = std::max(levels.maximum, T::kTiny);
  return levels;
}

// The codes of a block, with 3/4 taken off some. The codec itself reads them: a group with anchor 0
// and step 1 is restored to its codes. Where code 0 is kept for zero the anchor is 1/4.
template <class T>
bool read_codes(const DecodeGroups& job, const Metadata<T>* coded, float* codes) {
  const std::uint32_t one = bits_of(1.0f);
  const std::size_t groups = job.groups + (job.tail_elements != 0 ? 1 : 0);
  Metadata<Float32> metadata[kBlockGroups];
  for (std::size_t g = 0; g < groups; ++g) {
    const GroupKind kind = kind_of<T>(coded[g]);
    if ((kind == GroupKind::kEscaped && job.compacted) ||
        (kind == GroupKind::kWide && !has_wide_groups(job.bits)))
      return false;  // no encoder does that
    metadata[g] = kind == GroupKind::kConstant    ? Metadata<Float32>{0, 0}
                  : kind == GroupKind::kTwoValued ? Metadata<Float32>{0, kSignBit<Float32>}
                  : is_zero_kept<T>(coded[g])     ? Metadata<Float32>{bits_of(0.25f), one | 1u}
                                                  : Metadata<Float32>{0, one};
  }
  DecodeGroups as_codes = job;
  as_codes.metadata = metadata;
  as_codes.target = codes;
  return kernels().decode[Float32::kType](as_codes);
}

template <class T>
class PayloadTally {
 public:
  PayloadTally(const GroupedSections& sections, const BlockSpec& spec, const ExactElements& exact,
               std::span<const std::uint8_t> widths, std::span<SpanTally> tallies)
      : sections_(sections),
        spec_(spec),
        exact_(exact),
        widths_(widths),
        tallies_(tallies),
        sides_(SideCheck::of<T>(spec)),
        widest_step_(Request({}, spec.codec(), 0).widest_step_bits()),
        near_(sections.near_zero.elements) {
    assert(widths.size() <= kMostWidths);
  }

  bool add(std::size_t block);

 private:
  using Word = typename T::Word;
  static constexpr std::size_t kMostWidths = 8;

  // A group of the block that add() has before it. False: the payload is damaged.
  bool read_escaped(std::size_t g, std::size_t elements, const bool* exact);
  bool read_coded(std::size_t g, std::size_t elements, const float* codes, const bool* exact);
  bool read_near_zero(std::size_t group, std::uint16_t* count, Extent* whole);
  void add_group(std::size_t g, const Extent& extent, const Extent* whole);

  const GroupedSections& sections_;
  const BlockSpec& spec_;
  const ExactElements& exact_;
  std::span<const std::uint8_t> widths_;
  std::span<SpanTally> tallies_;
  SideCheck sides_;
  std::uint32_t widest_step_;
  const std::uint8_t* near_;  // the next group's elements near zero
  std::size_t escapes_ = 0;   // so far
  // Of the block.
  std::size_t first_group_ = 0;
  Metadata<T> coded_[kBlockGroups];
  Metadata<T> metadata_[kMostWidths][kBlockGroups];
  GroupCounts counts_[kBlockGroups];
  Pieces pieces_;
};

// The true elements of an escaped group are there: the encoder itself tells its metadata.
template <class T>
bool PayloadTally<T>::read_escaped(std::size_t g, std::size_t elements, const bool* exact) {
  if (escapes_ >= sections_.header.escapes) return false;
  const std::uint8_t* const source =
      sections_.escapes + escapes_++ * sections_.layout.source_bytes_per_group;
  EncodeGroups encode{};
  alignas(64) std::uint8_t codes[kGroupElements];
  BlockResult result{};
  std::uint16_t near_count = 0;
  encode.source = source;
  encode.groups = elements / kGroupElements;
  encode.tail_elements = elements % kGroupElements;
  encode.codes = codes;
  encode.result = &result;
  encode.widest_step = widest_step_;
  counts_[g] = read_values<T>(reinterpret_cast<const Word*>(source), elements, spec_.near_zero,
                              exact, &pieces_);
  for (std::size_t w = 0; w < widths_.size(); ++w) {
    encode.bits = widths_[w];
    encode.metadata = &metadata_[w][g];
    if (spec_.near_zero)
      encode_beside_zero(spec_.type, encode, &near_count);
    else
      kernels().encode[T::kType](encode);
    tallies_[w].counted_escapes += kernels().count_escapes[T::kType](encode);
    tallies_[w].squared_error +=
        squared_error<T>(pieces_, metadata_[w][g], widths_[w], sides_.bounds);
  }
  return true;
}

// How many elements of a group are near zero. They are added to the group's extent.
template <class T>
bool PayloadTally<T>::read_near_zero(std::size_t group, std::uint16_t* count, Extent* whole) {
  const NearZeroSection& section = sections_.near_zero;
  if (section.counts == nullptr) return true;
  std::memcpy(count, section.counts + group * sizeof *count, sizeof *count);
  const std::size_t bytes = near_zero_bytes(*count, sizeof(Word));
  if (bytes > static_cast<std::size_t>(section.end - near_)) return false;
  for (std::size_t i = 0; i < *count; ++i) {
    Word word;
    std::memcpy(&word, near_ + i * sizeof word, sizeof word);
    const float value = T::to_float(word);
    whole->finite = whole->finite && is_finite_value(value);
    whole->maximum = is_finite_value(value) ? std::max(whole->maximum, value) : whole->maximum;
  }
  near_ += bytes;
  return true;
}

template <class T>
bool PayloadTally<T>::read_coded(std::size_t g, std::size_t elements, const float* codes,
                                 const bool* exact) {
  const Metadata<T>& coded = coded_[g];
  const unsigned bits = sections_.header.bits;
  const GroupKind kind = kind_of<T>(coded);
  counts_[g] = {static_cast<std::uint16_t>(elements), 0};
  Extent extent, whole{};
  if (kind == GroupKind::kConstant || kind == GroupKind::kTwoValued) {
    for (std::size_t w = 0; w < widths_.size(); ++w) metadata_[w][g] = coded;
    return read_near_zero(first_group_ + g, &counts_[g].near_zero, &whole);
  }
  CodeCounts counts{};
  std::uint16_t zeros = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    const auto code = static_cast<std::uint8_t>(codes[e] + 0.8f);
    zeros = static_cast<std::uint16_t>(zeros + (code == 0 ? 1 : 0));
    counts[code] = static_cast<std::uint16_t>(counts[code] + (exact[e] ? 0 : 1));
  }
  const CodedLevels levels = levels_of<T>(coded, bits, counts);
  extent = {levels.minimum, levels.maximum, levels.anchor, kind != GroupKind::kWide};
  if (levels.first_code != 0) {
    extent.minimum = 0;
    counts_[g].other_than_zero = static_cast<std::uint16_t>(elements - zeros);
  } else if (extent.minimum == 0.0f) {  // of one bit: a guess, as that of pieces_of_codes()
    extent.smallest = T::kTiny;
    counts_[g].other_than_zero =
        static_cast<std::uint16_t>(std::min<std::size_t>(elements, 2 * (elements - zeros)));
  }
  whole = extent;
  if (!read_near_zero(first_group_ + g, &counts_[g].near_zero, &whole)) return false;
  // They were coded as the largest of the others, which is the anchor.
  counts[0] = static_cast<std::uint16_t>(counts[0] - std::min(counts[0], counts_[g].near_zero));
  pieces_of_codes(counts, levels, &pieces_);
  add_group(g, extent, whole.maximum != extent.maximum || !whole.finite ? &whole : nullptr);
  return true;
}

// `whole`: with the elements near zero; null: as `extent`.
template <class T>
void PayloadTally<T>::add_group(std::size_t g, const Extent& extent, const Extent* whole) {
  for (std::size_t w = 0; w < widths_.size(); ++w) {
    const unsigned bits = widths_[w];
    metadata_[w][g] =
        bits == sections_.header.bits ? coded_[g] : metadata_at<T>(extent, bits, widest_step_);
    const Metadata<T> counted =
        whole == nullptr ? metadata_[w][g] : metadata_at<T>(*whole, bits, widest_step_);
    tallies_[w].counted_escapes += kind_of<T>(counted) == GroupKind::kEscaped ? 1 : 0;
    tallies_[w].squared_error += squared_error<T>(pieces_, metadata_[w][g], bits, sides_.bounds);
  }
}

template <class T>
bool PayloadTally<T>::add(std::size_t block) {
  DecodeGroups job;
  if (!sections_.block_job(block, &job)) return false;
  const std::size_t groups = job.groups + (job.tail_elements != 0 ? 1 : 0);
  first_group_ = job.first_group;
  std::memcpy(coded_, job.metadata, groups * sizeof coded_[0]);
  alignas(64) float codes[kBlockElements];
  if (!read_codes<T>(job, coded_, codes)) return false;
  bool exact[kGroupElements] = {};
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t elements = g < job.groups ? kGroupElements : job.tail_elements;
    exact_.mark((first_group_ + g) * kGroupElements, {exact, elements});
    if (!(kind_of<T>(coded_[g]) == GroupKind::kEscaped
              ? read_escaped(g, elements, exact)
              : read_coded(g, elements, codes + g * kGroupElements, exact)))
      return false;
  }
  for (std::size_t w = 0; w < widths_.size(); ++w)
    add_block<T>(metadata_[w], counts_, groups, widths_[w], sides_, &tallies_[w]);
  return true;
}

}  // namespace

bool tally_payload(const GroupedSections& sections, const BlockSpec& spec,
                   const ExactElements& exact, std::span<const std::uint8_t> widths,
                   std::span<SpanTally> tallies) noexcept {
  return with_type(spec.type, [&]<class T>() {
    const FloatEnvironment environment;
    PayloadTally<T> tally(sections, spec, exact, widths, tallies);
    for (std::size_t block = 0; block < sections.layout.blocks; ++block)
      if (!tally.add(block)) return false;
    return true;
  });
}

}  // namespace pleat::compress::block

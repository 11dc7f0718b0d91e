// Estimates the costs of groups at other widths from their payload: a part of span_costs.h.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "compress/block/group_tally.h"
#include "compress/block/span_costs.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/grouped/grouped.h"
#include "compress/kernels.h"

namespace pleat::compress::block {
namespace {

using CodeCounts = std::array<std::uint16_t, 256>;

// The values that decide the metadata of a group at any width.
struct Extent {
  float minimum = 0, maximum = 0, smallest = 0;  // smallest: above zero
  bool finite = true;
};

template <class T>
Metadata<T> metadata_at(const Extent& extent, const Request& request) {
  const Metadata<T> escape{kEscapeWord<T>, kEscapeWord<T>};
  const unsigned bits = request.bits;
  const std::uint32_t widest_step = request.widest_step_bits();
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
  const bool between = request.zeros && keeps_zero_between(extent.minimum, extent.maximum);
  if (between || keeps_zero(extent.minimum, bits))
    plan_zero_kept<T>(between ? extent.minimum : extent.smallest, extent.maximum, largest_code,
                      &quantiser, &metadata);
  return metadata;
}

// A rotated group: its values are about Gaussian.
struct RotatedGroup {
  float deviation;
  Extent extent;

  static constexpr float kReach = 2.85f;  // deviations: half of the range of 256 values
  // The share of the energy that the levels of a scaled group have.
  static constexpr float scaled_share(unsigned bits) { return bits == 1 ? 0.6366f : 0.8825f; }

  static RotatedGroup of(const Metadata<Float32>& coded, unsigned bits, bool scaled) noexcept {
    if (scaled && is_scaled(coded)) {
      const float deviation = float_of(coded.second) * scaled_share(bits), end = kReach * deviation;
      return {deviation, {-end, end, end, true}};
    }
    const Dequantiser group = read_group<Float32>(coded, bits);
    const float end = group.anchor + group.step * static_cast<float>((1u << bits) - 1);
    const Extent extent{std::min(end, group.anchor), std::max(end, group.anchor), group.anchor};
    return {(extent.maximum - extent.minimum) / (2 * kReach), extent};
  }
  [[nodiscard]] Metadata<Float32> metadata_at(const Request& request) const noexcept {
    float scale = 0;
    if (request.scaled && find_scale(deviation, scaled_share(request.bits), &scale))
      return {kScaledMark, bits_of(scale)};
    return block::metadata_at<Float32>(extent, request);
  }
  // Pieces for `count` elements.
  void add_pieces(double count, Pieces* pieces) const noexcept {
    constexpr Piece kNormal[] = {
        {0, 0.5f, 0.3829}, {0.5f, 1, 0.2998}, {1, 2, 0.2718}, {2, 3.5f, 0.0455}};
    for (const Piece& piece : kNormal)
      pieces->add(piece.from * deviation, piece.to * deviation, piece.count * count);
  }
};

// The levels of a regular or wide group. Its anchor is one end, as it was. The other end follows
// from the step, which was rounded up: half of the most that rounding can add is assumed.
template <class T>
CodedLevels levels_of(const Metadata<T>& metadata, unsigned bits, bool zeros,
                      const CodeCounts& counts) {
  const bool wide = kind_of<T>(metadata) == GroupKind::kWide;
  const Dequantiser group = read_coded_group<T>(metadata, bits, zeros);
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
// and step 1 is restored to its codes. Where code 0 is kept for zero, and may be squeezed, the
// anchor is 1/4.
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
                  : !job.transformed && is_zero_kept<T>(coded[g])
                      ? Metadata<Float32>{bits_of(0.25f), one | 1u}
                      : Metadata<Float32>{0, one};
  }
  DecodeGroups as_codes = job;
  as_codes.transformed = as_codes.scaled = as_codes.zeros = false;
  as_codes.exponents = {};
  as_codes.metadata = metadata;
  as_codes.target = codes;
  return kernels().decode[Float32::kType](as_codes);
}

// `Coded`: type of the metadata.
template <class T, class Coded>
class PayloadTally {
 public:
  PayloadTally(const GroupedSections& sections, const CodecSpec& codec, const Sides& beside,
               const ExactElements& exact, std::span<const std::uint8_t> widths,
               std::span<SpanTally> tallies)
      : sections_(sections),
        near_zero_(codec.near_zero),
        exact_(exact),
        tallies_(tallies),
        sides_(SideCheck::of<T>(beside)),
        near_(sections.near_zero.elements) {
    assert(widths.size() <= kMostWidths);
    for (const std::uint8_t bits : widths) {
      CodecSpec at_width = codec;
      at_width.bits = bits;
      requests_.emplace_back(Span{nullptr, sections.header.elements, type()}, at_width, 0);
    }
  }

  bool add(std::size_t block);

 private:
  using Word = typename T::Word;
  static constexpr std::size_t kMostWidths = 8;

  // A group of the block that add() has before it. False: the payload is damaged.
  bool read_escaped(std::size_t g, std::size_t elements, const bool* exact);
  bool read_coded(std::size_t g, std::size_t elements, const float* codes, const bool* exact);
  bool read_near_zero(std::size_t group, std::uint16_t* count, Extent* whole);
  // `metadata_at(request)` tells the metadata of other widths.
  template <class MetadataAt>
  void add_pieces(std::size_t g, const GroupExponents& exponents, double weight,
                  const MetadataAt& metadata_at);
  void add_rotated(std::size_t g, const GroupExponents& exponents, double weight);
  [[nodiscard]] ElementType type() const noexcept {
    return static_cast<ElementType>(sections_.header.type);
  }
  [[nodiscard]] std::size_t widths() const noexcept { return requests_.size(); }

  const GroupedSections& sections_;
  const bool near_zero_;
  const ExactElements& exact_;
  std::span<SpanTally> tallies_;
  std::vector<Request> requests_;  // one for each width
  SideCheck sides_;
  const std::uint8_t* near_;  // the next group's elements near zero
  std::size_t escapes_ = 0;   // so far
  // Of the block.
  std::size_t first_group_ = 0;
  Metadata<Coded> coded_[kBlockGroups];
  Metadata<Coded> metadata_[kMostWidths][kBlockGroups];
  GroupCounts counts_[kBlockGroups];
  Pieces pieces_;
};

// The true elements of an escaped group are there: the encoder itself tells its metadata.
template <class T, class Coded>
bool PayloadTally<T, Coded>::read_escaped(std::size_t g, std::size_t elements, const bool* exact) {
  if (escapes_ >= sections_.header.escapes) return false;
  const std::uint8_t* const source =
      sections_.escapes + escapes_++ * sections_.layout.source_bytes_per_group;
  const std::size_t group = first_group_ + g;
  alignas(64) std::uint8_t codes[kGroupElements];
  std::int8_t parts[kGroupElements];
  BlockResult result{};
  std::uint16_t near_count = 0;
  for (std::size_t w = 0; w < widths(); ++w) {
    const Request& request = requests_[w];
    EncodeGroups encode = encode_job(request, sections_.layout, group, group + 1);
    encode.source = source;
    encode.metadata = &metadata_[w][g];
    encode.codes = codes;
    encode.parts = parts;
    encode.result = &result;
    if (near_zero_)
      encode_beside_zero(type(), encode, &near_count);
    else
      kernels().encode[T::kType](encode);
    const GroupExponents exponents(request.exponents, parts, group, elements);
    counts_[g] = read_values<T>(reinterpret_cast<const Word*>(source), elements, exponents,
                                near_zero_, exact, &pieces_);
    tallies_[w].counted_escapes += kernels().count_escapes[T::kType](encode);
    add_group<T>(pieces_, 1, metadata_[w][g], exponents, request, sides_, &tallies_[w]);
  }
  return true;
}

// How many elements of a group are near zero. They are added to the group's extent.
template <class T, class Coded>
bool PayloadTally<T, Coded>::read_near_zero(std::size_t group, std::uint16_t* count,
                                            Extent* whole) {
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

template <class T, class Coded>
bool PayloadTally<T, Coded>::read_coded(std::size_t g, std::size_t elements, const float* codes,
                                        const bool* exact) {
  const Metadata<Coded>& coded = coded_[g];
  const unsigned bits = sections_.header.bits;
  const GroupKind kind = kind_of<Coded>(coded);
  counts_[g] = {static_cast<std::uint16_t>(elements), 0};
  Extent extent, whole{};
  const GroupExponents exponents = exponents_of_group(sections_, first_group_ + g);
  if (kind == GroupKind::kConstant || kind == GroupKind::kTwoValued) {
    for (std::size_t w = 0; w < widths(); ++w) {
      metadata_[w][g] = coded;
      tallies_[w].has_exponents = tallies_[w].has_exponents || exponents.any();
    }
    return read_near_zero(first_group_ + g, &counts_[g].near_zero, &whole);
  }
  CodeCounts counts{};
  std::uint16_t zeros = 0, noisy = 0;
  double weight = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    const auto code = static_cast<std::uint8_t>(codes[e] + 0.8f);
    zeros = static_cast<std::uint16_t>(zeros + (code == 0 ? 1 : 0));
    if (exact[e] || exponents.is_zero(e)) continue;
    ++counts[code];
    ++noisy;
    weight += exponents.weight(e);
  }
  weight = noisy == 0 ? 0 : weight / noisy;
  if (sections_.transformed && kind == GroupKind::kRegular) {
    add_rotated(g, exponents, weight * noisy);
    return true;
  }
  const bool keeps_zeros = (sections_.header.flags & kFlagZeros) != 0;
  const CodedLevels levels = levels_of<Coded>(coded, bits, keeps_zeros, counts);
  extent = {levels.minimum, levels.maximum, levels.anchor, kind != GroupKind::kWide};
  if (levels.first_code != 0 && levels.anchor > 0.0f) {
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
  if (levels.first_code != 0) pieces_.add(0, 0, counts[0]);
  add_pieces(g, exponents, weight,
             [&](const Request& request) { return metadata_at<Coded>(extent, request); });
  const bool same = whole.maximum == extent.maximum && whole.finite;
  for (std::size_t w = 0; w < widths(); ++w) {
    const Metadata<Coded> counted =
        same ? metadata_[w][g] : metadata_at<Coded>(whole, requests_[w]);
    tallies_[w].counted_escapes += kind_of<Coded>(counted) == GroupKind::kEscaped ? 1 : 0;
  }
  return true;
}

template <class T, class Coded>
void PayloadTally<T, Coded>::add_rotated(std::size_t g, const GroupExponents& exponents,
                                         double weight) {
  if constexpr (std::is_same_v<Coded, Float32>) {
    const RotatedGroup group = RotatedGroup::of(coded_[g], sections_.header.bits, sections_.scaled);
    pieces_.clear();
    group.add_pieces(1, &pieces_);
    add_pieces(g, exponents, weight,
               [&](const Request& request) { return group.metadata_at(request); });
    for (std::size_t w = 0; w < widths(); ++w)
      tallies_[w].counted_escapes += kind_of<Coded>(metadata_[w][g]) == GroupKind::kEscaped ? 1 : 0;
  }
}

template <class T, class Coded>
template <class MetadataAt>
void PayloadTally<T, Coded>::add_pieces(std::size_t g, const GroupExponents& exponents,
                                        double weight, const MetadataAt& metadata_at) {
  for (std::size_t w = 0; w < widths(); ++w) {
    const Request& request = requests_[w];
    metadata_[w][g] = request.bits == sections_.header.bits ? coded_[g] : metadata_at(request);
    add_group<T>(pieces_, weight, metadata_[w][g], exponents, request, sides_, &tallies_[w]);
  }
}

template <class T, class Coded>
bool PayloadTally<T, Coded>::add(std::size_t block) {
  DecodeGroups job;
  if (!sections_.block_job(block, &job)) return false;
  const std::size_t groups = job.groups + (job.tail_elements != 0 ? 1 : 0);
  first_group_ = job.first_group;
  std::memcpy(coded_, job.metadata, groups * sizeof coded_[0]);
  alignas(64) float codes[kBlockElements];
  if (!read_codes<Coded>(job, coded_, codes)) return false;
  bool exact[kGroupElements] = {};
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t elements = g < job.groups ? kGroupElements : job.tail_elements;
    exact_.mark((first_group_ + g) * kGroupElements, {exact, elements});
    if (!(kind_of<Coded>(coded_[g]) == GroupKind::kEscaped
              ? read_escaped(g, elements, exact)
              : read_coded(g, elements, codes + g * kGroupElements, exact)))
      return false;
  }
  for (std::size_t w = 0; w < widths(); ++w)
    add_block(metadata_[w], counts_, groups, requests_[w], &tallies_[w]);
  return true;
}

}  // namespace

bool tally_payload(const GroupedSections& sections, const CodecSpec& codec, const Sides& beside,
                   const ExactElements& exact, std::span<const std::uint8_t> widths,
                   std::span<SpanTally> tallies) {
  return with_type(static_cast<ElementType>(sections.header.type), [&]<class T>() {
    const FloatEnvironment environment;
    const auto tally = [&]<class Coded>() {
      PayloadTally<T, Coded> all(sections, codec, beside, exact, widths, tallies);
      for (std::size_t block = 0; block < sections.layout.blocks; ++block)
        if (!all.add(block)) return false;
      return true;
    };
    return sections.transformed ? tally.template operator()<Float32>()
                                : tally.template operator()<T>();
  });
}

}  // namespace pleat::compress::block

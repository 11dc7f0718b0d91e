#include "compress/functions/functions.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "compress/exponents/group_exponents.h"
#include "compress/float_types.h"
#include "compress/format.h"
#include "compress/grouped/group_math.h"
#include "compress/grouped/grouped_sections.h"
#include "compress/kernels.h"
#include "compress/payload_writer.h"

namespace pleat::compress {
namespace {

constexpr std::size_t kLooks = 16;
constexpr std::uint32_t kDrawCall = 18;  // calls 0 to 17 of a group are its noise and its signs
constexpr float kWidestStep = 2.0f;      // with wider steps the function bends within a step
constexpr double kMostNoise = 9;         // steps may be three times as wide as the results' own
constexpr double kDeviations = 6;        // a sum of rounding errors stays within so many

// Bounds of the slope and of the second derivative of all three functions.
constexpr float kSteepest = 1.13f;
constexpr double kBend = 0.8;

// A job with only the function (not kNone) set.
ApplyFunction application(Function function) noexcept {
  ApplyFunction job{};
  job.function = function == Function::kGelu       ? ApplyFunction::kGelu
                 : function == Function::kGeluTanh ? ApplyFunction::kGeluTanh
                                                   : ApplyFunction::kSilu;
  return job;
}

// Applies the function to decoded groups, which lie in job.target. Elements of parts have noise of
// their own.
//   noisy  the arguments have the noise that the metadata tell of
void apply_to_decoded(const DecodeGroups& job, ElementType type, bool noisy, Function function) {
  ApplyFunction apply = application(function);
  const auto kernel = kernels().apply[static_cast<std::size_t>(type)];
  apply.metadata = noisy ? job.metadata : nullptr;
  apply.bits = job.bits;
  apply.groups = job.groups;
  apply.tail_elements = job.tail_elements;
  apply.data = job.target;
  apply.zeros = job.zeros;
  if (!noisy || !job.exponents.any()) return kernel(apply);
  const std::size_t groups = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const std::size_t size = element_size(type);
  const std::uint64_t before = parts_before(job.exponents, job.first_group);
  for (std::size_t g = 0; g < groups; ++g) {
    const auto* const metadata = static_cast<const std::uint8_t*>(job.metadata) + 2 * size * g;
    const std::uint64_t group = job.first_group + g;
    const GroupExponents exponents(job.exponents,
                                   job.parts + parts_before(job.exponents, group) - before, group,
                                   g < job.groups ? kGroupElements : job.tail_elements);
    exponents.each_run([&](int exponent, std::size_t begin, std::size_t end) {
      apply.metadata = exponent == kZeroPart ? nullptr : metadata;
      apply.divided_by = exponents.factor(begin);
      apply.groups = (end - begin) / kGroupElements;
      apply.tail_elements = (end - begin) % kGroupElements;
      apply.data = static_cast<std::uint8_t*>(job.target) + (g * kGroupElements + begin) * size;
      kernel(apply);
    });
  }
}

// Each function falls to its only minimum and rises from there.
struct Minimum {
  float argument, value;
};
constexpr Minimum minimum_of(Function function) noexcept {
  return function == Function::kSilu       ? Minimum{-1.278464543f, -0.278464543f}
         : function == Function::kGeluTanh ? Minimum{-0.752461423f, -0.170041210f}
                                           : Minimum{-0.751791524f, -0.169971207f};
}

// How far results may be off the function, as a fraction of 1 + |argument|: the rounding of the
// type and of torch's function. Also for a group's largest argument: 16-bit types round a step up
// to 8 bits.
template <class T>
struct Rounding {
  static constexpr float kEach = T::kType == 1 ? 1e-2f : T::kType == 2 ? 2e-3f : 1e-4f;
  static constexpr float kLargest = T::kType == 0 ? 1e-3f : 3e-2f;
};

// Sums and extremes in lanes of their own, for whatever vectors the compiler has.
constexpr std::size_t kLanes = 16;
struct Lanes {
  float lane[kLanes] = {};
  [[nodiscard]] double sum() const noexcept {
    double all = 0;
    for (const float value : lane) all += static_cast<double>(value);
    return all;
  }
};

// The bounds on the steps of all groups.
struct Steps {
  float widest = 0;
  double squares = 0;
  double count = 0;
};
template <class T>
Steps steps_of(const GroupedSections& sections) noexcept {
  Steps steps;
  std::uint32_t widest = 0;  // numbers above zero are ordered as their bits are
  for (std::size_t g = 0; g < sections.layout.groups; ++g) {
    typename T::Word word;  // the second metadata word of the group
    std::memcpy(&word, sections.metadata + (2 * g + 1) * sizeof word, sizeof word);
    const bool exact = (word & kSignBit<T>) != 0;
    const std::uint32_t bits = exact ? 0 : step_bits_of<T>(word);
    widest = bits > widest ? bits : widest;
    steps.squares += square(float_of(bits));
    steps.count += bits != 0 ? 1 : 0;
  }
  steps.widest = float_of(widest);
  return steps;
}

// The whole group looked at in stretch `look`. It is drawn, so that a regular pattern of rows or
// masks cannot hide from all looks.
std::size_t drawn_group(const GroupedSections& sections, std::size_t look) noexcept {
  const std::size_t whole = sections.whole_groups();
  if (whole <= kLooks) return look;
  const std::size_t begin = look * whole / kLooks, end = (look + 1) * whole / kLooks;
  const std::uint32_t drawn = philox(sections.header.nonce, look, kDrawCall).word[0];
  return begin + (static_cast<std::uint64_t>(drawn) * (end - begin) >> 32);
}

// A sum of rounding errors, and how large it may be.
struct ErrorSum {
  double sum = 0, variance = 0;
  double drift = 0;  // the mean error that rounding may leave, summed
  [[nodiscard]] bool is_rounding() const noexcept {
    const double beyond = (sum < 0 ? -sum : sum) - drift;
    return beyond <= 0 || beyond * beyond <= kDeviations * kDeviations * variance;
  }
};

// Compares results with the function of the restored arguments, group by group.
template <class T>
class Comparison {
 public:
  using Word = typename T::Word;
  Comparison(const GroupedSections& sections, Function function, const void* results) noexcept
      : sections_(sections), function_(function), all_(static_cast<const Word*>(results)) {}

  // Compares one group. False if some element cannot be the function of its argument.
  bool look_at(std::size_t group) noexcept {
    DecodeGroups job;
    alignas(64) Word words[kGroupElements];
    if (!sections_.group_job(group, &job)) return false;
    job.target = words;
    if (!kernels().decode[T::kType](job)) return false;
    for (std::size_t e = 0; e < kGroupElements; ++e) arguments_[e] = T::to_float(words[e]);
    apply_to_decoded(job, static_cast<ElementType>(T::kType), true, function_);
    for (std::size_t e = 0; e < kGroupElements; ++e) {
      restored_[e] = T::to_float(words[e]);
      results_[e] = T::to_float(all_[group * kGroupElements + e]);
    }
    exponents_ = exponents_of_group(sections_, group);
    for (std::size_t e = 0; e < kGroupElements; ++e)
      parts_[e] = exponents_.is_zero(e) ? 0.0f : 1.0f / exponents_.factor(e);
    Metadata<T> metadata;
    std::memcpy(&metadata, job.metadata, sizeof metadata);
    if (kind_of<T>(metadata) != GroupKind::kRegular) return elements_agree({});
    const Dequantiser known = read_group<T>(metadata, job.bits, job.zeros);
    if (!elements_agree(known)) return false;
    add_errors(known);
    return largest_agrees(known);
  }

  // True if a largest element was compared and the errors average out as rounding errors do. This
  // finds writes that leave every element within the noise of its argument.
  [[nodiscard]] bool agrees() const noexcept {
    return compared_ && errors_.is_rounding() && products_.is_rounding();
  }
  // Mean square of the steps that the results looked at would have if they were stored.
  [[nodiscard]] double own_noise() const noexcept {
    return groups_ == 0 ? 0 : own_squares_ / groups_;
  }

 private:
  // The step of `known` is 0 for a group stored exactly. Values that are not finite are skipped.
  [[nodiscard]] bool elements_agree(const Dequantiser& known) const noexcept {
    // Codes are found to 1/512 of a step; dithered levels are off by up to half a step.
    const float reach = magnitude(known.step) * (known.dither ? 0.502f : 1.004f);
    alignas(64) float low[kGroupElements], high[kGroupElements];
    for (std::size_t e = 0; e < kGroupElements; ++e) {
      low[e] = arguments_[e] - reach * parts_[e];
      high[e] = arguments_[e] + reach * parts_[e];
    }
    apply_exactly(low);
    apply_exactly(high);
    const Minimum minimum = minimum_of(function_);
    std::uint32_t beyond = 0;
    for (std::size_t e = 0; e < kGroupElements; ++e) {
      const float x = arguments_[e];
      const float tolerance = Rounding<T>::kEach * (1.0f + magnitude(x));
      const bool around = magnitude(x - minimum.argument) < reach * parts_[e];
      const float ends = low[e] < high[e] ? low[e] : high[e];
      const float least = around ? minimum.value : ends;
      const float most = low[e] < high[e] ? high[e] : low[e];
      const bool inside = (results_[e] >= least - tolerance) & (results_[e] <= most + tolerance);
      const bool says_something = magnitude(most) <= Float32::kLargest;
      beyond += static_cast<std::uint32_t>(says_something) & static_cast<std::uint32_t>(!inside);
    }
    return beyond == 0;
  }

  void apply_exactly(float* values) const noexcept {
    ApplyFunction exact = application(function_);
    exact.groups = 1;
    exact.data = values;
    kernels().apply[Float32::kType](exact);
  }

  void add_errors(const Dequantiser& known) noexcept {
    Lanes errors, products, squares, magnitudes, arguments;
    Lanes weights, noisy_squares, noisy_magnitudes;  // of squared steps
    for (std::size_t e = 0; e < kGroupElements; e += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        const float result = results_[e + l], error = result - restored_[e + l];
        errors.lane[l] += error;
        products.lane[l] += error * result;
        squares.lane[l] += result * result;
        magnitudes.lane[l] += magnitude(result);
        arguments.lane[l] += magnitude(arguments_[e + l]);
        const float weight = parts_[e + l] * parts_[e + l];
        weights.lane[l] += weight;
        noisy_squares.lane[l] += weight * result * result;
        noisy_magnitudes.lane[l] += weight * magnitude(result);
      }
    }
    const double step_square = square(known.step);
    const double bend = step_square * (known.dither ? 1.0 / 24 : 1.0 / 12) * kBend;
    const double rounding = double{Rounding<T>::kEach} * (1 + arguments.sum() / kGroupElements);
    const double variance = step_square * (known.dither ? 1.0 / 12 : 1.0 / 4) * square(kSteepest);
    // The part of the mean error that is left grows with the step, to half of it at step 2; in a
    // group that keeps zero all of it is left. The functions of noisy arguments are off by
    // 1e-4 (1 + |x|).
    const double left = (known.keep_zero ? 1 : 0.05 + step_square / 8) * bend;
    const double off = 1e-4 * (1 + arguments.sum() / kGroupElements);
    errors_.sum += errors.sum();
    errors_.variance += variance * weights.sum() + rounding * rounding * kGroupElements;
    errors_.drift += left * weights.sum() + off * kGroupElements;
    products_.sum += products.sum();
    products_.variance += variance * noisy_squares.sum() + rounding * rounding * squares.sum();
    products_.drift += left * noisy_magnitudes.sum() + off * magnitudes.sum();
  }

  // True if the largest result is the function of the largest argument. That argument is known
  // exactly, and so is its result if the argument is above zero. With exponents, the largest one is
  // so before it is divided, and may be any of those with the highest code.
  bool largest_agrees(const Dequantiser& known) noexcept {
    float lows[kLanes], highs[kLanes];
    std::memcpy(lows, results_, sizeof lows);
    std::memcpy(highs, results_, sizeof highs);
    for (std::size_t e = kLanes; e < kGroupElements; e += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        const float result = results_[e + l];
        lows[l] = result < lows[l] ? result : lows[l];
        highs[l] = result > highs[l] ? result : highs[l];
      }
    }
    float low = lows[0], high = highs[0];
    for (std::size_t l = 1; l < kLanes; ++l) {
      low = lows[l] < low ? lows[l] : low;
      high = highs[l] > high ? highs[l] : high;
    }
    const float codes =
        static_cast<float>((1u << sections_.header.bits) - (known.keep_zero ? 2 : 1));
    own_squares_ += square((high - low) / codes);
    groups_ += 1;
    const float argument = known.anchor + known.step * codes;
    if (known.step < 0.0f || !(argument > 0.0f)) return true;
    compared_ = true;
    // `part`: of the group's step.
    const auto is_result = [&](float result, float part) {
      float expected = argument * part;
      apply_function(&expected, 1, ElementType::kFloat32, function_, serial_executor());
      return magnitude(result - expected) <= Rounding<T>::kLargest * (1.0f + argument) * part;
    };
    if (!exponents_.any()) return is_result(high, 1.0f);
    // 16-bit types round a step up, so codes may fall short of the highest.
    const float least = argument - known.step * (0.75f + (T::kType == 0 ? 0.0f : codes / 64));
    bool agrees = false;
    for (std::size_t e = 0; e < kGroupElements && !agrees; ++e)
      agrees = arguments_[e] >= least * parts_[e] && !exponents_.is_zero(e) &&
               is_result(results_[e], parts_[e]);
    return agrees;
  }

  const GroupedSections& sections_;
  const Function function_;
  const Word* const all_;
  GroupExponents exponents_;                     // of the group looked at
  alignas(64) float parts_[kGroupElements];      // of the group's step: the elements' own steps
  alignas(64) float arguments_[kGroupElements];  // as restored
  alignas(64) float restored_[kGroupElements];   // the function of them
  alignas(64) float results_[kGroupElements];    // the saved results
  ErrorSum errors_, products_;                   // of errors, and of errors times results
  bool compared_ = false;
  double own_squares_ = 0, groups_ = 0;
};

template <class T>
bool looks_like_result(const GroupedSections& sections, Function function,
                       const void* results) noexcept {
  const Steps steps = steps_of<T>(sections);
  if (!(steps.widest <= kWidestStep)) return false;
  Comparison<T> comparison(sections, function, results);
  const std::size_t whole = sections.whole_groups();
  for (std::size_t look = 0; look < kLooks && look < whole; ++look)
    if (!comparison.look_at(drawn_group(sections, look))) return false;
  return comparison.agrees() && steps.squares <= kMostNoise * comparison.own_noise() * steps.count;
}

}  // namespace

void apply_to_block(const GroupedSections& sections, const DecodeGroups& job,
                    Function function) noexcept {
  apply_to_decoded(job, static_cast<ElementType>(sections.header.type),
                   !sections.transformed && sections.near_zero.counts == nullptr, function);
}

Status apply_to_groups(const Header& header, const std::uint8_t* payload, void* target,
                       Function function, const Executor& executor) noexcept {
  const std::optional<GroupedSections> sections = read_sections(header, payload);
  if (!sections) return Status::kCorrupt;
  std::atomic<bool> intact{true};
  run_parts(executor, sections->layout.blocks, kGrainBlocks,
            [&](std::size_t begin, std::size_t end) {
              for (std::size_t block = begin; block < end; ++block) {
                DecodeGroups job;
                if (!sections->block_job(block, &job)) {
                  intact.store(false, std::memory_order_relaxed);
                  return;
                }
                job.target = static_cast<std::uint8_t*>(target) +
                             job.first_group * sections->layout.source_bytes_per_group;
                apply_to_block(*sections, job, function);
              }
            });
  return intact.load() ? Status::kOk : Status::kCorrupt;
}

bool groups_may_be_result(const Header& header, const std::uint8_t* payload, Function function,
                          const void* results) noexcept {
  const std::optional<GroupedSections> sections = read_sections(header, payload);
  return sections && with_type(static_cast<ElementType>(header.type), [&]<class T>() {
           return looks_like_result<T>(*sections, function, results);
         });
}

void apply_function(void* data, std::size_t elements, ElementType type, Function function,
                    const Executor& executor) noexcept {
  by_blocks(executor, elements, kGrainBlocks, [&](std::size_t first, std::size_t count) {
    ApplyFunction job = application(function);
    job.groups = count / kGroupElements;
    job.tail_elements = count % kGroupElements;
    job.data = static_cast<std::uint8_t*>(data) + first * element_size(type);
    kernels().apply[static_cast<std::size_t>(type)](job);
  });
}

}  // namespace pleat::compress

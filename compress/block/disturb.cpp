#include "compress/block/disturb.h"
#include "compress/grouped/group_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "compress/block/block_plan.h"
#include "compress/block/distances.h"
#include "compress/block/group_costs.h"
#include "compress/exponents/group_exponents.h"
#include "compress/float_environment.h"
#include "compress/float_types.h"
#include "compress/format.h"
#include "compress/grouped/grouped.h"
#include "compress/kernels.h"
#include "compress/lines/line_patch.h"
#include "compress/near_zero/near_zero.h"
#include "compress/sides/side_values.h"
#include "compress/sides/sides.h"

// Loops that the compiler makes vectors of, for the CPU that runs them. Not under sanitizers, which
// are not ready yet when such functions are resolved.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLEAT_CLONES [[gnu::target_clones("avx2", "default")]]
#else
#define PLEAT_CLONES
#endif

namespace pleat::compress::block {
namespace {

constexpr std::size_t kBatch = 16;  // groups
constexpr std::size_t kGrain = 8;   // batches

constexpr std::uint32_t kSpreadCall = 64;  // of Philox; the codec makes less than 18 calls a group

// ---- groups ----

// `Coded`: type of the metadata.
template <class T, class Coded>
class Disturber {
 public:
  using Word = typename T::Word;

  // `sides`: beside the values.
  Disturber(const Request& request, const Sides& sides, float amplitude) noexcept
      : near_zero_(request.spec.near_zero),
        amplitude_(amplitude),
        minus_one_(T::from_float(-1.0f)),
        request_(request),
        has_sides_(sides.any()) {
    if (has_sides_)
      moves_ = side_moves<T>(side_values<T>(sides).words, sides.kind == Sides::Kind::kThree);
  }

  // Disturbs up to kBatch groups that begin at `words`.
  void disturb(Word* words, std::size_t elements, std::size_t first_group,
               std::uint64_t nonce) const noexcept;

 private:
  struct Batch {
    std::size_t groups = 0;  // the last may be short
    Metadata<Coded> metadata[kBatch];
    bool quantised[kBatch] = {};
    std::int8_t parts[kBatch * kGroupElements];
    alignas(64) std::uint8_t codes[kBatch * kGroupElements];
    alignas(64) Word before[kBatch * kGroupElements];  // what is encoded
    alignas(64) Word after[kBatch * kGroupElements];   // and what is restored
  };

  void encode(std::size_t first_group, std::uint64_t nonce, Batch* batch) const noexcept;
  void decode(std::size_t elements, std::size_t first_group, std::uint64_t nonce,
              Batch* batch) const noexcept;
  // Undoes plain rounding at random. True if the group was changed.
  bool spread(const Dequantiser& group, const GroupExponents& exponents, std::size_t elements,
              std::size_t number, std::uint64_t nonce, Word* words) const noexcept;
  // `rotated`: neither zeros nor signs are kept.
  void move(Word* words, const Word* before, const Word* after, std::size_t elements,
            bool rotated) const noexcept;
  [[nodiscard]] bool is_exempt(Word word) const noexcept {
    const float value = T::to_float(word);
    return value == 0.0f || !is_finite_value(value) || (near_zero_ && word < minus_one_);
  }

  bool near_zero_;
  float amplitude_;
  Word minus_one_;
  Request request_;
  bool has_sides_;
  SideMoves moves_{};
};

template <class T, class Coded>
void Disturber<T, Coded>::encode(std::size_t first_group, std::uint64_t nonce,
                                 Batch* batch) const noexcept {
  BlockResult result{};
  std::uint16_t near_counts[kBatch];
  Request request = request_;
  request.nonce = nonce;
  EncodeGroups job =
      encode_job(request, request.layout(), first_group, first_group + batch->groups);
  job.source = batch->before;
  job.metadata = batch->metadata;
  job.codes = batch->codes;
  job.result = &result;
  job.parts = batch->parts;
  if (near_zero_)
    encode_beside_zero(request.span.type, job, near_counts);
  else
    kernels().encode[T::kType](job);
  for (std::size_t g = 0; g < batch->groups; ++g)
    batch->quantised[g] = is_quantised<Coded>(batch->metadata[g]);
}

template <class T, class Coded>
void Disturber<T, Coded>::decode(std::size_t elements, std::size_t first_group, std::uint64_t nonce,
                                 Batch* batch) const noexcept {
  for (std::size_t g = 0; g < batch->groups; ++g)
    if (!batch->quantised[g])  // nothing of it is read
      batch->metadata[g] = {0, 0};
  DecodeGroups job{};
  job.metadata = batch->metadata;
  job.codes = batch->codes;
  job.codes_end = batch->codes + sizeof batch->codes;
  job.first_group = first_group;
  job.groups = elements / kGroupElements;
  job.tail_elements = elements % kGroupElements;
  job.bits = request_.bits;
  job.transformed = request_.transformed;
  job.scaled = request_.scaled;
  job.nonce = nonce;
  job.target = batch->after;
  job.zeros = request_.zeros;
  job.exponents = request_.exponents;
  job.parts = batch->parts;
  if (!kernels().decode[T::kType](job))
    std::fill(std::begin(batch->quantised), std::end(batch->quantised), false);
}

template <class T, class Coded>
PLEAT_CLONES bool Disturber<T, Coded>::spread(const Dequantiser& group,
                                              const GroupExponents& exponents, std::size_t elements,
                                              std::size_t number, std::uint64_t nonce,
                                              Word* words) const noexcept {
  const float step = magnitude(group.step), half = step / 2;
  std::array<float, kGroupElements> all, counting;
  std::array<std::uint8_t, kGroupElements> exempt;
  std::size_t count = 0, lowest_at = elements;  // the first element at the anchor stays there
  for (std::size_t e = elements; e-- > 0;) {
    exempt[e] = is_exempt(words[e]) ? 1 : 0;
    all[e] = std::fabs(T::to_float(words[e]) * exponents.factor(e) - group.anchor);
    lowest_at = exempt[e] == 0 && all[e] == 0 ? e : lowest_at;
  }
  for (std::size_t e = 0; e < elements; ++e) {
    counting[count] = all[e];
    count += exempt[e] == 0 ? 1 : 0;
  }
  const Distances distances(counting.data(), count, step);
  if (!distances.were_rounded()) return false;
  const float far = distances.farthest(), lowest = distances.lowest_spread();
  const float sign = group.step < 0 ? -1.0f : 1.0f;
  std::array<std::uint8_t, kGroupElements> random;
  for (std::uint32_t call = 0; call < kGroupElements / 16; ++call) {
    const PhiloxWords words_of_call = noise_words(nonce, number, kSpreadCall + call);
    std::memcpy(random.data() + 16 * call, words_of_call.word, sizeof words_of_call.word);
  }
  for (std::size_t e = 0; e < elements; ++e) {
    const float at = (static_cast<float>(random[e]) + 0.5f) / 256;
    const float distance = all[e];
    const float room = std::min(std::min(half, distance), far - distance);
    const float up = e == lowest_at ? 0.0f : at * lowest;
    const float moved = distance == 0 ? up : distance + (2 * at - 1) * room;
    all[e] = (group.anchor + sign * moved) / exponents.factor(e);
  }
  for (std::size_t e = 0; e < elements; ++e)
    words[e] = exempt[e] != 0 ? words[e] : T::from_float(all[e]);
  return true;
}

template <class T, class Coded>
PLEAT_CLONES void Disturber<T, Coded>::move(Word* words, const Word* before, const Word* after,
                                            std::size_t elements, bool rotated) const noexcept {
  constexpr auto kLowestExponent = static_cast<Word>(T::kInfinity & (~T::kInfinity + 1u));
  const float tiny = T::to_float(kLowestExponent);  // the smallest normal number
  std::array<float, kGroupElements> from, to;
  unsigned above = 0, below = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    from[e] = T::to_float(words[e]);
    above |= from[e] > 0.0f ? 1 : 0;
    below |= from[e] < 0.0f ? 1 : 0;
  }
  // Halves: the difference of two large values may overflow.
  const bool positive = above != 0 && below == 0;
  const bool one_signed = !rotated && (above == 0 || below == 0);
  const float least = one_signed ? (positive ? tiny : -T::kLargest) : -T::kLargest;
  const float most = one_signed ? (positive ? T::kLargest : -tiny) : T::kLargest;
  const float smallest = one_signed ? tiny : 0.0f;  // that is moved
  for (std::size_t e = 0; e < elements; ++e) {
    const float half_noise = T::to_float(after[e]) * 0.5f - T::to_float(before[e]) * 0.5f;
    float moved = from[e] * 0.5f + amplitude_ * half_noise;
    moved = moved > T::kLargest * 0.5f    ? T::kLargest
            : moved < -T::kLargest * 0.5f ? -T::kLargest
                                          : moved * 2.0f;
    moved = moved < least ? least : moved;
    moved = moved > most ? most : moved;
    const float size = magnitude(from[e]);
    const bool moves = (size > 0.0f || rotated) && size >= smallest && size <= T::kLargest;
    to[e] = moves ? moved : from[e];
  }
  const Word exact_below = near_zero_ ? minus_one_ : Word{0};
  if (!has_sides_) {  // another loop, as it is ten times faster
    for (std::size_t e = 0; e < elements; ++e) {
      const bool stays = to[e] == from[e] || words[e] < exact_below;
      words[e] = stays ? words[e] : T::from_float(to[e]);
    }
    return;
  }
  for (std::size_t e = 0; e < elements; ++e)
    if (to[e] != from[e] && words[e] >= exact_below)
      words[e] = moved_to_side<T>(moves_, side_of(moves_.test, from[e]), T::from_float(to[e]));
}

template <class T, class Coded>
void Disturber<T, Coded>::disturb(Word* words, std::size_t elements, std::size_t first_group,
                                  std::uint64_t nonce) const noexcept {
  Batch batch;
  batch.groups = ceil_divide(elements, kGroupElements);
  std::memcpy(batch.before, words, elements * sizeof(Word));
  encode(first_group, nonce, &batch);
  const auto elements_of = [&](std::size_t g) {
    return std::min(kGroupElements, elements - g * kGroupElements);
  };
  const auto is_rotated = [&](std::size_t g) {
    return request_.transformed && kind_of<Coded>(batch.metadata[g]) == GroupKind::kRegular;
  };
  const std::uint64_t parts = parts_before(request_.exponents, first_group);
  bool changed = false;
  for (std::size_t g = 0; g < batch.groups; ++g) {
    if (!batch.quantised[g] || is_rotated(g)) continue;
    const Dequantiser group =
        read_coded_group<Coded>(batch.metadata[g], request_.bits, request_.zeros);
    if (group.dither) continue;
    const GroupExponents exponents(
        request_.exponents, batch.parts + parts_before(request_.exponents, first_group + g) - parts,
        first_group + g, elements_of(g));
    Word* const at = batch.before + g * kGroupElements;
    changed = spread(group, exponents, elements_of(g), first_group + g, nonce, at) || changed;
  }
  if (changed) encode(first_group, nonce, &batch);
  decode(elements, first_group, nonce, &batch);
  for (std::size_t g = 0; g < batch.groups; ++g) {
    if (batch.quantised[g]) {
      const std::size_t at = g * kGroupElements;
      move(words + at, batch.before + at, batch.after + at, elements_of(g), is_rotated(g));
    }
  }
}

// ---- blocks ----

// Disturbs every span.
//   codec   of the width whose noise it is
//   beside  sides that values stay on
void disturb_spans(void* block, const BlockSource& where, ElementType type, const CodecSpec& codec,
                   const Sides& beside, const Disturbance& how, const Executor& executor) noexcept {
  constexpr std::size_t kElements = kBatch * kGroupElements;
  for (std::size_t i = 0; i < where.range_count; ++i) {
    const Span span = where.span(i, type);
    const Request request(span, codec, 0);
    if (span.elements == 0 || !request.grouped_pays(request.layout())) continue;
    with_type(type, [&]<class T>() {
      const FloatEnvironment environment;
      auto* const words = reinterpret_cast<typename T::Word*>(static_cast<std::byte*>(block) +
                                                              where.ranges[i].begin);
      const auto disturb = [&]<class Coded>() {
        const Disturber<T, Coded> disturber(request, beside, how.amplitude);
        run_parts(executor, ceil_divide(span.elements, kElements), kGrain,
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t batch = begin; batch < end; ++batch) {
                      const std::size_t first = batch * kElements;
                      disturber.disturb(words + first, std::min(kElements, span.elements - first),
                                        batch * kBatch, how.nonce + i);
                    }
                  });
      };
      request.transformed ? disturb.template operator()<Float32>()
                          : disturb.template operator()<T>();
    });
  }
}

}  // namespace

bool disturb_block(void* block, const BlockSource& where, const BlockSpec& spec,
                   const CodecSpec& codec, const Disturbance& how,
                   const Executor& executor) noexcept {
  BlockSpec at_width = spec;
  at_width.bits = how.bits;
  at_width.floor = 0;
  if (how.amplitude == 0 || plan_form(at_width, {}, 0, 0).kind() != FormKind::kLossy) return true;
  if (block != where.data || !where.is_sound(spec.type)) return false;
  CodecSpec noisy = codec;
  noisy.bits = how.bits;
  const Sides beside = sides_beside_values(spec.sides, spec.type);
  if (spec.lines.look == Look::kNone || where.range_count != 1) {
    disturb_spans(block, where, spec.type, noisy, beside, how, executor);
    return true;
  }
  const BlockPlan plan = plan_block(where, at_width, false, Effort::kThorough, executor);
  if (plan.spec.bits == 0)  // all of it is kept exact
    return true;
  const Span span = where.span(0, spec.type);
  std::vector<std::byte> patch;
  try {
    patch.resize(plan.patch_bytes);
  } catch (...) {
    return false;
  }
  if (!patch.empty())
    write_patch(plan.lines, spec.lines, span.data, span.elements, span.type, patch.data());
  disturb_spans(block, where, spec.type, noisy, beside, how, executor);
  if (!patch.empty())
    apply_patch(patch.data(), static_cast<std::byte*>(block) + where.ranges[0].begin, span.bytes());
  return true;
}

}  // namespace pleat::compress::block

#include "compress/near_zero/near_zero.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "compress/parts.h"

namespace pleat::compress {
namespace {

constexpr std::size_t kGroup = kGroupElements;
constexpr std::size_t kAtOnce = 8;  // groups replaced together: the kernels work on eight
constexpr std::size_t kSampleEvery = 16, kFewestSamples = 64;

// The `i`-th of the samples of `groups` groups (less than 2^32). They are spread evenly and are not
// periodic, so that rows and channels of any length are met. May name a group twice.
constexpr std::size_t sampled_group(std::size_t i, std::size_t groups) noexcept {
  const std::uint32_t place = static_cast<std::uint32_t>(i) * 0x9E37'79B9u;  // golden ratio
  return static_cast<std::size_t>((std::uint64_t{place} * groups) >> 32);
}

// The vector operations are those of signed numbers: of patterns whose highest bit is flipped.
struct Words32 {
  using Word = std::uint32_t;
  static constexpr Word kMinusOne = 0xBF80'0000u, kMinusInfinity = 0xFF80'0000u;
  static __m128i splat(Word word) noexcept { return _mm_set1_epi32(static_cast<int>(word)); }
  static __m128i above(__m128i a, __m128i b) noexcept { return _mm_cmpgt_epi32(a, b); }
  // Of negative numbers; `b` where `a` is NaN.
  static __m128i larger(__m128i a, __m128i b) noexcept {
    return _mm_castps_si128(_mm_max_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b)));
  }
  // One bit of each of 16 elements: is it below `bound`?
  static unsigned near(const Word* words, __m128i flip, __m128i bound) noexcept {
    const auto four = [&](std::size_t i) {
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + 4 * i));
      return above(bound, _mm_xor_si128(v, flip));
    };
    return static_cast<unsigned>(_mm_movemask_epi8(
        _mm_packs_epi16(_mm_packs_epi32(four(0), four(1)), _mm_packs_epi32(four(2), four(3)))));
  }
};
template <std::uint16_t kPattern, std::uint16_t kInfinity>
struct Words16 {
  using Word = std::uint16_t;
  static constexpr Word kMinusOne = kPattern, kMinusInfinity = kInfinity;
  static __m128i splat(Word word) noexcept { return _mm_set1_epi16(static_cast<short>(word)); }
  static __m128i above(__m128i a, __m128i b) noexcept { return _mm_cmpgt_epi16(a, b); }
  static __m128i larger(__m128i a, __m128i b) noexcept { return _mm_min_epi16(a, b); }
  static unsigned near(const Word* words, __m128i flip, __m128i bound) noexcept {
    const auto eight = [&](std::size_t i) {
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + 8 * i));
      return above(bound, _mm_xor_si128(v, flip));
    };
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(eight(0), eight(1))));
  }
};
using BFloat16Words = Words16<0xBF80u, 0xFF80u>;
using Float16Words = Words16<0xBC00u, 0xFC00u>;

template <class Function>
auto with_words(ElementType type, const Function& function) {
  switch (type) {
    case ElementType::kFloat32:
      return function.template operator()<Words32>();
    case ElementType::kBFloat16:
      return function.template operator()<BFloat16Words>();
    default:
      return function.template operator()<Float16Words>();
  }
}

// Which elements of a group are near zero: bit e mod 64 of word e / 64.
struct Bitmap {
  std::uint64_t bits[kGroup / 64] = {};

  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t count = 0;
    for (const std::uint64_t word : bits) count += static_cast<std::size_t>(std::popcount(word));
    return count;
  }
  // Calls visit(e) for each, in order.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::size_t word = 0; word < kGroup / 64; ++word)
      for (std::uint64_t left = bits[word]; left != 0; left &= left - 1)
        visit(64 * word + static_cast<std::size_t>(std::countr_zero(left)));
  }
};
static_assert(sizeof(Bitmap) == kBitmapBytes);

template <class W>
Bitmap find_near(const typename W::Word* words, std::size_t elements) noexcept {
  using Word = typename W::Word;
  constexpr auto kFlip = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  const __m128i flip = W::splat(kFlip);
  const __m128i bound = W::splat(static_cast<Word>(W::kMinusOne ^ kFlip));
  Bitmap found;
  std::size_t e = 0;
  for (; e + 16 <= elements; e += 16)
    found.bits[e / 64] |= std::uint64_t{W::near(words + e, flip, bound)} << (e % 64);
  for (; e < elements; ++e)
    found.bits[e / 64] |= std::uint64_t{words[e] < W::kMinusOne ? 1u : 0u} << (e % 64);
  return found;
}

// Copies a group of 256 elements, those near zero replaced by the largest of the rest.
template <class W>
void replace_near(const typename W::Word* from, typename W::Word* to) noexcept {
  using Word = typename W::Word;
  constexpr std::size_t kWords = sizeof(__m128i) / sizeof(Word);
  constexpr auto kFlip = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  const __m128i flip = W::splat(kFlip);
  const __m128i bound = W::splat(static_cast<Word>(W::kMinusOne ^ kFlip));
  __m128i largest = W::splat(W::kMinusInfinity);
  for (std::size_t e = 0; e < kGroup; e += kWords) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + e));
    const __m128i near = W::above(bound, _mm_xor_si128(v, flip));
    largest = W::larger(_mm_or_si128(v, near), largest);  // near ones become NaN
  }
  alignas(16) Word lanes[kWords];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), largest);
  const __m128i filler = W::splat(*std::min_element(lanes, lanes + kWords));
  for (std::size_t e = 0; e < kGroup; e += kWords) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + e));
    const __m128i near = W::above(bound, _mm_xor_si128(v, flip));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + e),
                     _mm_or_si128(_mm_and_si128(near, filler), _mm_andnot_si128(near, v)));
  }
}

template <class W>
void encode_beside(ElementType type, const EncodeGroups& job, std::uint16_t* counts) noexcept {
  using Word = typename W::Word;
  const auto* const source = static_cast<const Word*>(job.source);
  const std::size_t total = job.groups + (job.tail_elements != 0 ? 1 : 0);
  const std::size_t metadata_bytes = 2 * (job.transformed ? sizeof(float) : sizeof(Word));
  const auto elements_of = [&](std::size_t g) {
    return g < job.groups ? kGroup : job.tail_elements;
  };
  for (std::size_t g = 0; g < total; ++g)
    counts[g] =
        static_cast<std::uint16_t>(find_near<W>(source + g * kGroup, elements_of(g)).count());

  alignas(64) Word replaced[kAtOnce * kGroup];
  for (std::size_t from = 0, to; from < total; from = to) {
    // Eight groups at a time if one of them has elements near zero, else as many as have none.
    const auto any_near = [&](std::size_t first) {
      const std::size_t last = std::min(total, first + kAtOnce);
      return std::any_of(counts + first, counts + last, [](std::uint16_t n) { return n != 0; });
    };
    const bool near = any_near(from);
    to = std::min(total, from + kAtOnce);
    while (!near && to < total && !any_near(to)) to = std::min(total, to + kAtOnce);
    EncodeGroups some = job;
    some.source = source + from * kGroup;
    some.first_group = job.first_group + from;
    some.tail_elements = to > job.groups ? job.tail_elements : 0;
    some.groups = to - from - (some.tail_elements != 0 ? 1 : 0);
    some.metadata = static_cast<std::uint8_t*>(job.metadata) + from * metadata_bytes;
    some.codes = job.codes + from * kBitmapBytes * job.bits;
    if (near) {
      some.source = replaced;
      for (std::size_t g = from; g < to; ++g) {
        const Word* words = source + g * kGroup;
        Word whole[kGroup];
        if (g >= job.groups) {  // a short group's end repeats its last element
          std::copy(words, words + job.tail_elements, whole);
          std::fill(whole + job.tail_elements, whole + kGroup, words[job.tail_elements - 1]);
          words = whole;
        }
        replace_near<W>(words, replaced + (g - from) * kGroup);
      }
    }
    kernels().encode[static_cast<unsigned>(type)](some);
  }
  const ElementType metadata_type = job.transformed ? ElementType::kFloat32 : type;
  for (std::size_t g = 0; g < total; ++g)
    if (counts[g] != 0 && is_escaped(metadata_type, job.metadata, g)) counts[g] = 0;
}

template <class W>
std::size_t bytes_of_group(const typename W::Word* words, std::size_t elements) noexcept {
  return near_zero_bytes(find_near<W>(words, elements).count(), sizeof *words);
}

template <class W>
std::size_t room_of(const Span& span, const GroupedLayout& layout, bool exactly,
                    const Executor& executor) noexcept {
  const auto* const words = static_cast<const typename W::Word*>(span.data);
  const auto bytes_of = [&](std::size_t g) {
    const std::size_t first = g * kGroup;
    return bytes_of_group<W>(words + first, std::min(kGroup, span.elements - first));
  };
  const std::size_t samples = std::max(kFewestSamples, layout.groups / kSampleEvery);
  const std::size_t fixed = NearZeroLayout(layout).elements;
  if (exactly || samples >= layout.groups) {
    std::atomic<std::size_t> bytes{0};
    run_parts(executor, layout.blocks, kGrainBlocks, [&](std::size_t begin, std::size_t end) {
      std::size_t sum = 0;
      for (std::size_t g = begin * kBlockGroups; g < std::min(layout.groups, end * kBlockGroups);
           ++g)
        sum += bytes_of(g);
      bytes.fetch_add(sum, std::memory_order_relaxed);
    });
    return bytes == 0 ? 0 : fixed + bytes;
  }
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < samples; ++i) {
    const auto bytes = static_cast<double>(bytes_of(sampled_group(i, layout.groups)));
    sum += bytes;
    squares += bytes * bytes;
  }
  const double n = static_cast<double>(samples), mean = sum / n;
  const double error = std::sqrt(std::max(0.0, squares / n - mean * mean) / n);
  // Elements that no sample has met are rare: a few groups' worth.
  const double most = static_cast<double>(layout.groups) * (mean + 4 * error) + 4096;
  return fixed + static_cast<std::size_t>(most);
}

template <class W>
std::uint8_t* write_group(const typename W::Word* words, std::size_t elements,
                          std::uint8_t* out) noexcept {
  const Bitmap near = find_near<W>(words, elements);
  const std::size_t count = near.count();
  std::uint8_t* const positions = out + count * sizeof *words;
  std::size_t i = 0;
  near.for_each([&](std::size_t e) {
    std::memcpy(out + i * sizeof *words, words + e, sizeof *words);
    if (count < kMostListed) positions[i] = static_cast<std::uint8_t>(e);
    ++i;
  });
  if (count >= kMostListed) std::memcpy(positions, &near, sizeof near);
  return out + near_zero_bytes(count, sizeof *words);
}

}  // namespace

std::size_t near_zero_room(const Span& span, bool exactly, const Executor& executor) noexcept {
  if (span.elements == 0 || !is_floating(span.type)) return 0;
  const GroupedLayout layout(span.type, 8, span.elements, false);
  return with_words(span.type,
                    [&]<class W>() { return room_of<W>(span, layout, exactly, executor); });
}

void encode_beside_zero(ElementType type, const EncodeGroups& job, std::uint16_t* counts) noexcept {
  with_words(type, [&]<class W>() { encode_beside<W>(type, job, counts); });
}

std::size_t write_near_zero(const Span& span, const GroupedLayout& layout,
                            const std::uint16_t* counts, std::uint8_t* section,
                            std::size_t capacity, const Executor& executor) noexcept {
  const NearZeroLayout at(layout);
  const std::size_t size = element_size(span.type);
  if (at.elements > capacity) return at.elements;
  const std::size_t counted = layout.groups * sizeof *counts;
  std::memcpy(section, counts, counted);
  std::memset(section + counted, 0, at.offsets - counted);
  std::uint64_t offset = 0;
  for (std::size_t g = 0; g < layout.groups; ++g) {
    if (g % kBlockGroups == 0)
      std::memcpy(section + at.offsets + g / kBlockGroups * sizeof offset, &offset, sizeof offset);
    offset += near_zero_bytes(counts[g], size);
  }
  const std::size_t bytes = at.elements + offset;
  if (bytes > capacity) return bytes;
  run_parts(executor, layout.blocks, kGrainBlocks, [&](std::size_t begin, std::size_t end) {
    std::uint64_t from;
    std::memcpy(&from, section + at.offsets + begin * sizeof from, sizeof from);
    std::uint8_t* out = section + at.elements + from;
    for (std::size_t g = begin * kBlockGroups; g < std::min(layout.groups, end * kBlockGroups);
         ++g) {
      if (counts[g] == 0) continue;
      const std::size_t first = g * kGroup, elements = std::min(kGroup, span.elements - first);
      out = with_words(span.type, [&]<class W>() {
        return write_group<W>(static_cast<const typename W::Word*>(span.data) + first, elements,
                              out);
      });
    }
  });
  return bytes;
}

bool NearZeroSection::restore(std::size_t block, std::size_t block_elements, std::size_t size,
                              void* target) const noexcept {
  const auto whole = static_cast<std::size_t>(end - elements);
  std::uint64_t from;
  std::memcpy(&from, offsets + block * sizeof from, sizeof from);
  if (from > whole) return false;
  const std::uint8_t* in = elements + from;
  for (std::size_t first = 0; first < block_elements; first += kGroup) {
    std::uint16_t count;
    std::memcpy(&count, counts + (block * kBlockGroups + first / kGroup) * sizeof count,
                sizeof count);
    if (count == 0) continue;
    const std::size_t group = std::min(kGroup, block_elements - first);
    const std::size_t bytes = near_zero_bytes(count, size);
    if (count > group || bytes > static_cast<std::size_t>(end - in)) return false;
    const std::uint8_t* const positions = in + count * size;
    auto* const out = static_cast<std::uint8_t*>(target) + first * size;
    const auto put = [&](std::size_t i, std::size_t e) {
      if (e >= group) return false;
      if (size == sizeof(float))  // of a constant size, so that it is a move
        std::memcpy(out + e * sizeof(float), in + i * sizeof(float), sizeof(float));
      else
        std::memcpy(out + e * sizeof(std::uint16_t), in + i * sizeof(std::uint16_t),
                    sizeof(std::uint16_t));
      return true;
    };
    bool inside = true;
    if (count < kMostListed) {
      for (std::size_t i = 0; i < count; ++i) inside &= put(i, positions[i]);
    } else {
      Bitmap near;
      std::memcpy(&near, positions, sizeof near);
      if (near.count() != count) return false;
      std::size_t i = 0;
      near.for_each([&](std::size_t e) { inside &= put(i++, e); });
    }
    if (!inside) return false;
    in += bytes;
  }
  return true;
}

}  // namespace pleat::compress

// Tests lossless frames of reference: the saved bytes, that every bit comes back, and that every
// path, in place or not, writes the same bytes.
#include <bit>
#include <numeric>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

template <class Word>
std::vector<Word> words_of(ElementType type, std::size_t elements, std::mt19937_64& random,
                           double (*draw)(double)) {
  std::normal_distribution<double> normal;
  std::vector<Word> words(elements);
  for (std::size_t e = 0; e < elements; ++e) set_value(type, words.data(), e, draw(normal(random)));
  return words;
}
double gaussian(double x) { return x; }
double relu(double x) { return std::max(x, 0.0); }

template <class Word>
std::vector<unsigned char> expect_exact(const std::vector<Word>& words, ElementType type) {
  const Encoded out = encode_span(words.data(), words.size(), type, 0);
  EXPECT_EQ(out.status, Status::kOk);
  const auto restored = decode_span(out.payload, words.size() * sizeof(Word), thread_executor(2));
  EXPECT_EQ(std::memcmp(restored.data(), words.data(), restored.size()), 0);
  return out.payload;
}
template <class Word>
double ratio(const std::vector<Word>& words, ElementType type) {
  return double(words.size() * sizeof(Word)) / double(expect_exact(words, type).size());
}

TEST(Framed, SavesWhatLosslessPayloadsPromise) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 1 << 18;
  const ElementType bf16 = ElementType::kBFloat16, fp32 = ElementType::kFloat32;
  expect_at_least("relu_bf16", ratio(words_of<std::uint16_t>(bf16, elements, random, relu), bf16),
                  2.2);
  expect_at_least("gaussian_bf16",
                  ratio(words_of<std::uint16_t>(bf16, elements, random, gaussian), bf16), 1.3);
  expect_at_least("relu_fp32", ratio(words_of<float>(fp32, elements, random, relu), fp32), 2.0);
  expect_at_least("gaussian_fp32", ratio(words_of<float>(fp32, elements, random, gaussian), fp32),
                  1.1);
  std::vector<std::int64_t> indices(elements);
  for (auto& index : indices) index = static_cast<std::int64_t>(random() % 65536);
  expect_at_least("indices_int64", ratio(indices, ElementType::kInt64), 3.9);
  std::vector<unsigned char> flags(elements);
  for (auto& flag : flags) flag = random() & 1;
  expect_at_least("flags_bool", ratio(flags, ElementType::kBool), 7.9);
}

TEST(Framed, OneWideFrameLeavesTheOthersNarrow) {
  std::vector<std::int64_t> indices(1024 * 100);
  for (std::size_t e = 0; e < indices.size(); ++e) indices[e] = std::int64_t(e % 1000);
  indices[1024 * 50 + 3] = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(expect_exact(indices, ElementType::kInt64).size(), 64u + 100 * 16 + 99 * 2048 + 8192);
}

// Size of every frame by sorting, not by scanning.
template <class Word>
std::size_t expected_size(const std::vector<Word>& words) {
  const unsigned own = 8 * sizeof(Word);
  std::size_t bytes = 64 + ((words.size() + 255) / 256 * 2 * sizeof(Word) + 63) / 64 * 64;
  for (std::size_t from = 0; from < words.size(); from += 256) {
    std::vector<std::uint64_t> turned;
    for (std::size_t e = from; e < std::min(from + 256, words.size()); ++e)
      turned.push_back((std::uint64_t{words[e]} * 2 + (words[e] >> (own - 1))) &
                       ((std::uint64_t{1} << own) - 1));
    std::sort(turned.begin(), turned.end());
    const std::size_t zeros =
        std::size_t(std::upper_bound(turned.begin(), turned.end(), 0u) - turned.begin());
    const auto packed = [](std::size_t count, std::uint64_t range) {
      return (count + 7) / 8 * std::size_t(std::bit_width(range));
    };
    std::size_t best = packed(turned.size(), turned.back() - turned.front());
    if (zeros != 0 && zeros != turned.size())
      best = std::min(best, 32 + packed(turned.size() - zeros, turned.back() - turned[zeros]));
    bytes += best;
  }
  return std::min(bytes, 64 + words.size() * sizeof(Word));
}

// Exponents within a window, signs and mantissas anywhere, some zeros of both signs, and at times
// every pattern there is: NaNs with payloads, infinities, subnormals.
template <class Word>
std::vector<Word> patterns(std::size_t elements, std::mt19937_64& random) {
  std::vector<Word> words(elements);
  for (std::size_t from = 0; from < elements; from += 256) {
    const unsigned window = unsigned(random() % (8 * sizeof(Word) + 1));
    const Word mask = window == 8 * sizeof(Word)
                          ? static_cast<Word>(~Word{0})
                          : static_cast<Word>((std::uint64_t{1} << window) - 1);
    const auto base = static_cast<Word>(random());
    const unsigned zeros = unsigned(random() % 4);  // of 4
    for (std::size_t e = from; e < std::min(from + 256, elements); ++e) {
      const auto turned = static_cast<Word>((base & static_cast<Word>(~mask)) |
                                            (static_cast<Word>(random()) & mask));
      words[e] = std::rotr(turned, 1);
      if (random() % 4 < zeros) words[e] = 0;
      if (random() % 300 == 0) words[e] = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
    }
  }
  return words;
}

template <class Word>
void check_patterns(ElementType type) {
  std::mt19937_64 random(seed());
  for (const std::size_t elements : {2, 63, 64, 65, 255, 257, 1000, 16384 * 2 + 77}) {
    for (int trial = 0; trial < (elements > 10000 ? 3 : 20); ++trial) {
      const std::vector<Word> words = patterns<Word>(elements, random);
      std::vector<unsigned char> first;
      for (const Path& path : paths()) {
        const UsePath use(path);
        const auto payload = expect_exact(words, type);
        if (first.empty()) {
          first = payload;
          if (payload[6] == 3) {
            EXPECT_EQ(payload.size(), expected_size(words));
          }
        }
        EXPECT_TRUE(payload == first) << path.name;
        EXPECT_TRUE(encode_span(words.data(), elements, type, 0, 1, thread_executor(1)).payload ==
                    first);
        Bytes buffer(64 + elements * sizeof(Word));
        std::memcpy(buffer.data(), words.data(), elements * sizeof(Word));
        const EncodeResult result = encode_in_place(buffer.data(), buffer.size(), elements, type,
                                                    {}, 1, thread_executor(2), nullptr);
        ASSERT_EQ(result.status, Status::kOk);
        ASSERT_EQ(result.payload_bytes, first.size());
        EXPECT_EQ(std::memcmp(buffer.data(), first.data(), first.size()), 0) << path.name;
        EXPECT_TRUE(buffer.guard_intact());
      }
    }
  }
}
TEST(Framed, EveryPatternOfFloat32IsExactAndOfTheClosedFormSize) {
  check_patterns<std::uint32_t>(ElementType::kFloat32);
}
TEST(Framed, EveryPatternOfBFloat16IsExactAndOfTheClosedFormSize) {
  check_patterns<std::uint16_t>(ElementType::kBFloat16);
}
TEST(Framed, EveryPatternOfFloat16IsExactAndOfTheClosedFormSize) {
  check_patterns<std::uint16_t>(ElementType::kFloat16);
}

TEST(Framed, AllSixteenBitPatternsInOneSpan) {
  std::vector<std::uint16_t> words(1 << 16);
  std::iota(words.begin(), words.end(), std::uint16_t{0});
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    // Neighbours share their exponent, so this is framed; shuffled, it is not.
    EXPECT_LT(expect_exact(words, type).size(), words.size() * 3 / 2);
    std::vector<std::uint16_t> shuffled = words;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(seed()));
    EXPECT_EQ(expect_exact(shuffled, type).size(), 64 + 2 * words.size());
  }
}

// The head does not shrink, so writing would overtake reading there.
TEST(Framed, InPlaceWaitsForAHeadThatDoesNotShrink) {
  std::mt19937_64 random(seed());
  std::vector<std::int64_t> numbers(1024 * 700 + 5);
  for (std::size_t e = 0; e < numbers.size(); ++e)
    numbers[e] = static_cast<std::int64_t>(e < 1024 * 300 ? random() : random() % 50000);
  const auto expected = expect_exact(numbers, ElementType::kInt64);
  EXPECT_EQ(expected.size(), framed_size(numbers));
  Bytes buffer(numbers.size() * 8);
  std::memcpy(buffer.data(), numbers.data(), buffer.size());
  const EncodeResult result =
      encode_in_place(buffer.data(), buffer.size(), numbers.size(), ElementType::kInt64, {}, 1,
                      thread_executor(9), nullptr);
  ASSERT_EQ(result.status, Status::kOk);
  ASSERT_EQ(result.payload_bytes, expected.size());
  EXPECT_EQ(std::memcmp(buffer.data(), expected.data(), expected.size()), 0);
}

// Threads measure stretches at once and find their places one after the other.
TEST(Framed, StretchesOfALongSpanFindTheirPlaceWhateverTheThreads) {
  std::mt19937_64 random(seed());
  std::vector<std::int32_t> numbers((20 << 20) / 4 + 1500);
  for (std::size_t e = 0; e < numbers.size(); ++e)
    numbers[e] = static_cast<std::int32_t>(random() % (e % 7000 == 0 ? 70000 : 200));
  const auto payload = expect_exact(numbers, ElementType::kInt32);
  EXPECT_EQ(payload.size(), framed_size(numbers));
  const Span span{numbers.data(), numbers.size(), ElementType::kInt32};
  for (const Executor& executor :
       {thread_executor(1), thread_executor(3), thread_executor(40), backwards_executor()}) {
    EXPECT_TRUE(payload ==
                encode_span(span.data, span.elements, span.type, 0, 1, executor).payload);
    Bytes little(payload.size() - 1);
    EXPECT_EQ(encode(span, {}, 1, little.data(), little.size(), executor, nullptr).status,
              Status::kNoRoom);
    EXPECT_TRUE(little.guard_intact());
  }
}

}  // namespace
}  // namespace pleat::compress::test

// Framed floats by the CUDA kernels' own code, run on the CPU in every order of blocks, against the
// CPU's encoder and decoder: same bytes, same verdict on damaged ones.
#include <atomic>
#include <barrier>
#include <bit>
#include <memory>

#include "compress/cuda/device_codec.h"
#include "compress/framed/frame_chain.h"
#include "compress/framed/framed.h"
#include "tests/compress/emulated_device.h"
#include "tests/compress/emulated_kernels.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

constexpr std::uint64_t kNonce = 0x0123'4567'89AB'CDEF;
using Payload = std::vector<unsigned char>;

// Ends where it ends, for AddressSanitizer: Bytes has a guard for writes behind it.
class Exactly {
 public:
  explicit Exactly(const Payload& bytes) {
    void* block = nullptr;
    EXPECT_EQ(posix_memalign(&block, 64, bytes.size()), 0);
    bytes_.reset(static_cast<unsigned char*>(block));
    std::memcpy(bytes_.get(), bytes.data(), bytes.size());
  }
  unsigned char* data() { return bytes_.get(); }

 private:
  struct Free {
    void operator()(unsigned char* block) const { std::free(block); }
  };
  std::unique_ptr<unsigned char, Free> bytes_;
};

// The CPU's; empty: kept raw.
Payload reference(ElementType type, const Bytes& source) {
  const std::size_t elements = source.size() / element_size(type);
  const Request request({source.data(), elements, type}, {}, kNonce);
  Payload payload(request.raw_bytes());
  EncodeResult result{Status::kOk, 0};
  if (!encode_framed(request, serial_executor(), payload.data(), payload.size(), &result))
    return {};
  payload.resize(result.payload_bytes);
  return payload;
}

// Size of every frame by sorting, not by scanning.
std::size_t bytes_needed(ElementType type, const Bytes& source) {
  const std::size_t size = element_size(type), elements = source.size() / size;
  const unsigned own = static_cast<unsigned>(8 * size);
  std::size_t bytes = 64 + ((elements + 255) / 256 * 2 * size + 63) / 64 * 64;
  for (std::size_t from = 0; from < elements; from += 256) {
    std::vector<std::uint64_t> turned;
    for (std::size_t e = from; e < std::min(from + 256, elements); ++e) {
      std::uint64_t word = 0;
      std::memcpy(&word, source.data() + e * size, size);
      turned.push_back((word * 2 + (word >> (own - 1))) & ((std::uint64_t{1} << own) - 1));
    }
    std::sort(turned.begin(), turned.end());
    const auto zeros = static_cast<std::size_t>(std::upper_bound(turned.begin(), turned.end(), 0u) -
                                                turned.begin());
    const auto packed = [](std::size_t count, std::uint64_t range) {
      return (count + 7) / 8 * static_cast<std::size_t>(std::bit_width(range));
    };
    std::size_t best = packed(turned.size(), turned.back() - turned.front());
    if (zeros != 0 && zeros != turned.size())
      best = std::min(best, 32 + packed(turned.size() - zeros, turned.back() - turned[zeros]));
    bytes += best;
  }
  return bytes;
}

// One or several jobs as a launch; their scratch memory stays zero from launch to launch. One block
// dawdles; for a launch's first `held` turns it stands still once it has taken its tile, the first.
class Device {
 public:
  explicit Device(unsigned blocks = 1, unsigned held = 0)
      : blocks_(blocks), held_(held), random_(seed()) {}

  struct Task {
    const void* source;
    void* target;
    std::size_t elements;
    std::size_t capacity;
  };
  std::vector<cuda::Verdict> run(ElementType type, bool encode, const std::vector<Task>& tasks) {
    std::vector<cuda::Verdict> verdicts(tasks.size());
    cuda::Batch batch{};
    std::vector<std::vector<std::uint64_t>> scratch;
    for (const Task& task : tasks) {
      cuda::DeviceTask sized;
      sized.type = type;
      sized.framed = true;
      sized.elements = task.elements;
      scratch.emplace_back((cuda::device_scratch_bytes(sized) + 7) / 8 + 4);
      std::fill(scratch.back().end() - 4, scratch.back().end(), kGuard);
      cuda::Job& job = batch.job[batch.jobs];
      job.source = task.source;
      job.target = task.target;
      job.verdict = &verdicts[batch.jobs++];
      job.counters = reinterpret_cast<cuda::Counters*>(scratch.back().data());
      job.elements = task.elements;
      job.nonce = kNonce;
      job.capacity = task.capacity;
      job.first_tile = batch.tiles;
      batch.tiles += static_cast<std::uint32_t>(cuda::tiles_of(task.elements));
    }
    unsigned picked = 0;
    const auto pick = [&](unsigned n) {
      if (picked++ == 0 && held_ != 0) return dawdler_;
      const auto turn = static_cast<unsigned>(random_() % n);
      const bool dawdles = picked <= held_ || random_() % 40 != 0;
      return turn == dawdler_ && dawdles ? (turn + 1) % n : turn;
    };
    EXPECT_TRUE(emulate_frame_launch(type, encode, batch, blocks_, pick, &turns)) << "a deadlock";
    for (const auto& words : scratch) {
      EXPECT_TRUE(std::all_of(words.begin(), words.end() - 4, [](auto w) { return w == 0; }));
      EXPECT_TRUE(std::all_of(words.end() - 4, words.end(), [](auto w) { return w == kGuard; }));
    }
    return verdicts;
  }

  FrameTurns turns;

 private:
  static constexpr std::uint64_t kGuard = 0xA5A5'A5A5'A5A5'A5A5;
  unsigned blocks_;
  unsigned held_;
  unsigned dawdler_ = 0;
  std::mt19937_64 random_;
};

struct Framed {
  cuda::Verdict verdict;
  Payload payload;
};
Framed encode_frames(Device& device, ElementType type, const Bytes& source, std::size_t capacity) {
  Bytes room(capacity);
  const std::size_t elements = source.size() / element_size(type);
  Framed result;
  result.verdict = device.run(type, true, {{source.data(), room.data(), elements, capacity}})[0];
  EXPECT_TRUE(room.guard_intact());
  if (result.verdict.outcome == cuda::Outcome::kDone) {
    result.payload.assign(room.data(), room.data() + result.verdict.payload_bytes);
  } else {
    EXPECT_EQ(std::memcmp(room.data(), "\0\0\0\0", 4), 0);  // no header
  }
  return result;
}
cuda::Outcome decode_frames(Device& device, ElementType type, const Payload& payload,
                            Bytes& target) {
  Exactly copy(payload);
  const std::size_t elements = target.size() / element_size(type);
  const auto outcome =
      device.run(type, false, {{copy.data(), target.data(), elements, payload.size()}})[0].outcome;
  EXPECT_TRUE(target.guard_intact());
  return outcome;
}

// There and back, against the CPU's bytes and a size found otherwise.
void expect_frames(Device& device, ElementType type, const Bytes& source, const std::string& what,
                   std::size_t shift = 0) {
  const std::size_t elements = source.size() / element_size(type), raw = 64 + source.size();
  const std::size_t needed = bytes_needed(type, source);
  const Payload expected = reference(type, source);
  ASSERT_EQ(expected.empty(), needed >= raw) << what;
  if (FramedLayout(type, elements).codes_offset >= raw) return;  // device_can_encode() refuses
  const Framed got = encode_frames(device, type, source, raw);
  EXPECT_EQ(got.verdict.payload_bytes, needed) << what;
  ASSERT_EQ(got.verdict.outcome, expected.empty() ? cuda::Outcome::kKeepRaw : cuda::Outcome::kDone)
      << what;
  EXPECT_TRUE(got.payload == expected) << what;
  if (expected.empty()) return;
  Bytes restored(source.size(), shift);
  ASSERT_EQ(decode_frames(device, type, expected, restored), cuda::Outcome::kDone) << what;
  EXPECT_EQ(std::memcmp(restored.data(), source.data(), source.size()), 0) << what;
}

// Frames of every width, of words anywhere, from no zeros to all; and at times -0.
Bytes patterns(ElementType type, std::size_t elements, std::mt19937_64& random,
               std::size_t shift = 0) {
  const std::size_t size = element_size(type);
  const unsigned own = static_cast<unsigned>(8 * size);
  const std::uint64_t all = (std::uint64_t{1} << own) - 1;
  Bytes source(elements * size, shift);
  std::uint64_t window = 0, base = 0;
  unsigned zeros = 0;
  for (std::size_t e = 0; e < elements; ++e) {
    if (e % 256 == 0) {
      window = (std::uint64_t{1} << random() % (own + 1)) - 1;
      base = random() & all & ~window;
      zeros = static_cast<unsigned>(random() % 6);  // of 5
    }
    const std::uint64_t turned = base | (random() & window);
    std::uint64_t word = (turned >> 1 | turned << (own - 1)) & all;
    if (random() % 5 < zeros) word = 0;
    if (random() % 3000 == 0) word = std::uint64_t{1} << (own - 1);
    std::memcpy(source.data() + e * size, &word, size);
  }
  return source;
}
Bytes gaussian(ElementType type, std::size_t elements, bool relu, std::uint64_t stream = 0) {
  std::mt19937_64 random(seed() + stream);
  std::normal_distribution<double> normal;
  Bytes source(elements * element_size(type));
  for (std::size_t e = 0; e < elements; ++e) {
    const double x = normal(random);
    set_value(type, source.data(), e, relu ? std::max(x, 0.0) : x);
  }
  return source;
}

TEST(CudaFrames, GiveTheBytesOfTheCpuForEveryPattern) {
  std::mt19937_64 random(seed());
  Device device(3);
  for (const ElementType type : kFloatTypes)
    for (const std::size_t elements :
         {1u, 7u, 8u, 9u, 63u, 65u, 255u, 256u, 257u, 300u, 1000u, 8191u, 8192u, 8193u, 70001u})
      for (int trial = 0; trial < (elements > 1000 ? 3 : 12); ++trial)
        expect_frames(device, type, patterns(type, elements, random),
                      std::string(name_of(type)) + " " + std::to_string(elements));
}

TEST(CudaFrames, GiveTheBytesOfTheCpuForEveryKindOfGroup) {
  Device device(4);
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 100'000, size = element_size(type);
    for (int kind = 0; kind < 5; ++kind) {
      Bytes source = kind < 2 ? gaussian(type, elements, kind == 1) : mixed(type, elements, 1);
      if (kind == 3) std::memset(source.data(), 0, source.size());
      if (kind == 4)  // half zeros, of both signs
        for (std::size_t e = 0; e < elements; e += 2) {
          std::memset(source.data() + e * size, 0, size);
          source.data()[e * size + size - 1] = e % 512 == 0 ? 0x80 : 0;
        }
      expect_frames(device, type, source, std::string(name_of(type)) + " " + std::to_string(kind));
    }
  }
}

// One frame of every width, with and without zeros, whole and short: a lane's every branch.
TEST(CudaFrames, OfEveryWidth) {
  std::mt19937_64 random(seed());
  Device device;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type);
    const unsigned own = static_cast<unsigned>(8 * size);
    for (unsigned width = 0; width <= own; ++width)
      for (const unsigned zeros : {0u, 1u, 2u, 5u})  // one in so many
        for (const std::size_t last : {256u, 77u}) {
          const std::size_t elements = 256 * 5 + last;  // other frames are constant
          const std::uint64_t all = (std::uint64_t{1} << own) - 1;
          const std::uint64_t base = width == own ? 0 : (random() | 1) & all >> 1;
          Bytes source(elements * size);
          for (std::size_t e = 0; e < elements; ++e) {
            std::uint64_t turned = base;
            if (e >= 1280 && width != 0) {
              const std::uint64_t most = (std::uint64_t{1} << (width - 1)) * 2 - 1;
              turned = std::min(all, base + (e == 1281 ? most : random() & most));
            }
            std::uint64_t word = (turned >> 1 | turned << (own - 1)) & all;
            if (e >= 1280 && zeros != 0 && (e - 1280) % zeros == 0 && e != 1281) word = 0;
            std::memcpy(source.data() + e * size, &word, size);
          }
          expect_frames(device, type, source,
                        std::string(name_of(type)) + ", width " + std::to_string(width));
        }
  }
}

TEST(CudaFrames, AllSixteenBitPatternsComeBack) {
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    Bytes source(2 << 16);
    for (unsigned e = 0; e < 1u << 16; ++e)
      source.as<std::uint16_t>()[e] = static_cast<std::uint16_t>(e);
    Device device(2);
    expect_frames(device, type, source, name_of(type));
  }
}

TEST(CudaFrames, SourcesAndTargetsOfAnyAlignment) {
  std::mt19937_64 random(seed());
  Device device(2);
  for (const ElementType type : kFloatTypes)
    for (std::size_t shift = element_size(type); shift < 16; shift += element_size(type))
      expect_frames(device, type, patterns(type, 9000, random, shift), name_of(type), shift);
}

// A prediction that holds to the byte, and one that is a byte short: what was needed is told.
TEST(CudaFrames, BeyondItsCapacityNothingIsWritten) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    for (const std::size_t elements : {300u, 9000u, 40000u}) {
      const Bytes source = gaussian(type, elements, elements != 9000, elements);
      const Payload expected = reference(type, source);
      ASSERT_FALSE(expected.empty());
      Device device(3);
      const Framed held = encode_frames(device, type, source, expected.size());
      EXPECT_EQ(held.verdict.outcome, cuda::Outcome::kDone);
      EXPECT_TRUE(held.payload == expected);
      const std::size_t least = FramedLayout(type, elements).codes_offset;
      for (const std::size_t capacity :
           {expected.size() - 1, least + (expected.size() - least) / 2, least}) {
        const Framed missed = encode_frames(device, type, source, capacity);
        EXPECT_EQ(missed.verdict.outcome, cuda::Outcome::kKeepRaw);
        EXPECT_EQ(missed.verdict.payload_bytes, expected.size());
      }
    }
  }
}

TEST(CudaFrames, WhatIsNoSmallerThanRawIsKeptRaw) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    Bytes source(element_size(type) * 20000);
    for (std::size_t i = 0; i < source.size(); ++i)
      source.data()[i] = static_cast<unsigned char>(random());
    Device device;
    const Framed got = encode_frames(device, type, source, 2 * source.size());
    EXPECT_EQ(got.verdict.outcome, cuda::Outcome::kKeepRaw);
    EXPECT_EQ(got.verdict.payload_bytes, bytes_needed(type, source));
  }
}

// Look-back over hundreds of tiles while one block dawdles, and others overtake each other.
TEST(CudaFrames, GiveTheSameBytesInEveryOrderOfBlocks) {
  unsigned waited = 0;
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 8192 * 150 + 4321;
    const Bytes source = gaussian(type, elements, true);
    for (const unsigned blocks : {1u, 2u, 7u, 60u}) {
      Device device(blocks);
      expect_frames(device, type, source, std::to_string(blocks) + " blocks");
      waited += device.turns.waited;
    }
  }
  EXPECT_GT(waited, 100u);
}

// The first tile's block stands still until all others wait. By then those whose window of 32 tiles
// does not reach back to it, 33 to 59, have looked further; in encode and in decode.
TEST(CudaFrames, LookFurtherBackThanOneWindow) {
  constexpr unsigned kBlocks = 60, kTurnsEach = 200;  // a block waits after some 70
  for (const ElementType type : kFloatTypes) {
    Device device(kBlocks, kBlocks * kTurnsEach);
    expect_frames(device, type, gaussian(type, 8192 * 70 + 4321, true), name_of(type));
    EXPECT_GE(device.turns.windows, 2 * (kBlocks - 33)) << name_of(type);
  }
}

TEST(CudaFrames, ALaunchOfManySpansKeepsThemApart) {
  std::mt19937_64 random(seed());
  for (const ElementType type : kFloatTypes) {
    for (const unsigned blocks : {1u, 5u, 40u}) {
      std::vector<Bytes> sources, rooms, targets;
      std::vector<Payload> expected;
      std::vector<Exactly> payloads;
      std::vector<Device::Task> there, back;
      for (const std::size_t elements : {9000u, 300u, 8192u, 30000u, 2000u, 100000u}) {
        sources.push_back(gaussian(type, elements, elements % 3 == 0, elements));
        expected.push_back(reference(type, sources.back()));
        const std::size_t miss = elements == 8192 ? 1 : 0;
        const std::size_t capacity = expected.back().size() - miss;
        rooms.emplace_back(capacity);
        targets.emplace_back(sources.back().size());
        Payload damaged = expected.back();
        if (elements == 30000) damaged[64 + 4 * element_size(type)] ^= 0x40;  // a base
        if (elements == 2000) damaged[40] ^= 1;                               // is not looked at
        if (elements == 300) damaged[64 + element_size(type)] = 0x7F;         // a width
        payloads.emplace_back(damaged);
        there.push_back({sources.back().data(), rooms.back().data(), elements, capacity});
        back.push_back({payloads.back().data(), targets.back().data(), elements, damaged.size()});
      }
      Device device(blocks);
      const auto encoded = device.run(type, true, there);
      const auto restored = device.run(type, false, back);
      for (std::size_t t = 0; t < there.size(); ++t) {
        const std::size_t elements = there[t].elements;
        EXPECT_TRUE(rooms[t].guard_intact() && targets[t].guard_intact());
        EXPECT_EQ(encoded[t].payload_bytes, expected[t].size());
        EXPECT_EQ(encoded[t].outcome,
                  elements == 8192 ? cuda::Outcome::kKeepRaw : cuda::Outcome::kDone);
        if (elements != 8192) {
          EXPECT_EQ(std::memcmp(rooms[t].data(), expected[t].data(), expected[t].size()), 0);
        }
        EXPECT_EQ(restored[t].outcome,
                  elements == 300 ? cuda::Outcome::kCorrupt : cuda::Outcome::kDone);
        if (elements != 300) {
          EXPECT_EQ(std::memcmp(targets[t].data(), sources[t].data(), sources[t].size()) == 0,
                    elements != 30000);
        }
      }
    }
  }
}

// Damaged payloads are refused where the CPU refuses them, and decoded to the same bytes where it
// does not; within bounds either way (guards, and AddressSanitizer).
TEST(CudaFrames, DamagedPayloadsAreTreatedAsTheCpuTreatsThem) {
  std::mt19937_64 random(seed());
  const std::size_t elements = 256 * 40 + 99;
  for (const ElementType type : kFloatTypes) {
    const std::size_t size = element_size(type);
    Bytes source = gaussian(type, elements, true);
    for (std::size_t e = 0; e < 256 * 3; ++e) set_value(type, source.data(), e, 1.0 + double(e));
    const Payload intact = reference(type, source);
    ASSERT_FALSE(intact.empty());
    const FramedLayout layout(type, elements);
    unsigned refused = 0, altered = 0;
    for (int round = 0; round < 3000; ++round) {
      Payload damaged = intact;
      const auto at = [&](std::size_t from, std::size_t to) {
        return from + random() % (to - from);
      };
      switch (round % 6) {
        case 0:
          damaged[at(0, 64)] ^= static_cast<unsigned char>(1u << random() % 8);
          break;
        case 1:  // any part of an entry, often a width or a number of others
          damaged[64 + at(0, layout.frames) * 2 * size + size + random() % 2] =
              static_cast<unsigned char>(random());
          break;
        case 2:
          damaged[at(64, layout.codes_offset)] = static_cast<unsigned char>(random());
          break;
        case 3:  // bitmaps among them
          for (int n = 0; n < 400; ++n)
            damaged[at(layout.codes_offset, damaged.size())] = static_cast<unsigned char>(random());
          break;
        case 4: {  // frames that trade bytes: the sum is as it was
          std::uint8_t* const a = &damaged[64 + at(0, layout.frames - 1) * 2 * size + size];
          std::uint8_t* const b = &damaged[64 + at(0, layout.frames - 1) * 2 * size + size];
          std::swap(a[0], b[0]);
          std::swap(a[1], b[1]);
          break;
        }
        default: {  // shorter or longer, and the header says so
          damaged.resize(at(64, 2 * damaged.size()));
          Header header;
          std::memcpy(&header, damaged.data(), sizeof header);
          header.payload_bytes = damaged.size();
          header.code_bytes = damaged.size() - layout.codes_offset;
          if (round % 12 == 5) std::memcpy(damaged.data(), &header, sizeof header);
        }
      }
      Device device(2);
      Bytes target(source.size()), expected(source.size());
      const bool good = decode(damaged.data(), damaged.size(), expected.data(), expected.size(),
                               serial_executor()) == Status::kOk;
      const auto outcome = decode_frames(device, type, damaged, target);
      ASSERT_EQ(outcome, good ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt)
          << name_of(type) << ", round " << round;
      refused += !good;
      if (!good) continue;
      ASSERT_EQ(std::memcmp(target.data(), expected.data(), expected.size()), 0)
          << name_of(type) << ", round " << round;
      altered += std::memcmp(target.data(), source.data(), source.size()) != 0;
    }
    EXPECT_GT(refused, 1000u);
    EXPECT_GT(altered, 500u);
  }
}

// Bitmaps of ones: more than there are words.
TEST(CudaFrames, ABitmapWithTooManyBitsRepeatsTheBase) {
  for (const ElementType type : kFloatTypes) {
    const Bytes source = gaussian(type, 256 * 9, true);
    Payload payload = reference(type, source);
    const FramedLayout layout(type, 256 * 9);
    ASSERT_NE(payload[64 + element_size(type)] & kFrameWithoutZeros, 0u);
    std::memset(&payload[layout.codes_offset], 0xFF, kFrameBitmap);
    Bytes expected(source.size()), target(source.size());
    ASSERT_EQ(
        decode(payload.data(), payload.size(), expected.data(), expected.size(), serial_executor()),
        Status::kOk);
    Device device;
    ASSERT_EQ(decode_frames(device, type, payload, target), cuda::Outcome::kDone);
    EXPECT_EQ(std::memcmp(target.data(), expected.data(), expected.size()), 0);
  }
}

// A short frame all of whose elements are "others": no encoder writes that.
TEST(CudaFrames, EntriesThatNoEncoderWritesAreRefused) {
  for (const ElementType type : kFloatTypes) {
    const std::size_t elements = 99, size = element_size(type);
    const unsigned own = static_cast<unsigned>(8 * size);
    for (const unsigned others : {98u, 99u, 100u}) {
      for (const unsigned width : {own, own + 1, 127u}) {
        const std::size_t code_bytes = kFrameBitmap + (others + 7) / 8 * width;
        const std::size_t codes_offset = FramedLayout(type, elements).codes_offset;
        Header header;
        header.kind = static_cast<std::uint8_t>(PayloadKind::kFramed);
        header.type = static_cast<std::uint8_t>(type);
        header.elements = elements;
        header.code_bytes = code_bytes;
        header.payload_bytes = codes_offset + code_bytes;
        Payload payload(header.payload_bytes, 0x55);
        std::memcpy(payload.data(), &header, sizeof header);
        payload[64 + size] = static_cast<unsigned char>(width | kFrameWithoutZeros);
        payload[64 + size + 1] = static_cast<unsigned char>(others);
        Bytes expected(elements * size), target(elements * size);
        const bool good = decode(payload.data(), payload.size(), expected.data(), expected.size(),
                                 serial_executor()) == Status::kOk;
        EXPECT_EQ(good, others < elements && width == own);
        Device device;
        EXPECT_EQ(decode_frames(device, type, payload, target),
                  good ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt);
        if (good) {
          EXPECT_EQ(std::memcmp(target.data(), expected.data(), target.size()), 0);
        }
      }
    }
  }
}

// A lane as a thread of its own. Shuffles give words and no order among other accesses, as on a
// GPU: what is missing of sync_alone(), ThreadSanitizer finds.
template <class T>
class LaneThread {
 public:
  struct Shared {
    std::barrier<> barrier{kTileLanes};
    std::atomic<std::uint64_t> words[16][kTileLanes] = {};  // of each shuffle
  };
  LaneThread(Shared& shared, unsigned index) : shared_(shared) { lane_.index = index; }

  template <class F>
  void each(F f) {
    f(lane_);
  }
  template <class F, class G>
  std::uint32_t combine(F f, G g) {
    give(f(lane_));
    std::uint32_t all = take(0);
    for (unsigned l = 1; l < kTileLanes; ++l) all = g(all, take(l));
    ++turn_;
    return all;
  }
  template <class F, class Take>
  std::uint32_t add_up_alone(F f, Take then) {
    give(f(lane_));
    std::uint32_t before = 0, all = 0;
    for (unsigned l = 0; l < kTileLanes; ++l) {
      before += l < lane_.index ? take(l) : 0;
      all += take(l);
    }
    ++turn_;
    then(lane_, before);
    return all;
  }
  void sync_alone() { shared_.barrier.arrive_and_wait(); }

 private:
  void give(std::uint32_t word) {
    shared_.words[turn_][lane_.index].store(std::uint64_t{1} << 32 | word,
                                            std::memory_order_relaxed);
  }
  std::uint32_t take(unsigned from) {
    for (;;) {
      const std::uint64_t word = shared_.words[turn_][from].load(std::memory_order_relaxed);
      if (word != 0) return static_cast<std::uint32_t>(word);
      std::this_thread::yield();
    }
  }

  Shared& shared_;
  unsigned turn_ = 0;
  FrameLane<T> lane_;
};

TEST(CudaFrames, LanesMeetWhereOneNeedsWhatAnotherWrote) {
  for (const ElementType type : kFloatTypes) {
    with_type(type, [&]<class T>() {
      using Word = typename T::Word;
      for (const unsigned elements : {256u, 203u}) {
        for (const bool relu : {false, true}) {
          Bytes source = gaussian(type, elements, relu, elements);
          Bytes slot(Frame<T>::kMostBytes), codes(Frame<T>::kMostBytes), back(source.size());
          typename LaneThread<T>::Shared shared;
          std::vector<std::thread> threads;
          for (unsigned l = 0; l < kTileLanes; ++l)
            threads.emplace_back([&, l] {
              LaneThread<T> tile(shared, l);
              const Frame<T> frame = measure_frame<T>(tile, source.as<Word>(), elements, true);
              pack_frame(tile, frame, slot.data());
              tile.sync_alone();  // as by the kernel
              write_slot(tile, slot.data(), frame.bytes(), codes.data() + 5);
              tile.sync_alone();
              read_slot(tile, codes.data() + 5, frame.bytes(), codes.data() + codes.size(),
                        slot.data());
              tile.sync_alone();  // as by restore()
              unpack_frame(tile, frame, slot.data());
              tile.each([&](auto& lane) { store_lane<T>(lane, back.as<Word>(), elements, true); });
            });
          for (std::thread& thread : threads) thread.join();
          EXPECT_EQ(std::memcmp(back.data(), source.data(), source.size()), 0);
        }
      }
    });
  }
}

TEST(CudaFrames, LayoutIsTheFormats) {
  for (const ElementType type : kFloatTypes)
    for (const std::size_t elements :
         {std::size_t{1}, std::size_t{255}, std::size_t{257}, std::size_t{1} << 33}) {
      const FramedLayout format(type, elements);
      with_type(type, [&]<class T>() {
        const FloatFrames<T> table(elements);
        EXPECT_EQ(table.frames, format.frames);
        EXPECT_EQ(table.entries_end, 64 + format.frames * format.entry_bytes);
        EXPECT_EQ(table.codes_offset, format.codes_offset);
        EXPECT_EQ(table.raw_bytes, 64 + elements * element_size(type));
      });
    }
}

}  // namespace
}  // namespace pleat::compress::test

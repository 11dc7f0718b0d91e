// Keeps the elements of a span near zero (compress/near_zero/near_zero.h) in a section of their
// own, and puts them back. Threads take runs of eight elements, as in side_core.h. An element gets
// the next free place, so the order of a section is that in which blocks ran; what a restore makes
// of it is not, unless there are more elements than places: then the last block reads the span
// again and keeps the first ones. Written against a Block (block_core.h).
//
// A section: NearZeroHead; the numbers of the elements, 8 bytes each; the elements.
#pragma once

#include "compress/device/block_core.h"

namespace pleat::compress {
namespace {

inline constexpr unsigned kNearZeroRun = 8;
inline constexpr uint32_t kNearZeroMagic = 0x4F52'455A;  // "ZERO"
// More elements than a counter of 32 bits may hold when every thread adds a run.
inline constexpr uint32_t kManyNearZero = 1u << 31;

struct NearZeroHead {
  uint32_t magic;
  uint32_t kept;
  uint64_t elements;  // of the span
  uint32_t most;
  uint8_t type;
  uint8_t reserved[43];
};
static_assert(sizeof(NearZeroHead) == 64);

// A job has `most` in its width. One that restores has as many elements as places, at least one,
// and the span's in its capacity.
PLEAT_HD inline uint64_t near_zero_words_at(uint32_t most) {
  return sizeof(NearZeroHead) + uint64_t{most} * 8;
}
PLEAT_HD inline uint64_t near_zero_bytes_on_device(uint32_t most, unsigned item) {
  return round_up_64(near_zero_words_at(most) + uint64_t{most} * item);
}

// The pattern of -1: a pattern below it, as an unsigned number, is near zero.
template <class T>
inline constexpr uint32_t kMinusOne = T::kType == 0   ? 0xBF80'0000u
                                      : T::kType == 1 ? 0xBF80u
                                                      : 0xBC00u;

// The elements of a run that are near zero, a bit each.
template <class T>
PLEAT_HD inline uint32_t near_zero_of_run(const cuda::Job& job, uint64_t run, uint32_t* patterns) {
  constexpr unsigned kEach = Packed<T>::kPerRegister;
  const auto* const source = static_cast<const typename T::Word*>(job.source);
  const uint64_t left = job.elements - run * kNearZeroRun;
  uint32_t words[kNearZeroRun / kEach];
  load_run<T, kNearZeroRun>(source + run * kNearZeroRun, left,
                            reinterpret_cast<uintptr_t>(source) % 16 == 0, words);
  uint32_t near = 0;
  PLEAT_UNROLL
  for (unsigned e = 0; e < kNearZeroRun; ++e) {
    patterns[e] = Packed<T>::pattern(words[e / kEach], e % kEach);
    near |= (patterns[e] < kMinusOne<T> && e < left ? 1u : 0u) << e;
  }
  return near;
}

// Puts the elements of a run into the places from `place` on.
template <class T>
PLEAT_HD inline void place_run(const cuda::Job& job, uint64_t run, uint32_t near,
                               const uint32_t* patterns, uint32_t place) {
  const uint32_t most = job.width;
  uint8_t* const section = static_cast<uint8_t*>(job.target);
  auto* const numbers = reinterpret_cast<uint64_t*>(section + sizeof(NearZeroHead));
  auto* const words = reinterpret_cast<typename T::Word*>(section + near_zero_words_at(most));
  PLEAT_UNROLL
  for (unsigned e = 0; e < kNearZeroRun; ++e) {
    if ((near >> e & 1) == 0) continue;
    if (place < most) {
      numbers[place] = run * kNearZeroRun + e;
      words[place] = static_cast<typename T::Word>(patterns[e]);
    }
    ++place;
  }
}

// Keeps what is near zero in a run.
//   next(n)  takes n places, the number of the first
// Returns false if there are so many that their count may be lost.
template <class T, class Next>
PLEAT_HD inline bool keep_run(const cuda::Job& job, uint64_t run, Next next) {
  uint32_t patterns[kNearZeroRun];
  const uint32_t near = near_zero_of_run<T>(job, run, patterns);
  if (near == 0) return true;
  const uint32_t place = next(count_bits(near));
  place_run<T>(job, run, near, patterns, place);
  return place < kManyNearZero;
}

// The work of the last block of a job that keeps elements.
template <class T, class Block>
PLEAT_HD inline void finish_near_zero(Block& block, const cuda::Job& job,
                                      const cuda::Counters& counted) {
  const uint32_t most = job.width;
  const uint32_t found = counted.misses != 0 ? ~0u : counted.kept;
  if (found > most && most != 0) {
    constexpr uint64_t kAtOnce = 1u << 16;  // runs
    const uint64_t runs = (job.elements + (kNearZeroRun - 1)) / kNearZeroRun;
    uint32_t before = 0;
    for (uint64_t from = 0; from < runs && before < most; from += kAtOnce) {
      const uint64_t count = runs - from < kAtOnce ? runs - from : kAtOnce;
      uint32_t patterns[kNearZeroRun];
      before += block.numbered(
          static_cast<uint32_t>(count),
          [&](uint32_t i) { return count_bits(near_zero_of_run<T>(job, from + i, patterns)); },
          [&](uint32_t i, uint32_t rank) {
            const uint32_t near = near_zero_of_run<T>(job, from + i, patterns);
            place_run<T>(job, from + i, near, patterns, before + rank);
          });
    }
  }
  block.once([&] {
    NearZeroHead head{};
    head.magic = kNearZeroMagic;
    head.kept = found < most ? found : most;
    head.elements = job.elements;
    head.most = most;
    head.type = T::kType;
    *static_cast<NearZeroHead*>(job.target) = head;
    job.verdict->escapes = 0;
    job.verdict->kept = found;
    job.verdict->payload_bytes = near_zero_bytes_on_device(found, sizeof(typename T::Word));
  });
  block.publish(job.verdict, cuda::Outcome::kDone);
}

template <class T>
PLEAT_HD inline bool near_zero_fits(const cuda::Job& job) {
  const NearZeroHead& head = *static_cast<const NearZeroHead*>(job.source);
  return head.magic == kNearZeroMagic && head.kept <= head.most && head.most == job.width &&
         head.elements == job.capacity && head.type == T::kType;
}
// Puts the element in place `place` back. False if the span has no such element.
template <class T>
PLEAT_HD inline bool restore_near_zero(const cuda::Job& job, uint64_t place) {
  const uint8_t* const section = static_cast<const uint8_t*>(job.source);
  if (place >= reinterpret_cast<const NearZeroHead*>(section)->kept) return true;
  const uint64_t number = reinterpret_cast<const uint64_t*>(section + sizeof(NearZeroHead))[place];
  if (number >= job.capacity) return false;
  static_cast<typename T::Word*>(job.target)[number] =
      reinterpret_cast<const typename T::Word*>(section + near_zero_words_at(job.width))[place];
  return true;
}

}  // namespace
}  // namespace pleat::compress

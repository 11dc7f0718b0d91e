// A device in plain C++: the tiles and blocks that the CUDA kernels' code is written against, with
// the lanes as an array. Runs a job as the kernels do, one tile after the other.
#pragma once

#include <cstdint>

#include "compress/cuda/packing_core.h"
#include "compress/cuda/span_core.h"

namespace pleat::compress::test {

template <class T>
class EmulatedTile {
 public:
  EmulatedTile() {
    for (unsigned l = 0; l < kTileLanes; ++l) lanes_[l].index = l;
  }
  template <class F>
  void each(F f) {
    for (Lane<T>& lane : lanes_) f(lane);
  }
  template <class U, class F>
  float lesser(F f) {
    return fold(
        f, [](std::uint32_t a, std::uint32_t b) { return Packed<T>::lesser_of(a, b); },
        [](float a, float b) { return compress::lesser(a, b); });
  }
  template <class U, class F>
  float greater(F f) {
    return fold(
        f, [](std::uint32_t a, std::uint32_t b) { return Packed<T>::greater_of(a, b); },
        [](float a, float b) { return compress::greater(a, b); });
  }
  template <class F>
  bool any(F f) {
    bool found = false;
    for (Lane<T>& lane : lanes_) found |= f(lane);
    return found;
  }
  template <class F>
  bool any_alone(F f) {
    return any(f);
  }
  template <class F>
  float least_alone(F f) {
    float least = f(lanes_[0]);
    for (Lane<T>& lane : lanes_) least = f(lane) < least ? f(lane) : least;
    return least;
  }
  template <class Has, class F>
  std::uint32_t pick_alone(Has has, F f) {
    for (Lane<T>& lane : lanes_)
      if (has(lane)) return f(lane);
    return 0;
  }

 private:
  template <class F, class Both, class Halves>
  float fold(F f, Both both, Halves halves) {
    std::uint32_t word = f(lanes_[0]);
    for (Lane<T>& lane : lanes_) word = both(word, f(lane));
    return halves(Packed<T>::value(word, 0), Packed<T>::value(word, Packed<T>::kPerRegister - 1));
  }
  Lane<T> lanes_[kTileLanes];
};

class EmulatedBlock {
 public:
  template <class F>
  void each(std::uint64_t n, F f) {
    for (std::uint64_t i = n; i-- > 0;) f(i);
  }
  template <class G, class F>
  void by_warps(std::uint64_t n, G g, F f) {
    for (std::uint64_t i = n; i-- > 0;) {
      const auto read = g(i);
      for (unsigned lane = 0; lane < 32; ++lane) f(i, read, lane);
    }
  }
  template <class Marked, class F>
  void ranked(std::uint64_t n, Marked marked, F f) {
    std::uint64_t rank = 0;
    for (std::uint64_t i = 0; i < n; ++i)
      if (marked(i)) f(i, rank++);
  }
  template <class F>
  void once(F f) {
    f();
  }
  void sync() {}
  void publish(cuda::Verdict* verdict, cuda::Outcome outcome) { verdict->outcome = outcome; }
};

// Groups last to first: no group may depend on another.
template <class T, unsigned kBits>
void emulate_encode(const cuda::Job& job) {
  using Word = typename T::Word;
  const DeviceLayout<T, kBits> layout(job.elements);
  auto* const payload = static_cast<std::uint8_t*>(job.target);
  std::uint64_t escapes = 0;
  bool lossy = false;
  for (std::uint64_t g = layout.groups; g-- > 0;) {
    EmulatedTile<T> tile;
    const std::uint64_t left = job.elements - g * kGroupSize;
    const GroupKind kind =
        encode_group<T, kBits>(tile, static_cast<const Word*>(job.source) + g * kGroupSize,
                               left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
                               reinterpret_cast<std::uintptr_t>(job.source) % 16 == 0, g, job.nonce,
                               reinterpret_cast<Metadata<T>*>(payload + 64) + g,
                               payload + layout.codes_offset + g * layout.kSlotBytes);
    escapes += kind == GroupKind::kEscaped;
    lossy |= kind == GroupKind::kRegular;
    if (too_many_escapes<T, kBits>(job.elements, escapes)) break;
  }
  EmulatedBlock block;
  finish_span<T, kBits>(block, job, escapes, lossy);
}

template <class T, unsigned kBits>
void emulate_decode(const cuda::Job& job) {
  using Word = typename T::Word;
  const DeviceLayout<T, kBits> layout(job.elements);
  const auto* const payload = static_cast<const std::uint8_t*>(job.source);
  Header header;
  memcpy(&header, payload, sizeof header);
  if (!payload_fits<T, kBits>(header, job.elements)) {
    job.verdict->outcome = cuda::Outcome::kCorrupt;
    return;
  }
  bool intact = true;
  for (std::uint64_t g = layout.groups; g-- > 0;) {
    EmulatedTile<T> tile;
    const std::uint64_t left = job.elements - g * kGroupSize;
    Metadata<T> metadata;
    memcpy(&metadata, payload + 64 + g * sizeof metadata, sizeof metadata);
    intact &= decode_group<T, kBits>(
        tile, metadata, payload + layout.codes_offset + g * layout.kSlotBytes,
        EscapeTable{payload + layout.end_of_codes(), header.escapes}, g, header.nonce,
        static_cast<Word*>(job.target) + g * kGroupSize,
        left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
        reinterpret_cast<std::uintptr_t>(job.target) % 16 == 0);
  }
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

// Booleans and integers; runs last to first.
inline void emulate_pack(const cuda::Job& job, unsigned type) {
  auto* const codes = static_cast<std::uint8_t*>(job.target) + 64;
  const unsigned length = type == 3 ? kBooleanRun : kIntegerRun;
  bool held = true;
  for (std::uint64_t run = (job.elements + length - 1) / length; run-- > 0;) {
    if (type == 3) {
      held &=
          pack_boolean_run(static_cast<const std::uint8_t*>(job.source), job.elements, run, codes);
      continue;
    }
    held &= with_width(job.width, [&]<unsigned kWidth>() {
      held &=
          type == 4
              ? pack_integer_run<std::int64_t, kWidth>(static_cast<const std::int64_t*>(job.source),
                                                       job.elements, run, job.minimum, codes)
              : pack_integer_run<std::int32_t, kWidth>(static_cast<const std::int32_t*>(job.source),
                                                       job.elements, run, job.minimum, codes);
    });
  }
  EmulatedBlock block;
  finish_packed(block, job, type == 3 ? PayloadKind::kBoolean : PayloadKind::kInteger,
                static_cast<std::uint8_t>(type), !held);
}
inline void emulate_unpack(const cuda::Job& job, unsigned type) {
  const auto* const payload = static_cast<const std::uint8_t*>(job.source);
  const unsigned length = type == 3 ? kBooleanRun : kIntegerRun;
  Header header;
  memcpy(&header, payload, sizeof header);
  bool intact = packed_payload_fits(header, job.elements,
                                    type == 3 ? PayloadKind::kBoolean : PayloadKind::kInteger,
                                    static_cast<std::uint8_t>(type));
  for (std::uint64_t run = (job.elements + length - 1) / length; intact && run-- > 0;) {
    if (type == 3) {
      unpack_boolean_run(payload + 64, job.elements, run, static_cast<std::uint8_t*>(job.target));
      continue;
    }
    intact &= with_width(header.width, [&]<unsigned kWidth>() {
      const auto minimum = static_cast<std::int64_t>(header.value);
      if (type == 4)
        unpack_integer_run<std::int64_t, kWidth>(payload + 64, job.elements, run, minimum,
                                                 static_cast<std::int64_t*>(job.target));
      else
        unpack_integer_run<std::int32_t, kWidth>(payload + 64, job.elements, run, minimum,
                                                 static_cast<std::int32_t*>(job.target));
    });
  }
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

// A kernel by its type and width.
template <class F>
void with_codec(unsigned type, unsigned bits, F f) {
  const auto of_type = [&](auto t) {
    using T = decltype(t);
    switch (bits) {
      case 0:
        return f.template operator()<T, 0>();
      case 1:
        return f.template operator()<T, 1>();
      case 2:
        return f.template operator()<T, 2>();
      case 3:
        return f.template operator()<T, 3>();
      case 4:
        return f.template operator()<T, 4>();
      default:
        return f.template operator()<T, 8>();
    }
  };
  switch (type) {
    case 0:
      return of_type(Float32{});
    case 1:
      return of_type(BFloat16{});
    default:
      return of_type(Float16{});
  }
}

}  // namespace pleat::compress::test

// A device in plain C++: the tiles and blocks that the CUDA kernels' code is written against, with
// the lanes as an array. Runs a job as the kernels do, one tile after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "compress/cuda/in_place_core.h"
#include "compress/cuda/packing_core.h"
#include "compress/cuda/span_core.h"
#include "compress/cuda/transform_core.h"

namespace pleat::compress::test {

template <class T, class L = Lane<T>>
class EmulatedTile {
 public:
  EmulatedTile() {
    for (unsigned l = 0; l < kTileLanes; ++l) lanes_[l].index = l;
  }
  template <class F>
  void each(F f) {
    for (unsigned l = 0; l < kTileLanes; ++l) f(lanes_[backwards_ ? kTileLanes - 1 - l : l]);
  }
  // Lanes last to first: none may depend on another before they are synchronised.
  void turn_round() { backwards_ = !backwards_; }
  template <class U, class F>
  float lesser(F f) {
    return of_halves(combine(f, Packed<T>::lesser_of), compress::lesser);
  }
  template <class U, class F>
  float greater(F f) {
    return of_halves(combine(f, Packed<T>::greater_of), compress::greater);
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

  template <class F>
  auto sum(F f) {
    decltype(f(lanes_[0])) sums[kTileLanes];
    for (Lane<T>& lane : lanes_) sums[lane.index] = f(lane);
    for (unsigned step = 1; step < kTileLanes; step *= 2)
      for (unsigned l = 0; l < kTileLanes; l += 2 * step)
        for (std::size_t n = 0; n < std::size(sums[l].of); ++n)
          sums[l].of[n] += sums[l + step].of[n];
    return sums[0];
  }
  template <class Give, class Take>
  void across(unsigned step, Give give, Take take) {
    std::uint32_t words[kTileLanes];
    for (Lane<T>& lane : lanes_) words[lane.index] = give(lane);
    for (Lane<T>& lane : lanes_) take(lane, words[lane.index ^ step]);
  }
  template <class F, class G>
  std::uint32_t combine(F f, G g) {
    std::uint32_t word = f(lanes_[0]);
    for (unsigned l = 1; l < kTileLanes; ++l) word = g(word, f(lanes_[l]));
    return word;
  }
  template <class F, class Take>
  std::uint32_t add_up_alone(F f, Take take) {
    std::uint32_t all = 0;
    for (L& lane : lanes_) {
      const std::uint32_t own = f(lane);
      take(lane, all);
      all += own;
    }
    return all;
  }
  void sync_alone() {}

 private:
  static float of_halves(std::uint32_t word, float (*choose)(float, float)) {
    return choose(Packed<T>::value(word, 0), Packed<T>::value(word, Packed<T>::kPerRegister - 1));
  }
  L lanes_[kTileLanes];
  bool backwards_ = false;
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
template <class F>
void emulate_encode(const cuda::Job& job) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  const DeviceLayout<F> layout(job.elements);
  auto* const payload = static_cast<std::uint8_t*>(job.target);
  std::uint64_t escapes = 0;
  bool lossy = false;
  for (std::uint64_t g = layout.groups; g-- > 0;) {
    EmulatedTile<Coded> tile;
    const std::uint64_t left = job.elements - g * kGroupSize;
    const GroupKind kind =
        encode_form<F>(tile, static_cast<const Word*>(job.source) + g * kGroupSize,
                       left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
                       reinterpret_cast<std::uintptr_t>(job.source) % 16 == 0, g, job.nonce,
                       reinterpret_cast<Metadata<Coded>*>(payload + 64) + g,
                       payload + layout.codes_offset + g * layout.kSlotBytes);
    escapes += kind == GroupKind::kEscaped;
    lossy |= kind == GroupKind::kRegular;
    if (too_many_escapes<F>(job.elements, escapes)) break;
  }
  EmulatedBlock block;
  finish_span<F>(block, job, escapes, lossy, GroupsInSource<F>{job});
}

// In place, first kernel.
template <class T>
void emulate_survey(const cuda::Job& job) {
  using Word = typename T::Word;
  std::uint64_t escapes = 0;
  const float largest_code = static_cast<float>((1u << job.width) - 1);
  for (std::uint64_t at = 0; at < job.elements; at += kGroupSize) {
    EmulatedTile<T> tile;
    const std::uint64_t left = job.elements - at;
    escapes += survey_group<T>(tile, static_cast<const Word*>(job.source) + at,
                               left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize, true,
                               largest_code);
  }
  std::fill_n(flags_of(job), cuda::tiles_of(job.elements), 0u);
  *state_of(job) = {0, 0, static_cast<std::uint32_t>(escapes), {}};
}

// Second kernel, by several blocks at a time, each of which takes a ticket, stages its tile place
// by place, raises its flag, and writes as soon as the flags it waits for are up: one of these a
// turn.
//   pick(n)  which block's turn it is
// Returns false if they wait for each other.
struct InPlaceTurns {
  unsigned bounced = 0;  // tiles that took the detour
  unsigned waited = 0;   // turns that found a flag down
};
template <class F, class Pick>
bool emulate_in_place(const cuda::Job& job, unsigned blocks, Pick pick, InPlaceTurns* turns) {
  InPlaceState* const state = state_of(job);
  const InPlaceLayout<F> layout(job.elements);
  std::uint32_t* const flags = flags_of(job);
  const bool refused = layout.refuses(state->escapes, job.elements);
  struct Resident {
    bool holds = false;
    std::uint64_t tile = 0;
    unsigned places = 0;  // still to be staged
    bool flagged = false;
    Staged<F> staged;
  };
  std::vector<Resident> residents(blocks);
  EmulatedBlock block;
  bool lossy = false;
  unsigned idle = 0;
  for (std::uint64_t done = 0; !refused && done < layout.tiles; ++idle) {
    if (idle > 1000 * blocks) return false;
    Resident& one = residents[pick(blocks)];
    if (!one.holds) {
      if (state->ticket == layout.tiles) continue;
      one.tile = state->ticket++;
      one.places = cuda::kGroupsPerTile;
      one.holds = true;
      one.flagged = false;
    } else if (one.places != 0) {
      EmulatedTile<typename F::Coded> tile;
      lossy |= stage_group<F>(tile, job, one.tile, --one.places, one.staged,
                              [&] { return state->aside++; }) == GroupKind::kRegular;
    } else if (!one.flagged) {
      flags[one.tile] = 1;
      one.flagged = true;
    } else {
      bool ready = true;
      if (!layout.bounces(one.tile))
        layout.each_under(one.tile, [&](std::uint64_t k) { ready &= flags[k] != 0; });
      if (!ready) {
        ++turns->waited;
        continue;
      }
      turns->bounced += layout.bounces(one.tile);
      write_staged<F>(block, job, one.tile, one.staged);
      one.holds = false;
      ++done;
    }
    idle = 0;
  }
  finish_in_place<F>(block, job, state->escapes, lossy);
  return true;
}

template <class F>
void emulate_decode(const cuda::Job& job) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  const DeviceLayout<F> layout(job.elements);
  const auto* const payload = static_cast<const std::uint8_t*>(job.source);
  Header header;
  memcpy(&header, payload, sizeof header);
  if (!payload_fits<F>(header, job.elements, job.capacity)) {
    job.verdict->outcome = cuda::Outcome::kCorrupt;
    return;
  }
  bool intact = true;
  for (std::uint64_t g = layout.groups; g-- > 0;) {
    EmulatedTile<Coded> tile;
    const std::uint64_t left = job.elements - g * kGroupSize;
    Metadata<Coded> metadata;
    memcpy(&metadata, payload + 64 + g * sizeof metadata, sizeof metadata);
    intact &= decode_form<F>(tile, metadata, payload + layout.codes_offset + g * layout.kSlotBytes,
                             EscapeTable{payload + layout.end_of_codes(), header.escapes}, g,
                             header.nonce, static_cast<Word*>(job.target) + g * kGroupSize,
                             left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
                             reinterpret_cast<std::uintptr_t>(job.target) % 16 == 0);
  }
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

// Booleans and integers; runs last to first.
template <class Run>
bool emulate_runs(std::uint64_t elements, unsigned length, Run run) {
  bool good = true;
  for (std::uint64_t r = (elements + length - 1) / length; r-- > 0;) good &= run(r);
  return good;
}
inline void emulate_pack(const cuda::Job& job, unsigned type) {
  EmulatedBlock block;
  unsigned needed = 0;
  emulate_runs(job.elements, type == 3 ? kBooleanRun : kIntegerRun, [&](auto run) {
    const unsigned here =
        type == 3   ? pack_boolean_run(static_cast<const std::uint8_t*>(job.source), job.elements,
                                       run, static_cast<std::uint8_t*>(job.target) + 64)
        : type == 4 ? encode_integer_run<std::int64_t>(job, run)
                    : encode_integer_run<std::int32_t>(job, run);
    needed = std::max(needed, here);
    return true;
  });
  if (type == 3) return finish_booleans(block, job, needed);
  type == 4 ? finish_integers<std::int64_t>(block, job, needed)
            : finish_integers<std::int32_t>(block, job, needed);
}
inline void emulate_unpack(const cuda::Job& job, unsigned type) {
  Header header;
  memcpy(&header, job.source, sizeof header);
  bool intact = type == 3   ? booleans_fit(header, job.elements)
                : type == 4 ? integers_fit<std::int64_t>(header, job.elements, job.width)
                            : integers_fit<std::int32_t>(header, job.elements, job.width);
  if (intact && type == 3)
    emulate_runs(job.elements, kBooleanRun, [&](auto run) {
      unpack_boolean_run(static_cast<const std::uint8_t*>(job.source) + 64, job.elements, run,
                         static_cast<std::uint8_t*>(job.target));
      return true;
    });
  else if (intact)
    intact = emulate_runs(job.elements, kIntegerRun, [&](auto run) {
      return type == 4 ? decode_integer_run<std::int64_t>(job, job.width, run)
                       : decode_integer_run<std::int32_t>(job, job.width, run);
    });
  job.verdict->outcome = intact ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
}

// A kernel by its type, width and transform.
template <class Body>
void with_form(unsigned type, unsigned bits, Transform transform, Body body) {
  const auto f = [&]<class T, unsigned kBits>() {
    if constexpr (has_scaled_groups(kBits))
      if (transform == Transform::kHadamardScaled)
        return body.template operator()<Form<T, kBits, true, true>>();
    if constexpr (kBits != 0)
      if (transform != Transform::kNone) return body.template operator()<Form<T, kBits, true>>();
    return body.template operator()<Form<T, kBits>>();
  };
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

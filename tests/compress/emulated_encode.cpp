#include <algorithm>
#include <vector>

#include "compress/grouped/measure_core.h"
#include "tests/compress/emulated_device.h"
#include "tests/compress/emulated_kernels.h"

namespace pleat::compress::test {
namespace {

// Groups last to first: no group may depend on another.
template <class F>
void encode(const cuda::Job& job) {
  using Word = typename F::Source::Word;
  using Coded = typename F::Coded;
  const DeviceLayout<F> layout(job);
  auto* const payload = static_cast<std::uint8_t*>(job.target);
  const bool parted = layout.exponents.any();
  Rows rows{};
  if (parted) rows = emulated_rows(layout.exponents, job.table, payload + layout.end_of_codes());
  cuda::Counters counted{};
  for (std::uint64_t g = layout.groups; g-- > 0;) {
    EmulatedTile<Coded> tile;
    const PartsOfGroup parts = parted ? emulated_parts(&rows, g, job.elements) : no_parts();
    auto* const metadata = reinterpret_cast<Metadata<Coded>*>(payload + 64) + g;
    const std::uint64_t left = job.elements - g * kGroupSize;
    const GroupKind kind = encode_form<F>(
        tile, static_cast<const Word*>(job.source) + g * kGroupSize,
        left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize,
        reinterpret_cast<std::uintptr_t>(job.source) % 16 == 0, g, job.nonce, metadata,
        payload + layout.codes_offset + g * layout.kSlotBytes, parts, keeps_zeros<F>(job));
    counted.escapes += kind == GroupKind::kEscaped;
    counted.lossy |= is_lossy(kind) ? 1 : 0;
    if (F::kBits != 0 && is_watched(job)) {
      const Seen seen = look_at_group<F>(*metadata, job);
      counted.too_wide += seen.too_wide;
      counted.leaving += seen.leaving;
      counted.widest = std::max(counted.widest, seen.step_bits);
    }
  }
  EmulatedBlock block;
  finish_span<F>(block, job, counted, GroupsInSource<F>{job});
}

template <class T>
void survey(const cuda::Job& job) {
  using Word = typename T::Word;
  std::uint64_t escapes = 0;
  for (std::uint64_t at = 0; at < job.elements; at += kGroupSize) {
    EmulatedTile<T> tile;
    const std::uint64_t left = job.elements - at;
    escapes += survey_group<T>(tile, static_cast<const Word*>(job.source) + at,
                               left < kGroupSize ? static_cast<unsigned>(left) : kGroupSize, true,
                               job.width);
  }
  std::fill_n(flags_of(job), cuda::tiles_of(job.elements), 0u);
  *state_of(job) = {0, 0, static_cast<std::uint32_t>(escapes), {}};
}

template <class F>
bool encode_in_place(const cuda::Job& job, unsigned blocks,
                     const std::function<unsigned(unsigned)>& pick, InPlaceTurns* turns) {
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
      lossy |= is_lossy(stage_group<F>(tile, job, one.tile, --one.places, one.staged,
                                       [&] { return state->aside++; }));
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

template <class T>
void measure_parts(const cuda::Job& job) {
  Rows rows = emulated_rows(job.exponents(), job.table, job.target);
  for (std::uint64_t g = (job.elements + kGroupSize - 1) / kGroupSize; g-- > 0;) {
    EmulatedTile<T> tile;
    const PartsOfGroup all = emulated_parts(&rows, g, job.elements);
    measure_group<T>(tile, static_cast<const typename T::Word*>(job.source) + g * kGroupSize,
                     all.elements, reinterpret_cast<std::uintptr_t>(job.source) % 16 == 0,
                     all.parts());
  }
}

}  // namespace

void emulate_measure_parts(ElementType type, const cuda::Job& job) {
  with_type(type, [&]<class T>() { measure_parts<T>(job); });
}

void emulate_encode(const Kernel& kernel, const cuda::Job& job) {
  with_form(kernel.type, kernel.bits, kernel.transform, [&]<class F>() { encode<F>(job); });
}

void emulate_survey(ElementType type, const cuda::Job& job) {
  with_type(type, [&]<class T>() { survey<T>(job); });
}

bool emulate_in_place(const Kernel& kernel, const cuda::Job& job, unsigned blocks,
                      const std::function<unsigned(unsigned)>& pick, InPlaceTurns* turns) {
  bool done = false;
  with_form(kernel.type, kernel.bits, kernel.transform, [&]<class F>() {
    if constexpr (F::kBits != 0 && !F::kTransformed)
      done = encode_in_place<F>(job, blocks, pick, turns);
  });
  return done;
}

void emulate_pack(const cuda::Job& job, unsigned type) {
  EmulatedBlock block;
  unsigned needed = 0;
  emulate_runs(job.elements, type == 3 ? kBooleanRun : kIntegerRun, [&](auto run) {
    const unsigned here = type == 3 ? pack_boolean_run(static_cast<const std::uint8_t*>(job.source),
                                                       job.elements, run, job.width == 8,
                                                       static_cast<std::uint8_t*>(job.target) + 64)
                          : type == 4 ? encode_integer_run<std::int64_t>(job, run)
                                      : encode_integer_run<std::int32_t>(job, run);
    needed = std::max(needed, here);
    return true;
  });
  if (type == 3) return finish_booleans(block, job, needed);
  type == 4 ? finish_integers<std::int64_t>(block, job, needed)
            : finish_integers<std::int32_t>(block, job, needed);
}

void emulate_encode_sides(ElementType type, const cuda::Job& job) {
  EmulatedBlock block;
  with_type(type, [&]<class T>() {
    const SideTest test = side_values<T>(sides_of_job(job)).test;
    emulate_runs(job.elements, kSideRun, [&](auto run) {
      pack_side_run<T>(test, static_cast<const typename T::Word*>(job.source), job.elements, run,
                       static_cast<std::uint8_t*>(job.target) + 64);
      return true;
    });
    finish_sides<T>(block, job);
  });
}
}  // namespace pleat::compress::test

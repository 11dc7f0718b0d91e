#include "tests/compress/emulated_kernels.h"

#include <numeric>
#include <vector>

#include "compress/cuda/mix_core.h"
#include "compress/lines/lines_core.h"
#include "compress/near_zero/near_zero_core.h"
#include "compress/sketch/sketch_core.h"
#include "tests/compress/emulated_device.h"

namespace pleat::compress::test {
namespace {

template <class Body>
void in_any_order(std::uint64_t tiles, const Pick& pick, const Body& body) {
  std::vector<std::uint32_t> left(tiles);
  std::iota(left.begin(), left.end(), 0u);
  while (!left.empty()) {
    std::swap(left[pick(static_cast<unsigned>(left.size()))], left.back());
    const std::uint32_t tile = left.back();
    left.pop_back();
    body(tile);
  }
}

cuda::Verdict outcome(bool good) {
  cuda::Verdict verdict;
  verdict.outcome = good ? cuda::Outcome::kDone : cuda::Outcome::kCorrupt;
  return verdict;
}

}  // namespace

void emulate_look_at_columns(ElementType type, const cuda::LineJob& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    in_any_order(LineShape::of<T>(job).tiles_to_look(), pick, [&](std::uint32_t tile) {
      for (unsigned thread = cuda::kThreads; thread-- > 0;)
        look_at_columns<T>(job, tile, thread, cuda::kThreads);
    });
    EmulatedBlock block;
    finish_looking<T>(block, job);
  });
}

void emulate_keep_lines(ElementType type, const cuda::LineJob& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    const LineShape shape = LineShape::of<T>(job);
    unsigned found = 0;
    in_any_order(shape.tiles_to_keep(), pick, [&](std::uint32_t tile) {
      for (unsigned thread = cuda::kThreads; shape.columns && thread-- > 0;)
        read_columns<T>(job, tile, thread, cuda::kThreads);
      for (unsigned n = kWordsPerLineTile; !shape.columns && n-- > 0;) {
        const std::uint32_t word = tile * kWordsPerLineTile + n;
        EmulatedWarp warp;
        if (word < shape.words()) found += look_at_rows<T>(warp, job, word);
      }
    });
    EmulatedBlock block;
    finish_lines<T>(block, job, shape.columns || found != 0);
  });
}

void emulate_restore_lines(ElementType type, const cuda::LineJob& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    bool good = true;
    in_any_order(LineShape::of<T>(job).tiles_to_restore(), pick, [&](std::uint32_t tile) {
      for (unsigned thread = cuda::kThreads; thread-- > 0;)
        good &= lines_fit<T>(job) && restore_line_tile<T>(job, tile, thread / 32, thread % 32);
    });
    *job.verdict = outcome(good);
  });
}

namespace {

// Places beyond the last group come first, and store nothing.
template <class T, class Group>
void each_group(const cuda::LineJob& job, const Pick& pick, Group group) {
  in_any_order(cuda::tiles_of(job.elements), pick, [&](std::uint32_t tile) {
    for (unsigned n = cuda::kGroupsPerTile; n-- > 0;) {
      EmulatedTile<T> lanes;
      group(lanes, GroupOfTile(job.elements, tile, n));
    }
  });
  job.verdict->outcome = has_codes(job) ? cuda::Outcome::kDone : cuda::Outcome::kKeepRaw;
}

}  // namespace

void emulate_spread(ElementType type, const cuda::LineJob& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    each_group<T>(job, pick,
                  [&](auto& lanes, const GroupOfTile& at) { spread_group<T>(lanes, job, at); });
  });
}

void emulate_mix(ElementType type, const cuda::LineJob& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    each_group<T>(job, pick, [&](auto& lanes, const GroupOfTile& at) {
      if (has_codes(job)) mix_group<T>(lanes, job, MixRules<T>(job), at);
    });
  });
}

void emulate_keep_near_zero(ElementType type, const cuda::Job& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    cuda::Counters counted{};
    in_any_order(cuda::tiles_of(job.elements), pick, [&](std::uint32_t tile) {
      constexpr std::uint64_t kRunsPerTile = cuda::kElementsPerTile / kNearZeroRun;
      for (std::uint64_t run = (tile + 1) * kRunsPerTile; run-- > tile * kRunsPerTile;) {
        if (run * kNearZeroRun >= job.elements) continue;
        if (!keep_run<T>(job, run, [&](std::uint32_t n) { return (counted.kept += n) - n; }))
          counted.misses |= 1;
      }
    });
    EmulatedBlock block;
    finish_near_zero<T>(block, job, counted);
  });
}

void emulate_restore_near_zero(ElementType type, const cuda::Job& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    bool good = near_zero_fits<T>(job);
    in_any_order(cuda::tiles_of(job.elements), pick, [&](std::uint32_t tile) {
      for (unsigned n = cuda::kElementsPerTile; good && n-- > 0;)
        good &= restore_near_zero<T>(job, std::uint64_t{tile} * cuda::kElementsPerTile + n);
    });
    *job.verdict = outcome(good);
  });
}

void emulate_sketch(ElementType type, const cuda::Job& job, const Pick& pick) {
  with_type(type, [&]<class T>() {
    in_any_order(parts_of_sketch(job.elements), pick, [&](std::uint32_t part) {
      for (unsigned bucket = cuda::kThreads; bucket-- > 0;) sketch_bucket<T>(job, part, bucket);
    });
  });
}

}  // namespace pleat::compress::test

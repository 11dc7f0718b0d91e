#include "tests/compress/emulated_kernels.h"

#include <vector>

#include "compress/framed/frame_chain.h"
#include "tests/compress/emulated_device.h"

namespace pleat::compress::test {
namespace {

class EmulatedWarp {
 public:
  template <class F>
  void read(F f) {
    for (unsigned lane = 0; lane < 32; ++lane) words_[lane] = f(lane);
  }
  template <class F>
  std::uint32_t ballot(F f) {
    std::uint32_t votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= (f(words_[lane]) ? 1u : 0u) << lane;
    return votes;
  }
  template <class F>
  std::uint64_t sum(F f) {
    std::uint64_t all = 0;
    for (unsigned lane = 0; lane < 32; ++lane) all += f(lane, words_[lane]);
    return all;
  }

 private:
  std::uint64_t words_[32];
};

// What a block does between two points where others may see it, or be seen by it.
enum class FrameStep { kTake, kMeasure, kPublish, kMeanwhile, kLookBack, kPlace, kHandIn, kGone };

template <class T>
struct EmulatedFrameBlock {
  FrameStep step = FrameStep::kTake;
  unsigned number = 0;  // of the job
  unsigned launch_tile = 0;
  unsigned tiles = 0;      // of the job, not yet handed in
  unsigned places = 0;     // still to be done in this step
  std::uint64_t tile = 0;  // of the job
  bool damaged = false;    // some frame of the job
  LookBack back{0};
  FrameStage<T> stage;
  EmulatedTile<T, FrameLane<T>> lanes[cuda::kGroupsPerTile];
  Frame<T> frames[cuda::kGroupsPerTile];

  EmulatedFrameBlock() {
    for (unsigned place = 1; place < cuda::kGroupsPerTile; place += 2) lanes[place].turn_round();
  }
};

//   coder       encode or decode: see below
template <class T, class Coder>
bool emulate_frames(const cuda::Batch& batch, unsigned blocks, Coder coder,
                    const std::function<unsigned(unsigned)>& pick, FrameTurns* turns) {
  std::vector<EmulatedFrameBlock<T>> residents(blocks);
  unsigned gone = 0, idle = 0;
  while (gone < blocks) {
    if (++idle > 1000 * blocks) return false;
    EmulatedFrameBlock<T>& one = residents[pick(blocks)];
    if (one.step == FrameStep::kGone) continue;
    const cuda::Job& job = batch.job[one.number];
    const auto next = [&](FrameStep step) {
      one.step = step;
      one.places = cuda::kGroupsPerTile;
    };
    const auto each_place = [&](auto f, FrameStep then) {
      const unsigned place = --one.places;
      f(place, GroupOfTile(job.elements, one.tile, place));
      if (one.places == 0) next(then);
    };
    const auto enter = [&] {
      if (one.launch_tile >= batch.tiles) {
        one.step = FrameStep::kGone;
        ++gone;
        return;
      }
      one.number = find_job(batch, one.launch_tile, one.number);
      one.tile = one.launch_tile - batch.job[one.number].first_tile;
      ++one.tiles;
      next(coder.readable(batch.job[one.number]) ? FrameStep::kMeasure : FrameStep::kTake);
    };
    switch (one.step) {
      case FrameStep::kTake: {
        FrameChain* const chain = chain_of(batch.job[0]);
        one.launch_tile = chain->ticket++;
        if (is_last_ticket(one.launch_tile, batch.tiles, blocks)) chain->ticket = 0;
        if (one.tiles != 0 && one.launch_tile >= end_of_job(batch, one.number))
          next(FrameStep::kHandIn);
        else
          enter();
        break;
      }
      case FrameStep::kHandIn: {
        cuda::Counters& counters = chain_of(job)->counters;
        counters.misses |= one.damaged ? 1 : 0;
        counters.parts_done += one.tiles;
        if (counters.parts_done == cuda::tiles_of(job.elements)) {
          const cuda::Counters seen = counters;
          counters = {};
          coder.finish(job, seen.misses != 0);
        }
        one.tiles = 0;
        one.damaged = false;
        enter();
        break;
      }
      case FrameStep::kMeasure:
        each_place(
            [&](unsigned place, const GroupOfTile& at) { coder.measure(job, one, place, at); },
            FrameStep::kPublish);
        break;
      case FrameStep::kPublish:
        words_of(job)[one.tile] =
            kOwnBytes | bytes_of_frames(one.lanes[0], one.stage, cuda::kGroupsPerTile);
        one.back = LookBack{one.tile};
        next(FrameStep::kMeanwhile);
        break;
      case FrameStep::kMeanwhile:
        each_place([&](unsigned place, const GroupOfTile&) { coder.meanwhile(one, place); },
                   FrameStep::kLookBack);
        break;
      case FrameStep::kLookBack:
        if (!one.back.done()) {
          EmulatedWarp warp;
          if (!one.back.advance(warp, words_of(job))) {
            ++turns->waited;
            continue;
          }
          turns->windows += one.back.tile != 0;
        } else {
          one.stage.before = one.back.bytes;
          words_of(job)[one.tile] =
              kBytesToEnd |
              (one.back.bytes + bytes_of_frames(one.lanes[0], one.stage, cuda::kGroupsPerTile));
          next(FrameStep::kPlace);
        }
        break;
      case FrameStep::kPlace:
        each_place(
            [&](unsigned place, const GroupOfTile& at) {
              coder.place(job, one, place, at, bytes_of_frames(one.lanes[place], one.stage, place));
            },
            FrameStep::kTake);
        break;
      case FrameStep::kGone:
        break;
    }
    idle = 0;
  }
  return true;
}

template <class T>
struct EmulatedFrameEncoder {
  bool readable(const cuda::Job&) { return true; }
  void measure(const cuda::Job& job, EmulatedFrameBlock<T>& block, unsigned place,
               const GroupOfTile& at) {
    block.frames[place] = FrameEncoder<T>(job).measure(block.lanes[place], at, place, block.stage);
  }
  void meanwhile(EmulatedFrameBlock<T>& block, unsigned place) {
    pack_frame(block.lanes[place], block.frames[place], block.stage.slots[place]);
  }
  void place(const cuda::Job& job, EmulatedFrameBlock<T>& block, unsigned place, const GroupOfTile&,
             std::uint32_t before) {
    FrameEncoder<T>(job).write(block.lanes[place], block.stage, place, before);
  }
  void finish(const cuda::Job& job, bool) {
    EmulatedBlock block;
    finish_frames<T>(block, job);
  }
};

template <class T>
struct EmulatedFrameDecoder {
  static FrameDecoder<T> decoder(const cuda::Job& job) {
    Header header;
    memcpy(&header, job.source, sizeof header);
    return {job, header};
  }
  bool readable(const cuda::Job& job) { return decoder(job).readable; }
  void measure(const cuda::Job& job, EmulatedFrameBlock<T>& block, unsigned place,
               const GroupOfTile& at) {
    block.damaged |=
        !decoder(job).read(block.lanes[place], at, place, block.stage, &block.frames[place]);
  }
  void meanwhile(EmulatedFrameBlock<T>&, unsigned) {}
  void place(const cuda::Job& job, EmulatedFrameBlock<T>& block, unsigned place,
             const GroupOfTile& at, std::uint32_t before) {
    decoder(job).restore(block.lanes[place], at, block.frames[place], place, block.stage, before);
  }
  void finish(const cuda::Job& job, bool damaged) {
    EmulatedBlock block;
    finish_restored(block, decoder(job), damaged);
  }
};

}  // namespace

bool emulate_frame_launch(ElementType type, bool encode, const cuda::Batch& batch, unsigned blocks,
                          const std::function<unsigned(unsigned)>& pick, FrameTurns* turns) {
  return with_type(type, [&]<class T>() {
    return encode ? emulate_frames<T>(batch, blocks, EmulatedFrameEncoder<T>{}, pick, turns)
                  : emulate_frames<T>(batch, blocks, EmulatedFrameDecoder<T>{}, pick, turns);
  });
}

bool emulate_framed_job(ElementType type, bool encode, cuda::Job job) {
  std::vector<std::uint64_t> scratch(frame_scratch_bytes(job.elements) / 8);
  job.counters = reinterpret_cast<cuda::Counters*>(scratch.data());
  cuda::Batch batch{};
  batch.jobs = 1;
  batch.tiles = static_cast<std::uint32_t>(cuda::tiles_of(job.elements));
  batch.job[0] = job;
  FrameTurns turns;
  return emulate_frame_launch(
      type, encode, batch, 3, [turn = 0u](unsigned n) mutable { return turn++ % n; }, &turns);
}

}  // namespace pleat::compress::test

// Framed floats as the CUDA kernels do them, by several blocks at a time, one step of one block a
// turn: so that blocks overtake and wait for each other in every way.
#pragma once

#include <functional>

#include "compress/device/jobs.h"
#include "compress/types.h"

namespace pleat::compress::test {

struct FrameTurns {
  unsigned waited = 0;   // that found a word missing
  unsigned windows = 0;  // that had to look further back than one window
};

//   pick(n)  which block's turn it is
// Returns false if blocks wait for each other.
bool emulate_frame_launch(ElementType type, bool encode, const cuda::Batch& batch, unsigned blocks,
                          const std::function<unsigned(unsigned)>& pick, FrameTurns* turns);
// A launch of one job by three blocks in turns, with scratch memory of its own.
bool emulate_framed_job(ElementType type, bool encode, cuda::Job job);

}  // namespace pleat::compress::test

// The CUDA kernels' code run on the CPU. Those of grouped floats exist once per element type, width
// and transform, so all are compiled once (emulated_encode.cpp, emulated_decode.cpp), not per test.
#pragma once

#include <functional>

#include "compress/device/jobs.h"
#include "compress/types.h"

namespace pleat::compress::test {

struct Kernel {
  ElementType type;
  unsigned bits;
  Transform transform = Transform::kNone;
};

// The bytes of parts, at the job's target, before a job with exponents is encoded.
void emulate_measure_parts(ElementType type, const cuda::Job& job);
void emulate_encode(const Kernel& kernel, const cuda::Job& job);
void emulate_decode(const Kernel& kernel, const cuda::Job& job);

// Booleans and integers.
void emulate_pack(const cuda::Job& job, unsigned type);
void emulate_unpack(const cuda::Job& job, unsigned type);

// Sides.
void emulate_encode_sides(ElementType type, const cuda::Job& job);
void emulate_decode_sides(ElementType type, const cuda::Job& job);
void emulate_move_to_sides(ElementType type, const cuda::Job& job);

// In place: the first kernel,
void emulate_survey(ElementType type, const cuda::Job& job);
// and the second, by several blocks at a time, each of which takes a ticket, stages its tile place
// by place, raises its flag, and writes as soon as the flags it waits for are up: one of these a
// turn. Lossy and not transformed.
//   pick(n)  which block's turn it is
// Returns false if they wait for each other.
struct InPlaceTurns {
  unsigned bounced = 0;  // tiles that took the detour
  unsigned waited = 0;   // turns that found a flag down
};
bool emulate_in_place(const Kernel& kernel, const cuda::Job& job, unsigned blocks,
                      const std::function<unsigned(unsigned)>& pick, InPlaceTurns* turns);

//   pick(n)  which of n tiles is next
using Pick = std::function<unsigned(unsigned)>;
void emulate_look_at_columns(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_keep_lines(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_restore_lines(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_spread(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_mix(ElementType type, const cuda::LineJob& job, const Pick& pick);
void emulate_keep_near_zero(ElementType type, const cuda::Job& job, const Pick& pick);
void emulate_restore_near_zero(ElementType type, const cuda::Job& job, const Pick& pick);
void emulate_sketch(ElementType type, const cuda::Job& job, const Pick& pick);

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

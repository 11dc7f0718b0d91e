// A launch of a kernel of compress/cuda/kernels.cu, known by its name, on memory of the host: job
// by job, by the kernel's own code.
#pragma once

#include <optional>
#include <string>

#include "compress/device/jobs.h"
#include "compress/types.h"

namespace pleat::compress::test {

enum class Verb {
  kEncode,
  kDecode,
  kMeasureParts,
  kSurvey,
  kEncodeInPlace,
  kMoveTo,  // sides
  kLookAtColumns,
  kKeepLines,
  kRestoreLines,
  kSpread,
  kMix,
  kKeepNearZero,
  kRestoreNearZero,
  kSketch,
};
enum class Coding { kPlain, kTransformed, kScaled, kFramed, kSides };

struct NamedKernel {
  Verb verb;
  Coding coding;
  ElementType type;
  unsigned bits = 0;

  // Its parameter is a LineBatch, not a Batch.
  bool is_of_lines() const {
    return verb == Verb::kLookAtColumns || verb == Verb::kKeepLines ||
           verb == Verb::kRestoreLines || is_of_mix();
  }
  bool is_of_mix() const { return verb == Verb::kSpread || verb == Verb::kMix; }
};

// Nothing if there is no such kernel.
std::optional<NamedKernel> kernel_named(std::string name);

// False if blocks wait for each other.
bool emulate_launch(const NamedKernel& kernel, const cuda::Batch& batch);
void emulate_launch(const NamedKernel& kernel, const cuda::LineBatch& batch);

}  // namespace pleat::compress::test

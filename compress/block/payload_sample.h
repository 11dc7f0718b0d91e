// A payload of a few groups of another, from all over it, so that a large payload on a device need
// not be read as a whole. Torch-free.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "compress/block/block_source.h"

namespace pleat::compress::block {

struct PayloadSample {
  std::vector<ByteRange> parts;  // of the payload: side by side they are the sample
  std::size_t elements = 0;      // of the sample
  std::size_t bytes = 0;
  std::size_t code_bytes = 0;  // of these

  // Makes the header that of the sample. `sample`: the parts, `bytes` bytes.
  void finish(void* sample) const noexcept;
};

// Which parts of a payload make a sample of a million elements. `header`: a copy of its own. Empty
// if it is not grouped floats of at least 3 bits, so that no group is escaped, or is compacted; if
// a sample is hardly smaller; or if rows and channels lie otherwise in nearly every block. Throws
// std::bad_alloc.
[[nodiscard]] std::optional<PayloadSample> sample_payload(const void* header);

}  // namespace pleat::compress::block
